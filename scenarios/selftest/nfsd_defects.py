"""Builds the kernel's nfsd with a module parameter that selects a defect: a promise that nfsd then breaks.

While the parameter is empty, the module behaves as the original does. Run as a program, this file prints a folder for
``--modules``:

    .venv/bin/python -m scenarios.selftest.nfsd_defects commit-every-8th
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from raidproof.core.errors import RequestError, nearest
from raidproof.image import kernel
from raidproof.image.kernel.rebuild import SourceEdit, Substitution, rebuilt

MODULE = "fs/nfsd/nfsd.ko"
PARAMETER = "/sys/module/nfsd/parameters/defect"
"""The parameter that selects the defect: the name of a defect, or an empty line; writable at any time."""
BROKEN = "/sys/module/nfsd/parameters/broken"
"""The counter of replies of success for which the defect left a step out, since the last write to the counter."""


@dataclass(frozen=True)
class Defect:
    """One defect of nfsd."""

    says: str
    """The wrong behaviour of nfsd before it replies with success, in words."""
    kinds: frozenset[str]
    """The kinds of the ledger's operations that the defect affects."""
    hidden: bool = False
    """Whether only a quiet ledger shows the defect, as flushes of other operations nearly always compensate for it."""


_BY_COMMIT = frozenset({"pages", "unaligned", "copy"})
_BY_STABLE_WRITE = frozenset(
    {"fsync", "fdatasync", "o_sync", "o_dsync", "o_direct", "msync", "o_append", "append", "close"}
)
DEFECTS: Mapping[str, Defect] = {
    "commit-every-8th": Defect("every 8th COMMIT syncs nothing", _BY_COMMIT),
    "commit-noop": Defect("COMMIT syncs nothing", _BY_COMMIT),
    "stable-write-every-8th": Defect("every 8th WRITE that was to be stable is not synced", _BY_STABLE_WRITE),
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
    "clone-no-sync": Defect("CLONE does not sync what it has cloned", frozenset({"clone"}), hidden=True),
}

_INSERTED = """\
#include <linux/module.h>

static char planted_defect[32]%s;
module_param_string(defect, planted_defect, sizeof(planted_defect), 0644);
static unsigned int planted_calls, planted_broken;
module_param_named(broken, planted_broken, uint, 0644);

static bool planted(const char *defect)
{
	if (!sysfs_streq(planted_defect, defect))
		return false;
	planted_broken++;
	return true;
}

static bool planted_8th(const char *defect)
{
	if (!sysfs_streq(planted_defect, defect) || ++planted_calls %% 8)
		return false;
	planted_broken++;
	return true;
}
"""


def _left_out(defect: str, function: str, count: int = 1) -> Substitution:
    """Return the edit after which a function commits no metadata while the defect is selected."""
    return Substitution(function, "commit_metadata(", f'planted("{defect}") ? 0 : commit_metadata(', count)


_SUBSTITUTIONS = (
    Substitution(
        "nfsd_commit",
        "vfs_fsync_range(",
        'planted("commit-noop") || planted_8th("commit-every-8th") ? 0 : vfs_fsync_range(',
    ),
    Substitution("nfsd_vfs_write", "if (stable && !", 'if (stable && !planted_8th("stable-write-every-8th") && !'),
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
    """Return the edit of nfsd's source; ``defect`` is the initial value of the parameter.

    Raises:
        RequestError: no defect has this name.
    """
    if defect and defect not in DEFECTS:
        raise RequestError(f"nfsd has no defect {defect!r}: {nearest(defect, DEFECTS)}")
    initial = f' = "{defect}"' if defect else ""
    return SourceEdit("fs/nfsd/vfs.c", _INSERTED % initial, _SUBSTITUTIONS)


def defective_nfsd(defect: str = "", name: str = kernel.DEFAULT) -> Path:
    """Return a folder with this nfsd, as modules of provider ``uml``; build the module if the folder does not exist.

    Raises:
        RequestError: no defect or no kernel has this name.
        RequirementMissing, RigError: this host cannot build the module.
    """
    return rebuilt(name, MODULE, edit(defect))


if __name__ == "__main__":
    sys.stdout.write(f"{defective_nfsd(*sys.argv[1:2])}\n")
