"""Builds a kernel of User-mode Linux from a source tree; the result is named by the tree's content and the options."""

import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from raidproof.core import command
from raidproof.core.command import Completed
from raidproof.core.errors import RequestError, RigError
from raidproof.core.log import step
from raidproof.core.waiting import Deadline
from raidproof.image import cache
from raidproof.image.build_output import cause_of
from raidproof.image.kernel import fragment as fragments
from raidproof.image.kernel import initramfs, own, rebuild
from raidproof.image.kernel import tree as trees
from raidproof.image.kernel.fragment import Option
from raidproof.image.kernel.tree import SourceTree

RECIPE_VERSION = "1"
"""Part of the name of a built kernel: increase it when the result of `_build` changes."""
BUILD_DEADLINE_S = 3600.0
PROGRESS_S = 10.0
"""Seconds between two messages about the progress of a build."""
OBJECTS_KEPT = 4
"""How many folders with object files the cache keeps for incremental builds: about 200 MB each."""
LOG = "build.log"
CONFIG = "requested.config"
ENVIRONMENT = {
    "LC_ALL": "C",
    "MAKEFLAGS": "",
    # Equal sources give equal kernels; the release, not the date, distinguishes two builds.
    "KBUILD_BUILD_TIMESTAMP": "1970-01-01",
    "KBUILD_BUILD_VERSION": "1",
    "KBUILD_BUILD_USER": "raidproof",
    "KBUILD_BUILD_HOST": "raidproof",
}
_STEP = re.compile(r"^  [A-Z][A-Z0-9 ]{0,7} {2,}\S| \[M\] ")


class BuildFailed(RigError):
    """The source tree does not build: its configuration, its compiler or its linker fails."""


def build(tree: Path, fragment: Path | None = None) -> Path:
    """Return the folder of a kernel that is built from a source tree, for `SoftwareSpec.kernel`.

    ``tree`` is a git work tree, an unpacked source, a tar archive of it, or a name such as ``debian/trixie``, which
    means Debian's source of the suite. ``fragment`` is a file of options in addition to raidproof's own
    (vms/kernel.config). The build is incremental. If tree and options are those of an earlier build, nothing is built.

    Raises:
        BuildFailed: the tree does not build, or a requested option has no effect.
        RequestError: ``tree`` or ``fragment`` does not exist, or is malformed.
        RequirementMissing: this host lacks a program for building a kernel.
        RigError: the source cannot be fetched, or the cache cannot be used.
    """
    options = fragments.requested(fragment)
    source = trees.read(trees.located(tree))
    rebuild.require_tools()
    config = cache.digest(RECIPE_VERSION, fragments.text_of(options), _compiler())[:8]
    return cache.build("built", f"{source.name}-{config}", lambda partial: _build(source, options, config, partial))


def _compiler() -> str:
    return command.succeed(["gcc", "--version"]).splitlines()[0]


def _build(source: SourceTree, options: Sequence[Option], config: str, partial: Path) -> None:
    address = cache.digest(str(source.path), config)
    with cache.locked("objects", address):
        objects = cache.place("objects", address)
        objects.mkdir(parents=True, exist_ok=True)
        os.utime(objects)
        cache.trim("objects", OBJECTS_KEPT)
        (objects / LOG).unlink(missing_ok=True)
        step(f"configuring kernel {source.name}")
        (objects / CONFIG).write_text(fragments.text_of(options))
        _make(source, objects, [f"KCONFIG_ALLCONFIG={objects / CONFIG}", "allnoconfig"])
        if wrong := fragments.without_effect(options, (objects / ".config").read_text(), source.path):
            raise BuildFailed(
                f"kernel {source.name}: {len(wrong)} of {len(options)} options have no effect: {'; '.join(wrong)}",
                remedy="add the options on which they depend to the file of --config, or request another value there",
            )
        step(f"building kernel {source.name} (log: {objects / LOG})")
        words = [f"LOCALVERSION=-{source.identity}-{config}"]
        _make(source, objects, [*words, "all"])
        _make(source, objects, [*words, f"INSTALL_MOD_PATH={partial}", "modules_install"])
        if trees.read(source.path) != source:
            raise BuildFailed(
                f"{source.path} changed during the build", remedy="repeat the build when no program writes to the tree"
            )
        release = (objects / "include/config/kernel.release").read_text().strip()
        shutil.copy(objects / "linux", partial / "linux")
        shutil.copy(objects / ".config", partial / "config")
    _finish(source, release, partial)


def _finish(source: SourceTree, release: str, partial: Path) -> None:
    """Check the modules of a built kernel, and write the image of its modules and its description."""
    modules = partial / "lib" / "modules"
    for link in ("build", "source"):
        (modules / release / link).unlink(missing_ok=True)
    try:
        own.require_modules(source.name, partial / "linux", modules / release, release)
    except RequestError as error:
        raise BuildFailed(str(error)) from error
    initramfs.make_image(modules, partial / "modules.ext4")
    described = {"release": release, "source": str(source.path), "version": source.version, "content": source.identity}
    (partial / own.DESCRIPTION).write_text(json.dumps(described))


def _make(source: SourceTree, objects: Path, words: Sequence[str]) -> None:
    """Run make(1) for a source tree, and add its output to the log in the folder of the object files."""
    compiler = "ccache gcc" if shutil.which("ccache") else "gcc"
    argv = [
        "make",
        f"-j{command.processors()}",
        "-C",
        str(source.path),
        f"O={objects}",
        "ARCH=um",
        "CROSS_COMPILE=",
        f"CC={compiler}",
        *words,
    ]
    done, quiet = 0, Deadline.after(PROGRESS_S)
    with (objects / LOG).open("a") as log:

        def on_line(line: str) -> None:
            nonlocal done, quiet
            print(line, file=log)
            done += _STEP.match(line) is not None
            if quiet.passed:
                quiet = Deadline.after(PROGRESS_S)
                step(f"building kernel {source.name}: {done} steps of make done")

        completed = command.follow(argv, on_line, environment=ENVIRONMENT, deadline_s=BUILD_DEADLINE_S)
    if not completed.ok:
        raise explain(completed, source, objects)


def explain(completed: Completed, source: SourceTree, objects: Path) -> RigError:
    """Return the error for a failed make(1), with the line of its output that names the cause."""
    if "No space left on device" in completed.stdout:
        return cache.no_room(objects)
    cause = cause_of(completed.stdout, f"{source.path}/") or f"make ended with status {completed.status}"
    if "not clean" in cause:
        return BuildFailed(
            f"{source.path} contains the results of a build, so that kernel {source.name} cannot be built elsewhere",
            remedy=f"remove them: make -C {source.path} ARCH=um mrproper",
        )
    return BuildFailed(f"kernel {source.name} does not build: {cause}", remedy=f"log: {objects / LOG}")
