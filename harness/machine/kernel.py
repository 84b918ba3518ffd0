"""The kernels that a machine can run: Debian's User-mode Linux of several suites, each with its own C library."""

import json
from dataclasses import dataclass, field
from pathlib import Path

from harness import command
from harness.command import CommandFailed
from harness.errors import RequestError, RigError, nearest
from harness.log import step
from harness.machine import apt, cache, probe, recipe
from harness.units import MIB

PACKAGES = ("user-mode-linux", "libc6")
RECIPE_VERSION = "1"
"""Part of the address: to be raised when what `_build` makes changes."""


class KernelRecipe(recipe.Recipe):
    """A kernel as declared."""

    suite: str
    series: str
    arguments: tuple[str, ...] = ()


class Catalogue(recipe.Recipe):
    """``vms/kernels.toml``."""

    default: str
    kernels: dict[str, KernelRecipe]


CATALOGUE = recipe.read(recipe.VMS / "kernels.toml", Catalogue)
DEFAULT = CATALOGUE.default


@dataclass(frozen=True)
class Kernel:
    """A kernel that is ready to boot."""

    name: str
    release: str
    """As ``uname -r`` says it."""
    binary: Path
    modules_image: Path
    """A read-only ext4 image to mount on /lib/modules."""
    environment: dict[str, str]
    """What the process needs in its environment, on top of the harness's own."""
    arguments: tuple[str, ...]
    """What belongs on its command line wherever it runs."""
    packages: dict[str, str] = field(default_factory=dict)
    """The versions of the packages that it comes from."""

    @property
    def preload(self) -> Path | None:
        """The XSTATE work-around, where the probe found that it is needed."""
        path = self.environment.get("LD_PRELOAD")
        return Path(path) if path else None


def get(name: str = DEFAULT) -> Kernel:
    """Return a kernel of the catalogue; fetch it, and try whether it runs on this CPU, where that is yet to be done.

    Raises:
        RequestError: there is no kernel of this name.
        RequirementMissing: a host tool is missing.
        RigError: it could not be fetched, or does not run here.
    """
    if name not in CATALOGUE.kernels:
        raise RequestError(f"no kernel {name!r}: {nearest(name, CATALOGUE.kernels)}")
    declared = CATALOGUE.kernels[name]
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


def _build(declared: KernelRecipe, partial: Path, final: Path) -> None:
    step(f"fetching kernel {declared.series} from Debian {declared.suite}")
    scratch = partial / cache.SCRATCH
    scratch.mkdir()
    files = apt.download(declared.suite, PACKAGES, scratch)
    tree, libc = scratch / "tree", scratch / "libc6"
    _unpack(files["user-mode-linux"], tree, partial)
    _unpack(files["libc6"], libc, partial)

    step(f"preparing kernel {declared.series}")
    libraries = partial / "libc"
    # Older packages have /lib, newer ones /usr/lib.
    loader = next((path for path in libc.rglob("ld-linux-x86-64.so.2") if not path.is_symlink()), None)
    binary = next((path for path in (tree / "usr/bin").glob("linux*") if path.is_file()), None)
    modules = next((tree / "usr/lib/uml/modules").glob("*"), None)
    if loader is None or binary is None or modules is None:
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
    _make_modules_image(modules.parent, partial / "modules.ext4")
    packages = {name: apt.version(path) for name, path in files.items()}
    (partial / "kernel.json").write_text(json.dumps({"release": modules.name, "packages": packages}))


def _unpack(package: Path, target: Path, partial: Path) -> None:
    completed = command.run(["dpkg-deb", "--extract", package, target])
    if not completed.ok:
        raise apt.explain(completed, f"unpacking {package.name}", partial)


def _make_modules_image(tree: Path, image: Path) -> None:
    """Make the image just larger than the modules; it is only read, so it needs no journal."""
    used = sum(path.lstat().st_size + 4096 for path in tree.rglob("*"))
    size = used + used // 16 + 8 * MIB
    options = ["-q", "-F", "-m", "0", "-O", "^has_journal"]
    completed = command.run(["mkfs.ext4", *options, "-d", tree, image, f"{size // 1024}k"])
    if not completed.ok:
        if "No space left on device" in completed.stderr:
            raise cache.no_room(image.parent)
        raise CommandFailed(completed)
