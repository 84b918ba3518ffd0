"""Write logs in which a disk lies, and what of the losses after it the lie explains."""

from collections.abc import Collection
from pathlib import Path

import pytest

from raidproof.disk.cache import CacheMode
from raidproof.disk.writelog import ALL_MEMBERS, Flag, Kind, MemberInfo, Record, WriteLog, pack_kept
from raidproof.guest.ledger_format import BLOCK, block
from raidproof.verdict.balance import Loss
from raidproof.verdict.blame import BEGUN_LATE_NS, Lies, Lost, read_lies
from raidproof.verdict.conditions import Conditions, blamed
from raidproof.workload.history import Ended, Operation, WorkerSpec
from tests.crash.conftest import Did, write_log

FILE = WorkerSpec(number=0, client="client1", kind="fsync", path="f", file=3, blocks=4)
NAMES = WorkerSpec(number=1, client="client1", kind="metadata", path="m", file=4)
INFOS = [MemberInfo(f"disk{number}", 1 << 18, CacheMode.VOLATILE, CacheMode.VOLATILE) for number in range(2)]
LIED = int(Flag.LIED)
MS = 10**6


class Log:
    """Requests that complete 1 ms apart, each issued half a millisecond before."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def add(self, kind: Kind, member: int, flags: int = 0, data: bytes = b"", offset: int = 0) -> int:
        at = (len(self.records) + 1) * MS
        flag = Flag(flags)
        record = Record(len(self.records), kind, flag, member, offset, len(data), at - MS // 2, at, data)
        self.records.append(record)
        return len(self.records) - 1

    def write(self, member: int, place: int, generation: int = 1, flags: int = 0, at: int = 0) -> int:
        """Write a block of the file, with something else before it."""
        data = bytes(BLOCK) + block(FILE.file, place * BLOCK, generation, 7)
        return self.add(Kind.WRITE, member, flags, data, at * BLOCK)

    def lost(self, cut: int | None = None, kept: Collection[int] = ()) -> Lost:
        lies = Lies(self.records, INFOS)
        lies.go(len(self.records) if cut is None else cut)
        return lies.lost(kept)


def did(place: int, generation: int = 1, begun_ms: int = 0, worker: WorkerSpec = FILE) -> Operation:
    kind = "mkdir" if worker is NAMES else "fsync"
    return Operation(worker.number, 0, kind, place, generation, begun_ms * MS, begun_ms * MS + MS, Ended.OK, 0)


@pytest.fixture
def log() -> Log:
    return Log()


def test_a_lie_covers_what_had_reached_that_disk_by_then(log: Log) -> None:
    log.write(0, place=0)
    log.add(Kind.FLUSH, 0, LIED)
    log.write(0, place=1)
    lost = log.lost()
    assert lost.disks == ("disk0",)
    assert lost.explains(did(0), FILE)
    assert not lost.explains(did(1), FILE)


def test_a_lie_covers_a_block_at_any_block_of_a_file_system_with_small_blocks(log: Log) -> None:
    data = bytes(1024) + block(FILE.file, 0, 1, 7)[:2048]
    log.add(Kind.WRITE, 0, 0, data)
    log.add(Kind.FLUSH, 0, LIED)
    assert log.lost().explains(did(0), FILE)


def test_what_a_lie_has_made_durable_all_the_same_it_does_not_explain(log: Log) -> None:
    kept, left = log.write(0, place=0), log.write(0, place=1)
    log.add(Kind.FLUSH, 0, LIED, pack_kept([kept]))
    lost = log.lost()
    assert lost.disks == ("disk0",)
    assert lost.explains(did(1), FILE)
    log.add(Kind.FLUSH, 0, LIED, pack_kept([left]))
    assert log.lost().disks == ()


def test_another_disk_without_a_flush_is_no_lie(log: Log) -> None:
    log.write(0, place=0)
    log.write(1, place=1)
    log.add(Kind.FLUSH, 0, LIED)
    lost = log.lost()
    assert lost.disks == ("disk0",)
    assert not lost.explains(did(1), FILE)


def test_what_reached_no_disk_is_lost_by_somebody_else(log: Log) -> None:
    log.write(0, place=0, generation=1)
    log.add(Kind.FLUSH, 0, LIED)
    assert log.lost().explains(did(0, generation=1), FILE)
    assert not log.lost().explains(did(0, generation=2), FILE)
    assert not log.lost().explains(did(2), FILE)
    assert not log.lost().explains(did(0), FILE.model_copy(update={"file": 9}))


def test_an_honest_flush_makes_an_earlier_lie_good(log: Log) -> None:
    log.write(0, place=0)
    log.add(Kind.FLUSH, 0, LIED)
    assert log.lost().disks == ("disk0",)
    log.add(Kind.FLUSH, 0)
    log.write(0, place=1)
    assert log.lost().disks == ()
    assert not log.lost().explains(did(1), FILE)
    assert log.lost(cut=2).explains(did(0), FILE)


def test_what_survived_was_not_lost(log: Log) -> None:
    request = log.write(0, place=0)
    log.add(Kind.FLUSH, 0, LIED)
    assert log.lost(kept=[request]).disks == ()


def test_a_forced_write_may_be_a_lie_itself(log: Log) -> None:
    log.write(0, place=0, flags=LIED | int(Flag.FUA))
    assert log.lost().explains(did(0), FILE)
    log.write(1, place=1, flags=int(Flag.FUA))
    assert log.lost().disks == ("disk0",)


def test_a_block_that_is_there_may_be_missing_for_what_leads_to_it(log: Log) -> None:
    log.write(1, place=0)
    log.add(Kind.FLUSH, 1)
    log.write(0, place=1, at=9)
    log.add(Kind.FLUSH, 0, LIED)
    assert log.lost().explains(did(0), FILE)


def test_a_block_that_survived_may_be_missing_for_what_leads_to_it(log: Log) -> None:
    request = log.write(0, place=0)
    log.write(0, place=1, at=9)
    log.add(Kind.FLUSH, 0, LIED)
    assert log.lost(kept=[request]).explains(did(0), FILE)


def test_an_operation_of_several_blocks_needs_all_of_them(log: Log) -> None:
    pages = FILE.model_copy(update={"kind": "pages", "span": 2})
    done = did(1)._replace(kind="pages")
    log.write(0, place=9)
    log.add(Kind.FLUSH, 0, LIED)
    log.write(1, place=2, flags=int(Flag.FUA))
    assert not log.lost().explains(done, pages)
    log.write(1, place=3, flags=int(Flag.FUA))
    assert log.lost().explains(done, pages)
    log.write(0, place=0)
    log.write(0, place=1)
    assert not log.lost().explains(done._replace(place=0), pages)
    log.add(Kind.FLUSH, 0, LIED)
    assert log.lost().explains(done._replace(place=0), pages)


def test_a_lie_explains_no_change_that_was_begun_long_after_it(log: Log) -> None:
    log.write(0, place=0)
    log.add(Kind.FLUSH, 0, LIED)
    late_ms = BEGUN_LATE_NS // MS
    assert log.lost().explains(did(0, begun_ms=late_ms + 1, worker=NAMES), NAMES)
    assert not log.lost().explains(did(0, begun_ms=late_ms + 3, worker=NAMES), NAMES)


def test_going_back_begins_anew(log: Log) -> None:
    log.write(0, place=0)
    log.add(Kind.FLUSH, 0, LIED)
    log.add(Kind.FLUSH, 0)
    lies = Lies(log.records, INFOS)
    for cut, disks in ((3, ()), (2, ("disk0",)), (1, ()), (3, ())):
        lies.go(cut)
        assert lies.lost().disks == disks


@pytest.mark.parametrize(
    ("sync", "places", "blames"),
    [(True, [0], True), (True, [0, 1], False), (False, [0, 1], True), (False, [1], False)],
)
def test_one_loss_that_no_lie_explains_is_the_stacks(log: Log, sync: bool, places: list[int], blames: bool) -> None:
    log.write(0, place=0)
    log.add(Kind.FLUSH, 0, LIED)
    losses = [Loss(did(place), FILE, "the block is missing") for place in places]
    found = blamed(Conditions(export_sync=sync, lying_disks=("disk0",)), losses, log.lost())
    assert found.lying_disks == (("disk0",) if blames else ())


def test_what_is_no_loss_of_the_ledger_is_blamed_on_disks_that_lost_something(log: Log) -> None:
    log.write(0, place=0)
    log.add(Kind.FLUSH, 0, LIED)
    conditions = Conditions(export_sync=True)
    assert blamed(conditions, [], log.lost()).lying_disks == ("disk0",)
    assert blamed(conditions, [], log.lost(kept=[0])).lying_disks == ()


def test_a_stored_log_is_read_up_to_its_cut(tmp_path: Path) -> None:
    done = [Did(Kind.WRITE), Did(Kind.FLUSH, flags=LIED), Did(Kind.FREEZE), Did(Kind.FLUSH)]
    write_log(tmp_path / "write.log", done)
    lies = read_lies(WriteLog(tmp_path / "write.log"))
    assert (len(lies.records), lies.lied, lies.lost().disks) == (2, True, ("disk0",))


@pytest.mark.parametrize(("member", "lying"), [(0, ("disk1",)), (1, ("disk0",)), (ALL_MEMBERS, ())])
def test_a_mode_that_loses_nothing_holds_for_the_disks_that_it_is_set_for(
    log: Log, member: int, lying: tuple[str, ...]
) -> None:
    for place in range(2):
        log.write(place, place)
        log.add(Kind.FLUSH, place, LIED)
    log.add(Kind.MODE, member, data=CacheMode.PROTECTED.value.encode())
    assert log.lost().disks == lying


def test_in_a_mode_that_loses_nothing_nothing_is_lost(tmp_path: Path) -> None:
    done = [Did(Kind.WRITE), Did(Kind.FLUSH, flags=LIED), Did(Kind.MODE, mode=CacheMode.PROTECTED)]
    write_log(tmp_path / "write.log", done)
    assert read_lies(WriteLog(tmp_path / "write.log")).lost().disks == ()
