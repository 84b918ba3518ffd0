import pytest

from raidproof.core.errors import DeadlineExceeded, RigError
from raidproof.core.layer import Machine
from raidproof.workload.workload import empty_caches, on_all, require_ended_well, run_limited
from tests.workload.guest import Guest, said


def test_a_tool_is_limited_in_its_machine_and_speaks_english() -> None:
    guest = Guest()
    run_limited(guest, ["postmark", "x"], 2.5)
    assert guest.ran == [("env", "LC_ALL=C", "timeout", "--kill-after=5", "3", "postmark", "x")]


@pytest.mark.parametrize("status", [124, 137])
def test_a_tool_that_loops_is_named(status: int) -> None:
    guest = Guest(answer=lambda argv: said(argv, "still at it", status=status))
    with pytest.raises(DeadlineExceeded, match=r"client1: postmark was still running after 3 s: still at it"):
        run_limited(guest, ["postmark"], 3)


def len_of_name(machine: Machine) -> int:
    return len(machine.name)


def test_all_answer_by_name_in_their_order() -> None:
    assert on_all([Guest("b"), Guest("a")], lambda machine: machine.name * 2) == {"b": "bb", "a": "aa"}
    assert list(on_all([Guest("b"), Guest("a")], len_of_name)) == ["b", "a"]
    assert on_all([], len_of_name) == {}


def test_one_failure_is_itself_and_several_are_a_group() -> None:
    def fail(machine: Machine) -> None:
        if machine.name != "c":
            raise RigError(machine.name)

    with pytest.raises(RigError, match="a"):
        on_all([Guest("a"), Guest("c")], fail)
    with pytest.raises(ExceptionGroup) as caught:
        on_all([Guest("a"), Guest("b"), Guest("c")], fail)
    assert [str(error) for error in caught.value.exceptions] == ["a", "b"]


def test_dirty_pages_are_written_before_clean_ones_are_forgotten() -> None:
    guest = Guest()
    empty_caches(guest)
    assert guest.programs == ["sync", "sysctl"]


def test_status_0_is_the_only_good_end() -> None:
    assert require_ended_well(said(["x"], "all"), "x") == "all"
    with pytest.raises(RigError, match="client1: x ended with status 1: no room"):
        require_ended_well(said(["x"], stderr="Oh.\nno room\n", status=1), "x")
    with pytest.raises(RigError, match="no output"):
        require_ended_well(said(["x"], status=136), "x")
