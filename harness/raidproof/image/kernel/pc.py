"""Kernels for PCs, which boot in QEMU: those of Debian's suites and flavours, a linux-image .deb, or a bzImage."""

import json
import re
import shutil
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

from raidproof.core.errors import RequestError, RigError
from raidproof.core.log import step
from raidproof.image import apt, cache
from raidproof.image.kernel import catalogue, initramfs, outside
from raidproof.image.kernel.catalogue import Kernel

RECIPE_VERSION = "1"
"""Part of the cache address: increase it when the result of `_build` changes."""
PARTS = re.compile(r"linux-(?:image|binary|modules|base)-\d.*")
"""The names of the packages that contain a kernel and its modules: one package in trixie, several packages in sid."""
NAMES = ("virtio_blk", "virtio_net", "rpcsec_gss_krb5", "sch_netem")
FOLDERS = ("kernel/fs", "kernel/drivers/md")
"""The modules that guests may load, by name (`NAMES`) and by folder: every file system, NFS and RAID level.

The build decompresses these modules, because decompression takes an emulated CPU seconds.
"""

Unpacked = tuple[Path, Path | None, dict[str, str]]
"""The path of a bzImage, the folder of its modules, and the versions, by name, of the packages that contain both."""


def named(name: str) -> Kernel:
    """Return Debian's kernel ``debian/SUITE`` or ``debian/SUITE/FLAVOUR``; fetch and prepare it if the cache lacks it.

    Raises:
        RequestError: the catalogue has no kernel of this name.
        RequirementMissing: this host lacks a program for preparing the kernel.
        RigError: the kernel cannot be fetched, its packages are incomplete, or its further modules do not build.
    """
    suite, package = catalogue.metapackage(name)
    built = catalogue.built_modules(name)

    def fetch(scratch: Path) -> Unpacked:
        step(f"fetching kernel {name} ({package})")
        files = apt.download_behind(suite, package, PARTS, scratch)
        binary, folder, packages = _unpack(list(files.values()), scratch)
        if built is None or folder is None:
            return binary, folder, packages
        made = outside.build(suite, built, release_of(binary), scratch / "outside")
        shutil.copytree(made.folder, folder / outside.FOLDER)
        return binary, folder, packages | made.packages

    return _ready(name, _parts(name), fetch)


def at_hand(name: str = catalogue.DEFAULT) -> bool:
    """Return whether the cache has a kernel for PCs of the catalogue, with the modules that are built on this host.

    Raises:
        RequestError: the catalogue has no kernel of this name.
    """
    return cache.place("kernel", _address(_parts(name))).is_dir()


def _parts(name: str) -> list[str]:
    built = catalogue.built_modules(name)
    own = [] if built is None else [built.source, outside.RECIPE_VERSION]
    return [*catalogue.metapackage(name), *own]


def get(path: Path, modules_folder: str | None = None) -> Kernel:
    """Return the kernel in a linux-image ``.deb``, or a bzImage with the modules in ``modules_folder``.

    Raises:
        RequestError: the file does not exist, or is neither a .deb with a kernel nor a bzImage; or the modules are of
            another release.
        RequirementMissing: this host lacks a program for preparing the kernel.
        RigError: the kernel cannot be prepared.
    """
    if not path.is_file():
        raise RequestError(
            f"there is no kernel file {path}",
            remedy=f"name a linux-image .deb, a bzImage, or a kernel of the catalogue such as {catalogue.DEFAULT}/rt",
        )
    if path.suffix == ".deb":
        if modules_folder is not None:
            raise RequestError(
                f"package {path.name} has its own modules, which the folder {modules_folder} cannot replace",
                remedy=f"leave out modules={modules_folder}",
            )
        return _ready(str(path), [path.read_bytes()], lambda scratch: _unpack([path], scratch))
    release = release_of(path)
    folder = None if modules_folder is None else find_modules(Path(modules_folder).expanduser(), release)
    return _ready(str(path), [path.read_bytes(), fingerprint(folder)], lambda _: (path, folder, {}))


