"""Builds nfsd with a module parameter that selects a defect, by which nfsd breaks one of its promises.

While the parameter is empty, the module behaves as the original. Run as a program, this file builds the module and
prints the folder for raidproof's option ``--modules``:

    .venv/bin/python -m scenarios.selftest.nfsd_defects commit-every-8th
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from raidproof.core.errors import RequestError, nearest
from raidproof.image import kernel
from raidproof.image.kernel.rebuild import SourceEdit, Substitution, rebuilt
from scenarios.selftest.planted_source import inserted

MODULE = "fs/nfsd/nfsd.ko"
NFSD = "nfsd"
"""Name of the module, as in /sys/module."""


@dataclass(frozen=True)
class Defect:
    """One defect of nfsd, and the operations of the ledger that must show the defect."""

    says: str
    """The wrong behaviour of nfsd before a reply of success, as a sentence."""
    kinds: frozenset[str]
    """The kinds of the ledger's operations that the defect affects."""
    hidden: bool = False
    """Whether only a quiet ledger shows the defect, as flushes of other operations nearly always hide its effect."""


_BY_COMMIT = frozenset({"pages", "unaligned", "copy"})
_BY_STABLE_WRITE = frozenset(
    {"fsync", "fdatasync", "o_sync", "o_dsync", "o_direct", "msync", "o_append", "append", "close"}
)
DEFECTS: Mapping[str, Defect] = {
    "commit-every-8th": Defect("every 8th COMMIT syncs nothing", _BY_COMMIT),
    "commit-noop": Defect("COMMIT syncs nothing", _BY_COMMIT),
    "stable-write-every-8th": Defect(
        "every 8th WRITE with stable_how FILE_SYNC or DATA_SYNC is not synced", _BY_STABLE_WRITE
    ),
    "stable-write-large": Defect(
        "a WRITE of at least 64 KiB with stable_how FILE_SYNC or DATA_SYNC is not synced",
        (_BY_STABLE_WRITE | {"o_direct_sync"}) - {"append", "o_append"},
    ),
    "link-no-commit": Defect("LINK does not commit its metadata", frozenset({"link"})),
    "rename-no-commit": Defect("RENAME does not commit its metadata", frozenset({"rename", "replace"})),
    "remove-no-commit": Defect(
        "REMOVE, of a file or a directory, does not commit its metadata", frozenset({"remove", "unlink", "rmdir"})
    ),
    "setattr-no-commit": Defect("SETATTR does not commit its metadata", frozenset({"setattr", "truncate", "create"})),
    "create-no-commit": Defect(
        "CREATE, MKDIR and SYMLINK do not commit their metadata", frozenset({"mkdir", "create", "symlink"})
    ),
    "allocate-no-commit": Defect(
        "ALLOCATE and DEALLOCATE do not commit their metadata", frozenset({"allocate", "punch"}), hidden=True
    ),
    "clone-no-sync": Defect("CLONE does not sync the cloned data", frozenset({"clone"}), hidden=True),
}


def _left_out(defect: str, function: str, count: int = 1) -> Substitution:
    """Return an edit of nfsd: while ``defect`` is selected, ``function`` does not commit its metadata.

    ``count`` is the number of calls to replace in the function.
    """
    return Substitution(function, "commit_metadata(", f'planted("{defect}") ? 0 : commit_metadata(', count)


_SUBSTITUTIONS = (
    Substitution(
        "nfsd_commit",
        "vfs_fsync_range(",
        'planted("commit-noop") || planted_nth("commit-every-8th", 8) ? 0 : vfs_fsync_range(',
    ),
    Substitution(
        "nfsd_vfs_write",
        "if (stable && !",
        'if (stable && !planted_nth("stable-write-every-8th", 8)'
        ' && !(*cnt >= 65536 && planted("stable-write-large")) && !',
    ),
    _left_out("link-no-commit", "nfsd_link", 2),
    _left_out("rename-no-commit", "nfsd_rename", 2),
    _left_out("remove-no-commit", "nfsd_unlink"),
    _left_out("setattr-no-commit", "nfsd_setattr"),
    _left_out("create-no-commit", "nfsd_create_setattr", 2),
    _left_out("create-no-commit", "nfsd_symlink"),
    _left_out("allocate-no-commit", "nfsd4_vfs_fallocate"),
    Substitution("nfsd4_clone_file_range", "if (sync) {", 'if (sync && !planted("clone-no-sync")) {'),
)


def edit(defect: str = "") -> SourceEdit:
    """Return the edit of nfsd's source that inserts all defects; ``defect`` is the parameter's initial value.

    Raises:
        RequestError: no defect has this name.
    """
    if defect and defect not in DEFECTS:
        raise RequestError(f"nfsd has no defect {defect!r}: {nearest(defect, DEFECTS)}")
    return SourceEdit("fs/nfsd/vfs.c", inserted(defect), _SUBSTITUTIONS)


def defective_nfsd(defect: str = "", name: str = kernel.DEFAULT) -> Path:
    """Return the folder with nfsd and its defects, for ``--modules`` of provider ``uml``; build the module if needed.

    ``defect`` is the parameter's initial value, ``name`` the kernel.

    Raises:
        RequestError: no defect is named ``defect``, or no kernel ``name``.
        RequirementMissing, RigError: this host cannot build the module.
    """
    return rebuilt(name, MODULE, edit(defect))


if __name__ == "__main__":
    sys.stdout.write(f"{defective_nfsd(*sys.argv[1:2])}\n")
