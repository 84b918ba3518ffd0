"""Debian's User-mode Linux of several suites, each with its own C library."""

import json
from pathlib import Path

from harness import command
from harness.errors import RigError
from harness.log import step
from harness.machine import apt, cache, probe
from harness.machine.kernel import catalogue, modules
from harness.machine.kernel.kernel import Kernel

PACKAGES = ("user-mode-linux", "libc6")
RECIPE_VERSION = "1"
"""Part of the address: to be raised when what `_build` makes changes."""


def get(name: str) -> Kernel:
    """Return a User-mode kernel; fetch it, and try whether it runs on this CPU, where that is yet to be done.

    Raises:
        RequestError: there is no kernel of this name.
        RequirementMissing: a host tool is missing.
        RigError: it could not be fetched, or does not run here.
    """
    declared = catalogue.user_mode(name)
    # The binary names its C library by an absolute path, so a cache that has moved is another cache.
    address = cache.digest(RECIPE_VERSION, declared.suite, *PACKAGES, str(cache.root()))
    folder = cache.build("kernel", address, lambda partial: _build(declared, partial, cache.place("kernel", address)))
    said = json.loads((folder / "kernel.json").read_text())
    binary = folder / "linux"
    preload = probe.preload_for(name, binary, declared.arguments)
    return Kernel(
        name=name,
        release=said["release"],
        binary=binary,
        modules_image=folder / "modules.ext4",
        environment={"LD_PRELOAD": str(preload)} if preload else {},
        arguments=declared.arguments,
        packages=said["packages"],
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
    # Older packages have /lib, newer ones /usr/lib.
    loader = next((path for path in libc.rglob("ld-linux-x86-64.so.2") if not path.is_symlink()), None)
    binary = next((path for path in (tree / "usr/bin").glob("linux*") if path.is_file()), None)
    found = next((tree / "usr/lib/uml/modules").glob("*"), None)
    if loader is None or binary is None or found is None:
        raise RigError(f"the packages of Debian {declared.suite} are not laid out as expected")
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
    modules.make_image(found.parent, partial / "modules.ext4")
    packages = {name: apt.version(path) for name, path in files.items()}
    (partial / "kernel.json").write_text(json.dumps({"release": found.name, "packages": packages}))
