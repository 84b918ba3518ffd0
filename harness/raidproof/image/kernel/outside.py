"""Builds modules that are not in Debian's kernels, such as zfs, from Debian's source of them, in a root of the suite.

The root has the suite's compiler, by which the kernel was built. It exists only during the build.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from raidproof.core import command
from raidproof.core.errors import RigError
from raidproof.core.log import step
from raidproof.image import apt
from raidproof.image.build_output import cause_of
from raidproof.image.kernel import initramfs
from raidproof.image.kernel.catalogue import BuiltModules

RECIPE_VERSION = "1"
"""Part of the cache address: increase it when the result of `build` changes."""
FOLDER = "updates"
"""The folder of these modules in the folder of a kernel's modules, as modules_install of kbuild names it."""
BUILD_DEADLINE_S = 5400.0
TOOLS = ("bc", "file", "gawk", "gcc", "kmod", "libc6-dev", "make", "perl", "xz-utils")
"""The packages of the root, in addition to those with the kernel's headers."""
SCRIPT = """\
set -eu
dpkg-deb --extract /source.deb /
cd /usr/src/*/module/..
headers=/lib/modules/$1
./configure --disable-dependency-tracking --with-config=kernel --with-linux="$headers/source" \\
    --with-linux-obj="$headers/build"
make -j"$(nproc)"
mkdir /built
find . -name '*.ko' -exec cp '{}' /built ';'
strip --strip-debug /built/*.ko
tar --create --file /built.tar --directory /built .
"""
"""The script that builds the modules in the root; its argument is the release of the kernel."""


@dataclass(frozen=True)
class Built:
    """Modules that were built for a kernel."""

    folder: Path
    """The folder with the files of the modules."""
    packages: dict[str, str]
    """The versions, by name, of the packages with the source."""


def root_command(suite: str, built: BuiltModules, release: str, source: apt.Source, work: Path) -> list[str]:
    """Return the mmdebstrap command that makes the root, runs `SCRIPT` in it, and copies the result out.

    ``work`` has the files ``apt.conf``, ``source.deb`` and ``build.sh``, and gets the file ``built.tar``.
    """
    return [
        "mmdebstrap",
        f"--mode={'root' if os.geteuid() == 0 else 'unshare'}",
        "--variant=minbase",
        "--format=null",
        "--architectures=amd64",
        f"--include={','.join((built.headers, *TOOLS))}",
        f"--aptopt={work / 'apt.conf'}",
        '--aptopt=Apt::Install-Recommends "false"',
        f"--customize-hook=upload {work / 'source.deb'} /source.deb",
        f"--customize-hook=upload {work / 'build.sh'} /build.sh",
        f'--customize-hook=chroot "$1" sh /build.sh {release}',
        f"--customize-hook=download /built.tar {work / 'built.tar'}",
        suite,
        "-",
        source.line,
    ]


def build(suite: str, built: BuiltModules, release: str, work: Path) -> Built:
    """Build modules for the kernel ``release`` of a Debian suite; ``work`` is a folder that does not exist yet.

    Raises:
        RequirementMissing: this host lacks a program, or Debian's archive keys.
        RigError: the download or the build failed, or the suite's headers are of another release.
    """
    work.mkdir()
    (work / "download").mkdir()
    package = apt.download(suite, [built.source], work / "download", components=[built.component])[built.source]
    version = apt.version(package)
    package.rename(work / "source.deb")
    (work / "build.sh").write_text(SCRIPT)
    (work / "apt.conf").write_text("\n".join(apt.acquire_options()) + "\n")
    step(f"building {built.source} {version} for kernel {release}: this takes some minutes")
    argv = root_command(suite, built, release, apt.source(suite), work)
    if os.geteuid() == 0:
        argv = ["unshare", "--mount", "--propagation", "private", "--", *argv]
    completed = command.follow(argv, lambda _line: None, environment={"LC_ALL": "C"}, deadline_s=BUILD_DEADLINE_S)
    if not completed.ok:
        cause = cause_of(completed.stdout)
        raise RigError(f"{built.source} {version} does not build for kernel {release}: {cause or 'no output'}")
    folder = work / "built"
    folder.mkdir()
    command.succeed(["tar", "--extract", "--file", work / "built.tar", "--directory", folder])
    require_release(folder, release)
    return Built(folder, {built.source: version})


def require_release(folder: Path, release: str) -> None:
    """Check that a folder has modules, and that each is of the kernel's release.

    Raises:
        RigError: a module is of another release, or there is none.
    """
    found = {path.name: initramfs.release_of(path.read_bytes()) for path in sorted(folder.glob("*.ko"))}
    if not found:
        raise RigError(f"the build for kernel {release} made no module")
    if wrong := [f"{name}: {other}" for name, other in found.items() if other != release]:
        raise RigError(f"the modules are not of kernel {release}: {', '.join(wrong)}")
