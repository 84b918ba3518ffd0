"""The ledger of scenarios whose subject is not what clients change: data by each way of writing, and one other group.

A crash test with all kinds of worker needs half of its processor time for those that change names, extents and locks.
Scenarios about file systems, NFS and users have all kinds. Each other scenario has one of `GROUPS`.
"""

from zlib import crc32

from raidproof.workload.ledger import KINDS, LedgerSpec

FOLDERS = frozenset({"array", "crash", "faults", "stack"})
"""The folders of the scenarios that take turns."""
DATA = ("fsync", "fdatasync", "o_sync", "o_dsync", "o_direct", "msync", "close", "pages", "shared", "o_append")
"""The kinds of worker of each scenario."""
GROUPS = (
    ("metadata", "metadata", "metadata", "unaligned"),
    ("extents", "extents", "extents", "sizes"),
    ("names", "names", "names", "removed", "locks", "listing"),
)
"""The kinds of worker of which a scenario has one group."""


def ledger_of(name: str) -> LedgerSpec:
    """Return the ledger of the scenario with this name (pytest's node id), the same at each call."""
    folder = name.partition("::")[0].split("/")[-2]
    if folder not in FOLDERS:
        return LedgerSpec()
    chosen = DATA + GROUPS[crc32(name.encode()) % len(GROUPS)]
    return LedgerSpec(kinds=tuple(sorted(chosen, key=KINDS.index)))
