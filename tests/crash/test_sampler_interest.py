import pytest

from raidproof.crash.sampler import AT_RISK, BEFORE_DURABLE, FRESH, METADATA, SEVERAL_MEMBERS, Interest
from raidproof.disk.writelog import Flag, Kind, Records
from raidproof.guest.ledger_format import HEADER, MAGIC
from tests.crash.conftest import Did, Record

PLAIN, FORCED, FLUSH = Did(Kind.WRITE), Did(Kind.WRITE, offset=8192, flags=int(Flag.FUA)), Did(Kind.FLUSH)
OTHER = Did(Kind.WRITE, 1)


@pytest.mark.parametrize(
    ("done", "replies", "cut", "weight"),
    [
        ([PLAIN, FLUSH, PLAIN], [], 2, METADATA),
        # The first write is durable, the second is in flight.
        ([PLAIN, FLUSH, PLAIN, PLAIN], [1500], 3, METADATA),
        ([PLAIN, FLUSH, PLAIN, PLAIN], [3500], 3, METADATA * AT_RISK * FRESH),
        ([PLAIN, FLUSH, PLAIN, PLAIN], [2500], 3, METADATA * FRESH),
        ([PLAIN, FLUSH], [], 1, METADATA * BEFORE_DURABLE),
        ([PLAIN, FORCED], [], 1, METADATA * BEFORE_DURABLE),
        ([PLAIN, OTHER], [], 1, METADATA * SEVERAL_MEMBERS),
        ([PLAIN, FLUSH], [], 2, 1),
        ([PLAIN, FLUSH], [1999], 2, 1),
        ([PLAIN, FLUSH, FLUSH], [2500], 2, FRESH * BEFORE_DURABLE),
    ],
)
def test_what_makes_a_cut_interesting(
    record: Record, done: list[Did], replies: list[int], cut: int, weight: int
) -> None:
    assert Interest(record(*done), replies).weights([cut]) == {cut: weight}


def test_the_content_of_files_is_no_metadata(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    made = record(PLAIN)
    block = (MAGIC + bytes(HEADER.size)).ljust(4096, b"\0")
    content = made.records[0]._replace(source=block)
    monkeypatch.setattr(made, "records", Records(made.log, [content]))
    assert Interest(made, []).weights([1]) == {1: 1}
