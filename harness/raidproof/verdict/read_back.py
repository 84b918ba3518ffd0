"""Whether what a client read back came from the server, and not out of the client's own cache."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from raidproof.core.blame import Blame, Culprit
from raidproof.guest.ledger_writer import BLOCK
from raidproof.record.outcome import Outcome, Verdict

ONE_EACH: Mapping[str, int] = MappingProxyType({})


class Least(NamedTuple):
    """What a client must at least have fetched."""

    bytes: int
    calls: int


def least_of(found: dict[str, Any], spans: Mapping[str, int] = ONE_EACH) -> Least:
    """Return what a client must have fetched to find what it found: each block that holds one, and of each file.

    Holes, short files and what stands in names may need no READ; with read-ahead it is more. No READ is of two files.
    ``spans``: of workers that write several blocks into each of their files, how many.
    """
    blocks, files = 0, set()
    for key, one in found.items():
        # Of a worker that changes names there are only its names, d0, d1 and so on.
        if "names" not in one:
            continue
        path, at, _ = key.rpartition("@")
        for place, generation in enumerate(one.get("blocks", one.get("records"))):
            if generation > 0:
                blocks += 1
                # With an @ it is a file block by block, maybe shared with other workers, else a file for each.
                files.add((path, None) if at else (key, place // spans.get(key, 1)))
    return Least(BLOCK * blocks, len(files))


def judge_read_back(counted: dict[str, Any], found: dict[str, Any], spans: Mapping[str, int] = ONE_EACH) -> Verdict:
    """Judge what the client counted while it read, against what it said that it read."""
    client, fetched, calls = counted["client"], counted["bytes"], counted["calls"]
    least = least_of(found, spans)
    said = f"{client} read {least.bytes:,} bytes of {least.calls:,} files and fetched {fetched:,} by {calls:,} READs"
    if fetched < least.bytes or calls < least.calls:
        reason, blame = f"{said}: the rest is out of its own cache", Blame(culprit=Culprit.CLIENT_CACHE)
        return Verdict(checker="read back", outcome=Outcome.FAIL, reason=reason, blame=blame)
    return Verdict(checker="read back", outcome=Outcome.PASS, reason=said)
