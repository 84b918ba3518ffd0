import pytest

from raidproof.plan.forecast import ASSUMED_S, CONTROLS, CUT_S, DIRECTED_S, DIRECTED_STATE_S, expect, in_words
from tests.plan.conftest import Make


def test_repeats_and_cuts_take_their_time(make: Make) -> None:
    axes = {"level": [5, 10], "export": ["sync", "async"]}
    once, thrice = (expect(make(axes, run={"repeats": times})) for times in (1, 3))
    assert (once.repetitions, thrice.repetitions) == (4, 12)
    assert thrice.timed_s == 3 * once.timed_s
    assert thrice.overhead_s > once.overhead_s
    assert once.cut_s == 0
    assert expect(make(axes, run={"cut": "power", "states": 0})).cut_s == (CONTROLS + 4) * CUT_S
    with_states = (CONTROLS + 4) * CUT_S + 4 * (DIRECTED_S + 30 * DIRECTED_STATE_S)
    assert expect(make(axes, run={"cut": "power", "states": 30})).cut_s == pytest.approx(with_states)
    assert expect(make(axes, run={"states": 30})).cut_s == 0
    workloads = [{"tool": "dd"}, {"tool": "hdparm"}]
    assert expect(make(axes, run={"cut": "power", "states": 0}, workload=workloads)).cut_s == (CONTROLS + 4) * CUT_S


def test_a_cut_under_nfs_4_0_lasts_longer_by_its_grace_period(make: Make) -> None:
    usual, waiting, longer = (
        expect(make(fixed={"vers": vers, "grace": grace}, run={"cut": "power"})).cut_s
        for vers, grace in (("4.2", 10), ("4.0", 10), ("4.0", 90))
    )
    assert (waiting - usual, longer - usual) == (10, 90)


def test_the_singular_is_used_for_one_repetition(make: Make) -> None:
    assert str(expect(make(run={"repeats": 1}))).startswith("1 repetition, about")
    assert str(expect(make(run={"repeats": 2}))).startswith("2 repetitions, about")


def test_rebuilding_less_takes_less(make: Make) -> None:
    exports = expect(make({"wsize": ["32KiB", "64KiB", "128KiB", "1MiB"]}))
    arrays = expect(make({"chunk": ["32KiB", "64KiB", "128KiB", "1MiB"]}))
    assert exports.overhead_s < arrays.overhead_s


def test_an_unknown_duration_is_assumed_and_reported(make: Make) -> None:
    expected = expect(make(run={"repeats": 1}))
    assert expected.open_ended
    assert expected.timed_s == ASSUMED_S
    assert "the duration of a workload is unknown" in str(expected)
    assert expect(make(run={"repeats": 1, "max_seconds": 60})).timed_s == 60


def test_needs(make: Make) -> None:
    hardware = {"clients": 2, "memory": {"server": "1GiB", "client": "512MiB"}, "disks": {"count": 4}}
    needs = expect(make(hardware=hardware)).needs
    assert needs == "2.0 GiB of memory for the machines, and up to 4.0 GiB for the data on the disks"


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (89, "89 s"), (90, "2 min"), (5399, "1 h 30 min"), (36000, "10 h 00 min")]
)
def test_in_words(seconds: float, words: str) -> None:
    assert in_words(seconds) == words
