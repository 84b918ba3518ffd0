"""Whether the clients sent the calls on which each promise rests: what was never sent was never tested."""

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from raidproof.record.outcome import Outcome, Verdict
from raidproof.verdict.contract import PROMISES

Calls = Mapping[str, Mapping[str, int]]
"""How often each client sent each operation while the ledger ran, by the names of /proc/self/mountstats."""

WRITE = frozenset({"WRITE"})
_CALLS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "pages": frozenset({"WRITE", "COMMIT"}),
        "unaligned": frozenset({"WRITE", "COMMIT"}),
        "o_append": frozenset({"WRITE", "LOCK"}),
        "mkdir": frozenset({"CREATE"}),
        "create": frozenset({"OPEN"}),
        "setattr": frozenset({"SETATTR"}),
        "setxattr": frozenset({"SETXATTR"}),
        "link": frozenset({"LINK"}),
        "symlink": frozenset({"SYMLINK"}),
        "rename": frozenset({"RENAME"}),
        "replace": frozenset({"RENAME"}),
        "truncate": frozenset({"SETATTR"}),
        "remove": frozenset({"REMOVE"}),
        "unlink": frozenset({"REMOVE"}),
        "rmdir": frozenset({"REMOVE"}),
        "allocate": frozenset({"ALLOCATE"}),
        "punch": frozenset({"DEALLOCATE"}),
        "copy": frozenset({"COPY"}),
        "clone": frozenset({"CLONE"}),
    }
)
"""Of NFSv4, by the names of its client (nfs4_procedures in fs/nfs/nfs4xdr.c); what is not here needs a WRITE."""
_CALLS_3: Mapping[str, frozenset[str]] = MappingProxyType(
    {"mkdir": frozenset({"MKDIR"}), "create": frozenset({"CREATE"}), "rmdir": frozenset({"RMDIR"})}
)


def calls_of(kind: str, mount: Mapping[str, Any]) -> frozenset[str]:
    """Return the calls that an operation of a kind needs on a mount, as a record has its specification.

    On a ``sync`` mount each WRITE is stable by itself.
    """
    calls = (_CALLS_3 if mount.get("vers") == "3" else {}).get(kind) or _CALLS.get(kind, WRITE)
    return calls - {"COMMIT"} if mount.get("sync") or mount.get("noac") else calls


def total(calls: Calls) -> Counter[str]:
    """Return how often all clients together sent each call."""
    counted: Counter[str] = Counter()
    for mine in calls.values():
        counted.update(mine)
    return counted


def judge_calls(kinds: Iterable[str], calls: Calls, mount: Mapping[str, Any]) -> list[Verdict]:
    """Judge each kind of operation that was acknowledged by the calls that it needs: without one it proves nothing."""
    sent, verdicts = total(calls), []
    for kind in kinds:
        needed = calls_of(kind, mount)
        if missing := sorted(name for name in needed if not sent[name]):
            reason = f"no client sent a {' or a '.join(missing)}: the server was never to keep this promise"
            verdicts.append(
                Verdict(checker=f"{PROMISES[kind]}, on the wire", outcome=Outcome.INCONCLUSIVE, reason=reason)
            )
    if not verdicts:
        counted = ", ".join(f"{count:,} {name}" for name, count in sorted(sent.items()) if count)
        verdicts.append(Verdict(checker="calls on the wire", outcome=Outcome.PASS, reason=counted))
    return verdicts
