"""Kernels of Debian's package user-mode-linux, each with the C library of its suite."""

import json
import shutil
from pathlib import Path

from raidproof.core import command
from raidproof.core.errors import RequestError, RigError
from raidproof.core.log import step
from raidproof.image import apt, cache
from raidproof.image.kernel import catalogue, initramfs
from raidproof.image.kernel.catalogue import Kernel

PACKAGES = ("user-mode-linux", "libc6")
RECIPE_VERSION = "1"
"""Part of the cache address: increase it when the result of `_build` changes."""
REPLACED_VERSION = "1"
"""Part of the cache address: increase it when the result of `_replace` changes."""


def get(name: str, own_modules: str | None = None) -> Kernel:
    """Return a User-mode kernel; if the cache lacks it, fetch it and try whether it runs on this CPU.

    ``own_modules`` is a folder of modules that replace the kernel's modules of the same names.

    Raises:
        RequestError: the catalogue has no kernel of this name; or a module in ``own_modules`` is for another release,
            or replaces none.
        RequirementMissing: this host lacks a program for preparing the kernel.
        RigError: the kernel cannot be fetched, or does not run on this host.
    """
    declared = catalogue.user_mode(name)
    # The cache's location is part of the address: the binary contains the absolute path of its C library.
    address = cache.digest(RECIPE_VERSION, declared.suite, *PACKAGES, str(cache.root()))
    folder = cache.build("kernel", address, lambda partial: _build(declared, partial, cache.place("kernel", address)))
    stored = json.loads((folder / "kernel.json").read_text())
    binary = folder / "linux"
    preload = catalogue.preload_for(name, binary, declared.arguments)
    image = folder / "modules.ext4"
    return Kernel(
        name=name,
        release=stored["release"],
        binary=binary,
        modules_image=image if own_modules is None else with_modules(image, stored["release"], Path(own_modules)),
        environment={"LD_PRELOAD": str(preload)} if preload else {},
        arguments=declared.arguments,
        packages=stored["packages"],
    )


def _build(declared: catalogue.KernelRecipe, partial: Path, final: Path) -> None:
    step(f"fetching kernel {declared.series} from Debian {declared.suite}")
    scratch = partial / cache.SCRATCH
    scratch.mkdir()
    files = apt.download(declared.suite, PACKAGES, scratch)
    tree, libc = scratch / "tree", scratch / "libc6"
    apt.unpack(files["user-mode-linux"], tree)
    apt.unpack(files["libc6"], libc)

    step(f"preparing kernel {declared.series}")
    libraries = partial / "libc"
    # The loader is in /lib or, in newer packages of libc6, in /usr/lib.
    loader = next((path for path in libc.rglob("ld-linux-x86-64.so.2") if not path.is_symlink()), None)
    binary = next((path for path in (tree / "usr/bin").glob("linux*") if path.is_file()), None)
    found = next((tree / "usr/lib/uml/modules").glob("*"), None)
    if loader is None or binary is None or found is None:
        raise RigError(
            f"the packages {' and '.join(PACKAGES)} of Debian {declared.suite} lack ld-linux-x86-64.so.2, "
            "usr/bin/linux* or usr/lib/uml/modules/*"
        )
    loader.parent.rename(libraries)
    binary.rename(partial / "linux")
    command.succeed(
        [
            "patchelf",
            "--set-interpreter",
            final / "libc" / loader.name,
            "--set-rpath",
            final / "libc",
            partial / "linux",
        ]
    )
    initramfs.make_image(found.parent, partial / "modules.ext4")
    packages = {name: apt.version(path) for name, path in files.items()}
    (partial / "kernel.json").write_text(json.dumps({"release": found.name, "packages": packages}))


def with_modules(image: Path, release: str, folder: Path) -> Path:
    """Return an image of a kernel's modules in which the files ``*.ko`` of a folder replace those of the same names.

    ``image`` is the image of the kernel's modules, ``release`` the release of the kernel.

    Raises:
        RequestError: the folder has no modules, the kernel has no module of a file's name, or a file is built for
            another release.
        RequirementMissing: this host lacks debugfs, depmod or mkfs.ext4.
        RigError: the cache cannot be used, or a command fails.
    """
    files = sorted(path for path in folder.expanduser().rglob("*.ko"))
    if not files:
        raise RequestError(f"no modules in {folder}", remedy="name a folder with modules, whose file names end in .ko")
    for file in files:
        if (found := initramfs.release_of(file.read_bytes())) != release:
            raise RequestError(f"{file} was built for kernel {found}, not {release}")
    content = (part for file in files for part in (file.name, file.read_bytes()))
    address = cache.digest(REPLACED_VERSION, str(image), *content)
    built = cache.build("modules", address, lambda partial: _replace(image, release, files, partial))
    return built / "modules.ext4"


def _replace(image: Path, release: str, files: list[Path], partial: Path) -> None:
    step(f"replacing {', '.join(file.name for file in files)} in the modules of kernel {release}")
    tree = partial / cache.SCRATCH
    folder = tree / "lib" / "modules"
    folder.mkdir(parents=True)
    command.succeed(["debugfs", "-R", f'rdump "/{release}" "{folder}"', image], deadline_s=300)
    own = initramfs.ModuleFolder(folder / release)
    for file in files:
        replaced = own.file_of(file.name)
        if replaced is None:
            raise RequestError(f"kernel {release} has no module {file.name} that {file} could replace")
        shutil.copy(file, replaced)
    initramfs.index(tree, release)
    initramfs.make_image(folder, partial / "modules.ext4")
