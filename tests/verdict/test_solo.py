"""Which operations are solo operations."""

import pytest

from raidproof.guest.ledger_format import PAUSE_STEP
from raidproof.record.observation import SoloSeen
from raidproof.verdict.solo import solo_operations
from raidproof.workload.history import Ended, History, Operation

S = 1_000_000_000
SEEN = SoloSeen(begun_ns=12 * S, ended_ns=15 * S)


def fsync(at_s: float, worker: int = 0, ended: Ended = Ended.OK) -> Operation:
    issued_ns = int(at_s * S) - S // 100
    return Operation(worker, int(at_s * 100), "fsync", 0, 1, issued_ns, int(at_s * S), ended, 0)


def pause(at_s: float, worker: int) -> Operation:
    return fsync(at_s, worker)._replace(kind=PAUSE_STEP)


def test_operations_are_solo_from_the_last_begin_of_a_pause_to_the_end() -> None:
    steps = [pause(12.1, 0), pause(12.3, 1), pause(13.5, 0)]
    solo = [fsync(14.0, 1), fsync(13.0)]
    busy = [fsync(12.2), fsync(13.2, ended=Ended.FAILED), fsync(15.2)]
    assert solo_operations(History([*busy, *solo], steps=steps), SEEN) == [fsync(13.0), fsync(14.0, 1)]


@pytest.mark.parametrize("seen", [None, SoloSeen(begun_ns=12 * S)])
def test_without_an_end_of_their_time_there_are_none(seen: SoloSeen | None) -> None:
    assert solo_operations(History([fsync(13.0)], steps=[pause(12.1, 0)]), seen) == []


def test_without_a_pause_there_are_none() -> None:
    assert solo_operations(History([fsync(13.0)]), SEEN) == []
