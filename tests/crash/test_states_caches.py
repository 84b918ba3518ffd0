"""Which requests are open at a cut: of all members alike."""

from raidproof.crash.states import Caches
from raidproof.disk.writelog import Flag, Kind
from tests.crash.conftest import Did, Record


def rolled(made: Caches, cut: int) -> Caches:
    assert len(list(made.roll(cut))) >= 0
    return made


def test_the_open_requests_of_every_member_count(record: Record) -> None:
    made = record(*(Did(Kind.WRITE, member, offset=4096 * member) for member in (2, 0, 1, 2)), members=3)
    caches = rolled(Caches(made), 4)
    assert (caches.open, caches.count, caches.members) == ((0, 1, 2, 3), 4, [0, 1, 2])


def test_a_flush_is_of_one_member(record: Record) -> None:
    made = record(Did(Kind.WRITE, 0), Did(Kind.WRITE, 1), Did(Kind.FLUSH, 0))
    caches = Caches(made)
    assert list(caches.roll(3)) == [0]
    assert (caches.open, caches.count, caches.members) == ((1,), 1, [1])


def test_forced_writes_of_every_member_are_kept(record: Record) -> None:
    made = record(*(Did(Kind.WRITE, member, byte=member + 1, flags=Flag.FUA) for member in (1, 0)))
    caches = rolled(Caches(made), 2)
    assert (caches.open, caches.kept) == ((), (0, 1))


def test_what_is_in_flight_on_a_member_is_open_there(record: Record) -> None:
    made = record(Did(Kind.WRITE, 0), Did(Kind.FLUSH, 0), Did(Kind.WRITE, 1, took=2))
    caches = rolled(Caches(made), 2)
    assert (caches.open, caches.count, caches.members) == ((2,), 1, [1])
