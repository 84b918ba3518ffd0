from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.errors import RigError
from raidproof.workload.history import Ended, History, Operation, read_replies, write_replies

OPERATION = Operation(0, 0, "fsync", 0, 1, 100, 900, Ended.OK, 0)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    replied = {(3, 70_000): 1 << 60, (0, 0): 1}
    write_replies(tmp_path / "replies", replied)
    assert read_replies(tmp_path / "replies") == replied


def test_half_an_entry_is_refused(tmp_path: Path) -> None:
    (tmp_path / "replies").write_bytes(b"12345")
    with pytest.raises(RigError, match="not a file of reply times"):
        read_replies(tmp_path / "replies")


def test_an_operation_binds_from_the_servers_reply_on() -> None:
    history = History([OPERATION]).with_replies({(0, 0): 500, (1, 0): 7})
    assert [history.operations[0].binds(at) for at in (500, 501, None)] == [False, True, True]
    assert history.operations[0].ended_ns == 900
    assert [OPERATION.binds(at) for at in (900, 901)] == [False, True]


@pytest.mark.parametrize("ended", [Ended.FAILED, Ended.UNKNOWN])
def test_a_reply_does_not_make_a_success(ended: Ended) -> None:
    assert not OPERATION._replace(ended=ended, replied_ns=500).binds()


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3 * 10**9), st.booleans())), st.integers(0, 3 * 10**9))
def test_what_may_have_begun_before_an_instant(begun: list[tuple[int, int, bool]], instant: int) -> None:
    operations = [
        Operation(worker, number, "fsync", 0, 1, at_ns, None, Ended.UNKNOWN, 0, begun_ns=at_ns if stamped else None)
        for number, (worker, at_ns, stamped) in enumerate(begun)
    ]
    mine = [one for one in operations if one.worker == 0]
    before = [one for one in mine if one.earliest_ns < instant]
    assert list(History(operations).begun(0, instant)) == before
    assert list(History(sorted(operations, key=lambda one: one.issued_ns)).begun(0)) == sorted(
        mine, key=lambda one: one.issued_ns
    )
