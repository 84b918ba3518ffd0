"""The data of acknowledged operations are found in a made-up write log."""

from pathlib import Path

from raidproof.disk.cache import CacheMode
from raidproof.disk.writelog import Flag, Kind, LogWriter, MemberInfo, WriteLog
from raidproof.guest.ledger_format import BLOCK, block
from raidproof.verdict.durability import Copy, Flush, Needed, needed_of, requests_of
from raidproof.workload.history import Ended, History, Operation, WorkerSpec

WORKER = WorkerSpec(number=0, client="client1", kind="fsync", path="w", file=7, blocks=16)


def test_a_write_log_is_read_up_to_its_cut(tmp_path: Path) -> None:
    infos = [MemberInfo(f"disk{number}", 1 << 20, CacheMode.VOLATILE, CacheMode.VOLATILE) for number in range(2)]
    log = LogWriter(tmp_path / "write.log", infos, 0, blank=True)
    data = {generation: block(WORKER.file, 3 * BLOCK, generation, 1) for generation in (1, 2)}
    log.write(0, 0, 0, (10, 20), data[1])
    log.write(0, 0, 0, (21, 22), data[1])  # the same once more
    log.write(Flag.FUA, 1, 4096, (23, 25), data[1])
    log.write(Flag.IN_FLIGHT, 0, 0, (24, 0), data[2])
    log.note(Kind.FLUSH, 0, 0, (0, 0), (30, 40))
    log.note(Kind.FLUSH, Flag.LIED, 1, (0, 0), (30, 41))
    log.note(Kind.FREEZE, 0, 0xFFFF, (0, 0), (90, 90))
    log.write(0, 0, 0, (91, 92), data[2])
    log.close(100)
    requests = requests_of(WriteLog(tmp_path / "write.log"))
    assert requests.copies == {((7, 3 * BLOCK), 1): [Copy(0, 20, fua=False), Copy(1, 25, fua=True)]}
    assert (requests.flushes, requests.end_ns, requests.lied) == ({0: [Flush(30, 40)]}, 90, True)
    assert [(one.member, one.issued_ns, one.done_ns, one.fua) for one in requests.writes] == [
        (0, 10, 20, False),
        (0, 21, 22, False),
        (1, 23, 25, True),
    ]
    assert len({one.digest for one in requests.writes}) == 1
    done = [
        Operation(0, number, "fsync", place, 1, 5, at, Ended.OK, 0)
        for number, (place, at) in enumerate([(3, 50), (4, 51), (3, 95)])
    ]
    assert needed_of(requests, History(done), [WORKER]) == {done[0]: [Needed(50, requests.copies[(7, 3 * BLOCK), 1])]}
    # Changes of names, and blocks that begin elsewhere, cannot be found.
    assert needed_of(requests, History([done[0]._replace(kind="unaligned")]), [WORKER]) == {}
    assert needed_of(requests, History([done[0]._replace(worker=1)]), [WORKER]) == {}
