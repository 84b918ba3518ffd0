"""The verdict that a client read the ledger back from the server, and not from its own cache."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from raidproof.core.blame import Blame, Culprit
from raidproof.guest.ledger_format import BLOCK
from raidproof.record.observation import ReadBack
from raidproof.record.outcome import Outcome, Verdict
from raidproof.verdict.check import Check
from raidproof.verdict.conditions import Conditions
from raidproof.verdict.evidence import ON_CLIENT, CrashTestEvidence, Stage
from raidproof.workload.history import WorkerSpec

NONE: Mapping[str, WorkerSpec] = MappingProxyType({})


class FromServer(Check[CrashTestEvidence]):
    """A client reads the ledger back from the server, and not from its own cache."""

    name = "read back"
    stages = frozenset({Stage.COMPLETE, Stage.BROKEN_OFF})
    rank = 62

    def judge(self, evidence: CrashTestEvidence, conditions: Conditions) -> list[Verdict]:
        """Return a verdict if a client read the ledger, and its calls were counted."""
        counted, scan = evidence.record.observed.read_back, evidence.scan_at(ON_CLIENT)
        if counted is None or scan is None:
            return []
        return [judge_read_back(counted, scan.found, {one.key: one for one in evidence.workers})]


class Least(NamedTuple):
    """The least amount of data that a client with an empty cache must fetch from the server to read the ledger."""

    bytes: int
    calls: int
    """Number of READ calls."""


def least_of(found: Mapping[str, Any], workers: Mapping[str, WorkerSpec] = NONE) -> Least:
    """Return the least amount of data that a client fetches for a scan: all written data, one READ call per file.

    Holes, short files and names may need no READ; read-ahead fetches more data. A READ covers one file only.
    ``found``: the scan. ``workers``: a worker of each key of the scan; without one, each file has one block.
    """
    size, files = 0, set()
    for key, one in found.items():
        # The entry of a worker that changes directories has no "names": its keys are the directories d0, d1 and so on.
        if "names" not in one:
            continue
        path, at, _ = key.rpartition("@")
        worker = workers.get(key)
        for number, generation in enumerate(one.get("blocks") or one.get("records") or ()):
            if generation > 0:
                place = number if worker is None else worker.place_of(number)
                size += worker.pieces[place].size if worker is not None and worker.pieces else BLOCK
                # A key with an @ stands for one file, possibly shared with other workers; any other key for one file
                # for each place.
                files.add((path, None) if at else (key, place))
    return Least(size, len(files))


def judge_read_back(counted: ReadBack, found: Mapping[str, Any], workers: Mapping[str, WorkerSpec] = NONE) -> Verdict:
    """Judge by a client's counters that it fetched the scanned data from the server, and not from its cache."""
    client, fetched, calls = counted.client, counted.bytes, counted.calls
    least = least_of(found, workers)
    counts = (
        f"{client} read {least.bytes:,} bytes of {least.calls:,} files, and fetched {fetched:,} bytes from the server "
        f"by {calls:,} READ calls"
    )
    if fetched < least.bytes or calls < least.calls:
        reason, blame = f"{counts}: the rest came from the client's cache", Blame(culprit=Culprit.CLIENT_CACHE)
        return Verdict(checker="read back", outcome=Outcome.FAIL, reason=reason, blame=blame)
    return Verdict(checker="read back", outcome=Outcome.PASS, reason=counts)
