"""Builds a kernel of User-mode Linux from a source tree."""

from pathlib import Path

from raidproof.core.errors import RigError


class BuildFailed(RigError):
    """The source tree does not build: its configuration, its compiler or its linker fails."""


def build(tree: Path, fragment: Path | None = None) -> Path:
    """Return the folder of a kernel that is built from a source tree, for `SoftwareSpec.kernel`.

    ``tree`` is a git work tree, or an unpacked source; ``fragment`` a file of options in addition to raidproof's own.

    Raises:
        BuildFailed: the tree does not build.
        RequestError: ``tree`` or ``fragment`` does not exist, or is not what it should be.
        RequirementMissing: this host lacks a program for building a kernel.
        RigError: the cache cannot be used.
    """
    raise BuildFailed(f"{tree} {fragment}: not implemented")
