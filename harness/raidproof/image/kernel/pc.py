"""Kernels of PCs, which boot in QEMU: Debian's of any suite and flavour, a package file, or the user's bzImage."""

import json
import re
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

from raidproof.core.errors import RequestError, RigError
from raidproof.core.log import step
from raidproof.image import apt, cache
from raidproof.image.kernel import catalogue, initramfs
from raidproof.image.kernel.catalogue import Kernel

RECIPE_VERSION = "1"
"""Part of the cache address: increase it when the build changes."""
PARTS = re.compile(r"linux-(?:image|binary|modules|base)-\d.*")
"""The packages of a kernel: one in trixie; in sid three, for the kernel, the modules and what is built in."""
NAMES = ("virtio_blk", "virtio_net", "rpcsec_gss_krb5", "sch_netem")
FOLDERS = ("kernel/fs", "kernel/drivers/md")
"""Modules that guests may load, by name and by folder: every file system, NFS and RAID level.

They are decompressed once here, not each time by an emulated processor.
"""

Unpacked = tuple[Path, Path | None, dict[str, str]]
"""A bzImage, its folder of modules, and the versions of the packages that contain them."""


def named(name: str) -> Kernel:
    """Return Debian's kernel ``debian/SUITE`` or ``debian/SUITE/FLAVOUR``.

    Raises:
        RequestError: there is no such kernel.
        RequirementMissing, RigError: it cannot be fetched or prepared.
    """
    suite, package = catalogue.metapackage(name)

    def fetch(scratch: Path) -> Unpacked:
        step(f"fetching kernel {name} ({package})")
        files = apt.download_behind(suite, package, PARTS, scratch)
        return _unpack(list(files.values()), scratch)

    return _ready(name, [suite, package], fetch)


def at_hand() -> bool:
    """Return whether the default kernel is cached already."""
    return cache.place("kernel", _address(catalogue.metapackage(catalogue.DEFAULT))).is_dir()


def get(path: Path, modules_folder: str | None = None) -> Kernel:
    """Return a kernel by the path of a linux-image ``.deb``, or of a bzImage with a folder of modules.

    Raises:
        RequestError: there is no such file, or it is something else.
        RequirementMissing, RigError: it cannot be prepared.
    """
    if not path.is_file():
        raise RequestError(
            f"no such kernel: {path}",
            remedy=f"it takes a linux-image .deb, a bzImage, or a name as {catalogue.DEFAULT}/rt",
        )
    if path.suffix == ".deb":
        if modules_folder is not None:
            raise RequestError(f"modules beside {path.name}, which has its own", remedy="leave out the modules")
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
        raise RequestError(f"no kernel in {', '.join(package.name for package in packages)}")
    folder = next((path for path in tree.glob(f"**/lib/modules/{release_of(binary)}") if path.is_dir()), None)
    return binary, folder, {package.name.partition("_")[0]: apt.version(package) for package in packages}


def _address(parts: Sequence[str | bytes]) -> str:
    return cache.digest(RECIPE_VERSION, *parts, initramfs.address(), *NAMES, *FOLDERS)


def _ready(name: str, parts: Sequence[str | bytes], fetch: Callable[[Path], Unpacked]) -> Kernel:
    folder = cache.build("kernel", _address(parts), lambda partial: _build(name, partial, fetch))
    said = json.loads((folder / "kernel.json").read_text())
    return Kernel(
        name=name,
        release=said["release"],
        binary=folder / "vmlinuz",
        modules_image=folder / "modules.ext4",
        packages=said["packages"],
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
    _copy_modules(found, folder)
    own = initramfs.ModuleFolder(folder)
    initramfs.make(name, own, scratch, partial / "initramfs")
    own.needed([*NAMES, *own.inside(FOLDERS)])
    initramfs.index(tree, release)
    initramfs.make_image(tree / "lib" / "modules", partial / "modules.ext4")
    (partial / "vmlinuz").write_bytes(binary.read_bytes())
    (partial / "kernel.json").write_text(json.dumps({"release": release, "packages": packages}))


def _copy_modules(source: Path | None, target: Path) -> None:
    target.mkdir(parents=True)
    if source is None:
        return
    # A folder that `make modules_install` has filled contains links to the sources, which are not needed.
    for path in source.rglob("*"):
        if path.is_file() and not path.is_symlink():
            copy = target / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())


def release_of(binary: Path) -> str:
    """Return the release of a bzImage (Documentation/arch/x86/boot.rst: header, kernel_version).

    Raises:
        RequestError: this is not a bzImage.
    """
    data = binary.read_bytes()[: 1 << 16]
    if data[0x202:0x206] != b"HdrS" or not (offset := struct.unpack_from("<H", data, 0x20E)[0]):
        raise RequestError(f"not a bzImage: {binary}", remedy="it is arch/x86/boot/bzImage in a built kernel tree")
    words = data[0x200 + offset :].partition(b"\0")[0].split()
    if not words:
        raise RigError(f"{binary} does not say its release")
    return words[0].decode(errors="replace")


def find_modules(folder: Path, release: str) -> Path:
    """Return the folder of a release's modules: this one, or below it in the layout of ``make modules_install``.

    Raises:
        RequestError: the modules are not there.
    """
    for candidate in (folder / "lib" / "modules" / release, folder / release, folder):
        if candidate.is_dir() and (candidate.name == release or (candidate / "modules.order").exists()):
            return candidate
    raise RequestError(f"no modules of {release} in {folder}", remedy="make modules_install INSTALL_MOD_PATH=DIR")


def fingerprint(folder: Path | None) -> str:
    """Return a digest that changes with a folder of modules, from sizes and times, without reading the files."""
    if folder is None:
        return ""
    files = ((path.relative_to(folder), path.stat()) for path in sorted(folder.rglob("*")) if path.is_file())
    return cache.digest(*(f"{path} {status.st_size} {status.st_mtime_ns}" for path, status in files))
