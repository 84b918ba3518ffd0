"""Two sides compared: from the stored records of a real A/B run, and from what they could have been."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.record.cell import CellRecord, Repetition
from raidproof.record.comparison import ComparisonRecord, Pair, PairFinding
from raidproof.record.outcome import Outcome
from raidproof.record.run import RunRecord
from raidproof.verdict.change.comparison import compare, why_nothing_is_compared
from raidproof.verdict.change.difference import Rules, judge_pairs
from raidproof.verdict.run import conclude_run

DATA = Path(__file__).resolve().parents[2] / "data" / "run"
Sides = tuple[RunRecord, RunRecord]


@pytest.fixture
def sides() -> Sides:
    base, new = (RunRecord.model_validate_json((DATA / f"ab-{side}.json").read_text()) for side in ("base", "new"))
    return base, new


BASE = (10.0, 10.2, 10.1, 9.9, 10.0, 10.3)


def times(factor: float, values: Sequence[float] = BASE) -> list[float]:
    return [factor * value for value in values]


def comparable(sides: Sides, base: Sequence[float] = BASE, new: Sequence[float] = tuple(times(2))) -> Sides:
    """Return the sides as they would be on a machine that could keep up, with other figures."""
    for run, values in zip(sides, (base, new), strict=True):
        for cell in run.cells:
            cell.repeats = [
                Repetition(round=number, value=value, limit="disks") for number, value in enumerate(values, start=1)
            ]
        conclude_run(run)
    return sides


def compared(sides: Sides) -> ComparisonRecord:
    return compare(*sides, name="two-ab")


def cell(*values: float, limit: str = "disks") -> CellRecord:
    repeats = [Repetition(round=number, value=value, limit=limit) for number, value in enumerate(values, start=1)]
    return CellRecord(name="a", settings={}, workload={}, unit="iops", asked={}, repeats=repeats, limit=limit)


def test_a_real_run_of_two_kernels(sides: Sides) -> None:
    found = compared(sides)
    assert [(one.machine, one.base, one.new) for one in found.different] == [
        ("server", "6.1.176", "6.12.101"),
        ("client1", "6.1.176", "6.12.101"),
    ]
    assert not found.alike
    assert found.base.asked == {"server": "kernel=debian/bookworm", "client1": "kernel=debian/bookworm"}
    assert [pair.name for pair in found.pairs] == ["export=sync", "export=async"]
    # It was made on a machine too small for it, and says so.
    assert {pair.finding for pair in found.pairs} == {PairFinding.NOT_COMPARABLE}
    assert (found.outcome, found.reason) == (Outcome.INCONCLUSIVE, "2 cells: 2 not comparable")
    assert found.pairs[0].ratio == pytest.approx(1.167, abs=0.001)


def test_what_a_power_cut_cost_stands_on_both_sides(sides: Sides) -> None:
    sync, async_ = compared(sides).cuts
    assert sync.base is not None
    assert sync.new is not None
    assert (sync.base.lost, sync.new.lost) == (0, 0)
    assert async_.base is not None
    assert async_.new is not None
    assert (async_.base.lost_words, async_.new.lost_words) == ("9,602 of 9,602", "2,897 of 2,897")
    assert async_.base.recovery_s is not None


def test_a_cut_that_only_one_side_has_made_is_shown(sides: Sides) -> None:
    base, new = sides
    new.cycles.clear()
    cut = compare(base, new, name="x").cuts[0]
    assert cut.base is not None
    assert cut.new is None


def test_a_comparison_survives_its_file(sides: Sides) -> None:
    found = compared(sides)
    assert ComparisonRecord.model_validate_json(found.model_dump_json()) == found


def judged(base: CellRecord, new: CellRecord, **rules: Any) -> Pair:
    [pair] = judge_pairs([(base, new)], Rules(**rules))
    return pair


@pytest.mark.parametrize(
    ("base", "new", "finding"),
    [
        (BASE, times(1.1), PairFinding.FASTER),
        (BASE, times(0.9), PairFinding.SLOWER),
        (BASE, times(1.005), PairFinding.SAME),
        (BASE, times(1.02), PairFinding.UNDECIDED),
        ((10,), (13, 14), PairFinding.UNDECIDED),
        ((10, 12), (13, 14), PairFinding.UNDECIDED),
        ((10, 12), (), PairFinding.ONE_SIDED),
        ((), (), PairFinding.ONE_SIDED),
        (BASE, (10, 10, 10, 10, 10, 0), PairFinding.NOT_COMPARABLE),
        (BASE * 2, [*times(0.5), *BASE], PairFinding.BIMODAL),
    ],
)
def test_a_finding_for_each_case(base: list[float], new: list[float], finding: PairFinding) -> None:
    pair = judged(cell(*base), cell(*new))
    assert pair.finding is finding
    assert bool(pair.why) is (finding not in {PairFinding.FASTER, PairFinding.SLOWER, PairFinding.SAME})


def test_a_small_certain_change_is_the_same_only_within_the_margin() -> None:
    assert judged(cell(*BASE), cell(*times(0.98)), margin=0.05).finding is PairFinding.SAME
    assert judged(cell(*BASE), cell(*times(0.95)), margin=0.01).finding is PairFinding.SLOWER


def test_a_smaller_latency_is_faster() -> None:
    base, new = cell(*BASE), cell(*times(0.9))
    base.unit = new.unit = "write_lat_us"
    assert judged(base, new).finding is PairFinding.FASTER
    assert judged(new, base).finding is PairFinding.SLOWER


def test_an_undecided_cell_names_the_missing_repetitions() -> None:
    assert judged(cell(10), cell(20)).more == 3
    noisy = judged(cell(9, 11, 10, 12, 8), cell(10, 11, 12, 11, 9.5))
    assert noisy.finding is PairFinding.UNDECIDED
    assert noisy.more is not None
    assert 5 < noisy.more < 100


def test_rounds_that_only_one_side_measured_are_left_out() -> None:
    base, new = cell(*BASE, 99.0), cell(*times(1.1))
    pair = judged(base, new)
    assert pair.change is not None
    assert (pair.change.blocks, len(pair.base.values)) == ([6], 7)


def test_a_bimodal_sample_has_no_mean_and_says_its_groups() -> None:
    pair = judged(cell(*BASE, *BASE), cell(*times(0.5), *BASE))
    assert (pair.ratio, pair.change) == (None, None)
    assert pair.why == "new: 6 values from 4.95 to 5.15, 6 values from 9.9 to 10.3"


def test_more_cells_need_stronger_evidence() -> None:
    one = (cell(*BASE[:5]), cell(*times(1.2, BASE[:5])))
    assert judged(*one).finding is PairFinding.FASTER
    many = judge_pairs([one] + [(cell(*BASE[:5]), cell(*BASE[:5]))] * 23, Rules())
    assert many[0].finding is PairFinding.UNDECIDED
    assert {pair.finding for pair in many[1:]} <= {PairFinding.SAME, PairFinding.UNDECIDED}


FIGURES = st.lists(st.floats(min_value=0.1, max_value=1e6), min_size=2, max_size=6)
SWAPPED = {PairFinding.FASTER: PairFinding.SLOWER, PairFinding.SLOWER: PairFinding.FASTER}


@given(FIGURES, FIGURES)
def test_with_the_sides_swapped_it_shows_the_reverse(base: list[float], new: list[float]) -> None:
    forth, back = (
        judged(*pair, margin=0.0).finding for pair in ((cell(*base), cell(*new)), (cell(*new), cell(*base)))
    )
    assert back is SWAPPED.get(forth, forth)


@given(FIGURES)
def test_equal_figures_never_differ(values: list[float]) -> None:
    assert judged(cell(*values), cell(*values)).finding in {PairFinding.SAME, PairFinding.UNDECIDED}


def test_what_this_machine_limited_on_one_side_is_not_compared() -> None:
    pair = judged(cell(10, 11), cell(20, 21, limit="engine"))
    assert pair.finding is PairFinding.NOT_COMPARABLE
    assert pair.why.startswith("new: limited by the engine of this machine")
    assert judged(cell(10, 11, limit="engine"), cell(20, 21, limit="engine")).why.startswith("both: limited by")


def test_an_async_export_compares_with_itself(sides: Sides) -> None:
    # In a ranking it would stand beside those that keep their promises; here both sides promise nothing.
    found = compared(comparable(sides))
    assert [pair.finding for pair in found.pairs] == [PairFinding.FASTER, PairFinding.FASTER]
    assert (found.outcome, found.reason) == (Outcome.PASS, "2 cells: 2 faster on new")


def test_a_slower_side_is_a_failure(sides: Sides) -> None:
    found = compared(comparable(sides, new=times(0.9)))
    assert (found.outcome, found.reason) == (Outcome.FAIL, "2 cells: 2 slower on new")


def test_a_cell_that_may_be_slower_is_inconclusive(sides: Sides) -> None:
    assert compared(comparable(sides, new=times(0.985))).outcome is Outcome.INCONCLUSIVE


def test_an_undecided_cell_that_is_certainly_not_slower_is_no_hindrance(sides: Sides) -> None:
    found = compared(comparable(sides, new=times(1.02)))
    assert {pair.finding for pair in found.pairs} == {PairFinding.UNDECIDED}
    assert found.outcome is Outcome.PASS


def test_sides_that_run_the_same_were_not_compared(sides: Sides) -> None:
    base, new = comparable(sides)
    assert base.environment is not None
    new.environment = base.environment
    found = compared((base, new))
    assert found.outcome is Outcome.INVALID
    assert "nothing was compared" in found.reason


def test_a_single_package_on_a_single_machine_is_a_difference(sides: Sides) -> None:
    base, new = sides
    assert base.environment is not None
    new.environment = base.environment.model_copy(deep=True)
    new.environment.machines[0].packages["nfs-kernel-server"] = "1:2.9-1"
    assert why_nothing_is_compared(base, new) is None
    [only] = compared(sides).different
    assert (only.machine, only.what, only.new) == ("server", "nfs-kernel-server", "1:2.9-1")


def test_the_same_asked_of_both_is_an_a_a_run(sides: Sides) -> None:
    base, new = comparable(sides, new=BASE)
    new.topology, new.environment = base.topology, base.environment
    found = compared((base, new))
    assert found.alike
    assert (found.outcome, found.reason) == (
        Outcome.PASS,
        "A/A run, both sides have the same software; 2 cells: 2 the same",
    )


def test_an_a_a_run_whose_sides_differ_is_none(sides: Sides) -> None:
    base, new = comparable(sides)
    new.topology = base.topology
    found = compared((base, new))
    assert found.outcome is Outcome.INVALID
    assert "both sides requested the same software, but their effective versions differ" in found.reason


def fail_on_new(run: RunRecord) -> None:
    run.cells[0].repeats = [Repetition(round=1, rig_error="no answer")]


def break_on_new(run: RunRecord) -> None:
    run.cells[0].not_effective = "the server lost what it had promised"


@pytest.mark.parametrize(
    ("happens", "outcome", "said"),
    [(fail_on_new, Outcome.ERROR, "no answer"), (break_on_new, Outcome.FAIL, "lost what it had promised")],
)
def test_the_worse_side_speaks_for_both(
    sides: Sides, happens: Callable[[RunRecord], None], outcome: Outcome, said: str
) -> None:
    base, new = comparable(sides)
    happens(new)
    conclude_run(new)
    found = compared((base, new))
    assert found.outcome is outcome
    assert found.reason.startswith("new: export=sync: ")
    assert said in found.reason
    assert found.pairs[0].base.outcome is Outcome.PASS
    assert found.pairs[1].finding is PairFinding.FASTER


def test_a_cell_that_failed_on_one_side_says_why(sides: Sides) -> None:
    base, new = comparable(sides)
    fail_on_new(new)
    conclude_run(new)
    first = compared((base, new)).pairs[0]
    assert (first.finding, first.why, first.ratio) == (PairFinding.ONE_SIDED, "new: ERROR, no answer", None)
    assert first.base.median == pytest.approx(10.05)


def test_what_was_interrupted_is_an_error_and_keeps_its_figures(sides: Sides) -> None:
    base, new = comparable(sides)
    base.ended_early = new.ended_early = "SIGINT"
    found = compared((base, new))
    assert (found.outcome, found.reason) == (Outcome.ERROR, "ended early: SIGINT")
    assert found.pairs[0].new.median == pytest.approx(20.1)


def test_what_was_interrupted_hides_no_broken_promise(sides: Sides) -> None:
    base, new = comparable(sides)
    break_on_new(new)
    conclude_run(new)
    base.ended_early = new.ended_early = "SIGINT"
    found = compared((base, new))
    assert found.outcome is Outcome.FAIL
    assert found.reason.endswith("lost what it had promised; ended early: SIGINT")


def test_sides_that_never_booted_have_no_versions(sides: Sides) -> None:
    base, new = sides
    base.environment = new.environment = None
    new.cells.clear()
    found = compared((base, new))
    assert found.versions == []
    assert found.base.asked == {"server": "not booted", "client1": "not booted"}
    assert (found.outcome, found.reason) == (Outcome.INCONCLUSIVE, "no cell was measured")