def _unpack(packages: list[Path], scratch: Path) -> Unpacked:
    tree = scratch / "tree"
    for package in packages:
        apt.unpack(package, tree)
    binary = next((path for path in sorted(tree.rglob("vmlinuz*")) if path.is_file() and not path.is_symlink()), None)
    if binary is None:
        raise RequestError(f"no vmlinuz in {', '.join(package.name for package in packages)}")
    folder = next((path for path in tree.glob(f"**/lib/modules/{release_of(binary)}") if path.is_dir()), None)
    return binary, folder, {package.name.partition("_")[0]: apt.version(package) for package in packages}


def _address(parts: Sequence[str | bytes]) -> str:
    return cache.digest(RECIPE_VERSION, *parts, initramfs.address(), *NAMES, *FOLDERS)


def _ready(name: str, parts: Sequence[str | bytes], fetch: Callable[[Path], Unpacked]) -> Kernel:
    folder = cache.build("kernel", _address(parts), lambda partial: _build(name, partial, fetch))
    stored = json.loads((folder / "kernel.json").read_text())
    return Kernel(
        name=name,
        release=stored["release"],
        binary=folder / "vmlinuz",
        modules_image=folder / "modules.ext4",
        packages=stored["packages"],
        initramfs=folder / "initramfs",
    )


def _build(name: str, partial: Path, fetch: Callable[[Path], Unpacked]) -> None:
    scratch = partial / cache.SCRATCH
    scratch.mkdir()
    binary, found, packages = fetch(scratch)
    release = release_of(binary)
    step(f"preparing kernel {release}")
    tree = scratch / "modules"
    folder = tree / "lib" / "modules" / release
    copy_modules(found, folder)
    own = initramfs.ModuleFolder(folder)
    initramfs.make(name, own, scratch, partial / "initramfs")
    own.needed([*NAMES, *own.inside([*FOLDERS, outside.FOLDER])])
    initramfs.index(tree, release)
    initramfs.make_image(tree / "lib" / "modules", partial / "modules.ext4")
    (partial / "vmlinuz").write_bytes(binary.read_bytes())
    (partial / "kernel.json").write_text(json.dumps({"release": release, "packages": packages}))


def copy_modules(source: Path | None, target: Path) -> None:
    """Copy the files of a folder of modules, without symbolic links; ``None`` stands for an empty folder."""
    target.mkdir(parents=True)
    if source is None:
        return
    # `make modules_install` creates links to the kernel's sources.
    for path in source.rglob("*"):
        if path.is_file() and not path.is_symlink():
            copy = target / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())


def release_of(binary: Path) -> str:
    """Return the release of a bzImage (Documentation/arch/x86/boot.rst: header, kernel_version).

    Raises:
        RequestError: the file is not a bzImage.
        RigError: the bzImage contains an empty version string.
    """
    data = binary.read_bytes()[: 1 << 16]
    if data[0x202:0x206] != b"HdrS" or not (offset := struct.unpack_from("<H", data, 0x20E)[0]):
        raise RequestError(
            f"not a bzImage: {binary}", remedy="in a built kernel tree the bzImage is arch/x86/boot/bzImage"
        )
    words = data[0x200 + offset :].partition(b"\0")[0].split()
    if not words:
        raise RigError(f"the header of bzImage {binary} contains no kernel release")
    return words[0].decode(errors="replace")


def find_modules(folder: Path, release: str) -> Path:
    """Return the folder with the modules of a release: ``folder``, or ``lib/modules/RELEASE`` or ``RELEASE`` below it.

    Raises:
        RequestError: ``folder`` has no modules of this release.
    """
    for candidate in (folder / "lib" / "modules" / release, folder / release, folder):
        if candidate.is_dir() and (candidate.name == release or (candidate / "modules.order").exists()):
            return candidate
    raise RequestError(
        f"no modules of kernel {release} in {folder}",
        remedy=f"install the modules from the kernel's source tree: make modules_install INSTALL_MOD_PATH={folder}",
    )


def fingerprint(folder: Path | None) -> str:
    """Return a digest of names, sizes and modification times of the files in a folder; "" if ``folder`` is None."""
    if folder is None:
        return ""
    files = ((path.relative_to(folder), path.stat()) for path in sorted(folder.rglob("*")) if path.is_file())
    return cache.digest(*(f"{path} {status.st_size} {status.st_mtime_ns}" for path, status in files))
