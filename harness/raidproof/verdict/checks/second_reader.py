"""The verdict on two readings of the same files: by the kernel's NFS client and by libnfs."""

import json
import stat
from collections.abc import Mapping
from typing import Any

from raidproof.core.blame import Blame, Culprit
from raidproof.record.outcome import Outcome, Verdict
from raidproof.verdict.check import Check
from raidproof.verdict.conditions import Conditions
from raidproof.verdict.evidence import CrashTestEvidence, Stage

CHECK = "second reader"
_SHOWN = 3
_MODE, _CONTENT = 0, 3


class SecondReader(Check[CrashTestEvidence]):
    """The kernel's NFS client and libnfs read the same."""

    name = CHECK
    stages = frozenset({Stage.COMPLETE, Stage.BROKEN_OFF})
    rank = 64

    def judge(self, evidence: CrashTestEvidence, conditions: Conditions) -> list[Verdict]:
        """Return a verdict if libnfs read, too."""
        files = evidence.record.files
        if files.by_libnfs is None or files.on_client is None:
            return []
        kernel, libnfs = (json.loads((evidence.run / path).read_text()) for path in (files.on_client, files.by_libnfs))
        again = files.on_server_again
        server = None if again is None else json.loads((evidence.run / again).read_text())
        return [judge_second_reader(kernel, libnfs, server)]


def differing_workers(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the keys of the workers whose files differ between two readings, by `comparable`."""
    return sorted(key for key in one.keys() | other.keys() if comparable(one.get(key)) != comparable(other.get(key)))


def comparable(found: Any) -> Any:
    """Return what two readings of one worker's files have in common, if one of them is a copy on a local file system.

    The entries of a worker that changes directories are left without extended attributes, which libnfs cannot read,
    and directories without size and link count, which depend on the file system.
    """
    if not isinstance(found, dict) or "names" in found:
        return found
    return {
        name: [entry[_MODE], entry[_CONTENT]] if stat.S_ISDIR(entry[_MODE]) else entry[: _CONTENT + 1]
        for name, entry in found.items()
    }


def judge_second_reader(
    kernel: Mapping[str, Any], libnfs: Mapping[str, Any], server: Mapping[str, Any] | None
) -> Verdict:
    """Judge whether the kernel's client and libnfs read the same files from the server.

    ``server``: the files as read on the server at the same time, which decides which client is wrong; None: not read.
    """
    if not (keys := differing_workers(kernel, libnfs)):
        reason = f"libnfs reads the same as the kernel's client: the files of {len(kernel):,} workers"
        return Verdict(checker=CHECK, outcome=Outcome.PASS, reason=reason)
    named = ", ".join(keys[:_SHOWN]) + (f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else "")
    what = f"libnfs and the kernel's client read different files of {named}"
    if server is None:
        return Verdict(checker=CHECK, outcome=Outcome.INCONCLUSIVE, reason=f"{what}; the server's files were not read")
    if wrong := sorted({*keys} & {*differing_workers(kernel, server)} - {*differing_workers(libnfs, server)}):
        reason = f"{what}; the server's file system has what libnfs reads for {', '.join(wrong[:_SHOWN])}"
        return Verdict(checker=CHECK, outcome=Outcome.FAIL, reason=reason, blame=Blame(culprit=Culprit.CLIENT))
    if {*keys} & {*differing_workers(kernel, server)}:
        reason = f"{what}; the server's file system has neither"
        return Verdict(checker=CHECK, outcome=Outcome.FAIL, reason=reason, blame=Blame(culprit=Culprit.SERVER))
    reason = f"{what}; the server's file system has what the kernel's client reads, so libnfs or its requests differ"
    return Verdict(checker=CHECK, outcome=Outcome.INCONCLUSIVE, reason=reason)
