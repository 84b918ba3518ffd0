"""Two stored runs: cells matched by what their plans share, and values that were not measured in turn."""

from datetime import date

import pytest

from raidproof.record.cell import CellRecord, Repetition
from raidproof.record.comparison import ComparisonRecord, PairFinding
from raidproof.record.known import KnownDifference, KnownKind, KnownRecord, KnownState
from raidproof.record.outcome import Outcome, Verdict
from raidproof.record.run import RunRecord
from raidproof.record.worker import WorkerRecord
from raidproof.verdict.change.matching import NO_PARTNER, OTHER_VALUE, SEVERAL, compare_stored, match
from tests.stored_runs import ASYNC, SYNC, run_with

FAST, SLOW = (100, 101, 102, 99, 98), (80, 81, 79, 82, 78)
TODAY = date(2026, 11, 23)


def run_of(*cells: CellRecord) -> RunRecord:
    record = run_with(FAST)
    record.cells = list(cells)
    return record


def cell(workload: str = "fio", unit: str = "write_iops", **settings: str) -> CellRecord:
    name = " ".join(f"{axis}={value}" for axis, value in settings.items())
    repeats = [Repetition(round=1, value=1.0)]
    return CellRecord(
        name=name, settings=settings, workload={}, workload_name=workload, unit=unit, asked=settings, repeats=repeats
    )


def matched(base: RunRecord, new: RunRecord) -> list[tuple[str, str]]:
    return [(one.name, other.name) for one, other in match(base, new)[0]]


def test_cells_with_the_same_axes_are_pairs() -> None:
    both = cell(level="5", export="sync"), cell(level="5", export="async")
    pairs, matching = match(run_of(*both), run_of(*reversed(both)))
    assert [(one.name, other.name) for one, other in pairs] == [(one.name, one.name) for one in both]
    assert matching.axes == ["level", "export"]
    assert (matching.only_base, matching.only_new, matching.renamed) == ([], [], {})


def test_an_axis_that_only_one_plan_has_is_named() -> None:
    base, new = run_of(cell(level="5")), run_of(cell(level="5", wsize="64KiB"))
    pairs, matching = match(base, new)
    assert len(pairs) == 1
    assert [(one.axis, one.values) for one in matching.axes_of_new] == [("wsize", ["64KiB"])]
    assert matching.axes_of_base == []
    assert matching.renamed == {"level=5": "level=5 wsize=64KiB"}


def test_different_faults_of_the_crash_tests_are_named() -> None:
    base, new = run_of(cell(level="5")), run_of(cell(level="5"))
    assert base.plan is not None
    new.plan = base.plan.model_copy(update={"faults": ["at 1 s network-cut", "at 2 s power-cut"]})
    named = [(one.field, one.base, one.new) for one in match(base, new)[1].requested]
    assert named == [("faults", "a power cut", "at 1 s network-cut, at 2 s power-cut")]
    assert match(new, new)[1].requested == []


def test_several_candidates_are_no_pairs_unless_name_or_request_are_equal() -> None:
    base = run_of(cell(level="5"))
    new = run_of(cell(level="5", wsize="64KiB"), cell(level="5", wsize="1MiB"))
    pairs, matching = match(base, new)
    assert pairs == []
    assert [(one.cell, one.why) for one in matching.only_base] == [("level=5", SEVERAL)]
    assert [one.why for one in matching.only_new] == [SEVERAL, SEVERAL]
    new.cells[1].asked = {"level": "5"}
    assert matched(base, new) == [("level=5", "level=5 wsize=1MiB")]


def test_cells_without_a_partner_are_named() -> None:
    base = run_of(cell(level="5"), cell(level="6"))
    new = run_of(cell(level="5"), cell(level="10"), cell("dd", level="6"))
    pairs, matching = match(base, new)
    assert [one.name for one, _ in pairs] == ["level=5"]
    assert [(one.cell, one.why) for one in matching.only_base] == [("level=6", NO_PARTNER)]
    assert [one.cell for one in matching.only_new] == ["level=10", "level=6"]


def test_different_measured_values_are_no_pair() -> None:
    pairs, matching = match(run_of(cell(level="5")), run_of(cell(level="5", unit="read_mb_s")))
    assert pairs == []
    assert [one.why for one in (*matching.only_base, *matching.only_new)] == [OTHER_VALUE, OTHER_VALUE]


def test_other_hardware_and_settings_are_named() -> None:
    base, new = run_with(FAST), run_with(FAST, day=2)
    for disk in new.topology["disks"]:
        disk["profile"] = "ssd-sata"
    new.cells[0].workload["bs"] = 65536
    matching = match(base, new)[1]
    assert [(one.field, one.base, one.new, one.cells) for one in matching.requested] == [
        ("disks.*.profile", "hdd-7200-sata", "ssd-sata", [SYNC, ASYNC]),
        ("workload.bs", "4096", "65536", [SYNC]),
    ]
    assert matching.apart_s == 2 * 86400


def compared(base: RunRecord, new: RunRecord, *entries: KnownDifference) -> ComparisonRecord:
    known = KnownRecord(date=TODAY, entries=list(entries)) if entries else None
    return compare_stored(base, new, name="x", known=known)


def test_another_kernel_that_is_slower_fails() -> None:
    found = compared(run_with(FAST), run_with(SLOW, kernel="6.19.3"))
    assert [pair.finding for pair in found.pairs] == [PairFinding.SLOWER, PairFinding.SLOWER]
    assert found.outcome is Outcome.FAIL
    assert not found.alike
    assert found.matching is not None


def test_the_same_software_at_another_time_shows_drift_and_no_defect() -> None:
    found = compared(run_with(FAST), run_with(SLOW, day=1))
    assert found.alike
    assert found.outcome is Outcome.INCONCLUSIVE


def test_a_newer_version_of_the_same_requested_kernel_is_compared() -> None:
    base, new = run_with(FAST), run_with(FAST, kernel="6.12.999")
    assert base.topology == new.topology
    found = compared(base, new)
    assert {pair.finding for pair in found.pairs} <= {PairFinding.SAME, PairFinding.UNDECIDED}
    assert found.outcome is not Outcome.INVALID


def test_a_cell_without_a_partner_does_not_count() -> None:
    base, new = run_with(FAST), run_with(FAST, kernel="6.19.3")
    new.cells[1].settings = {"export": "other"}
    new.cells[1].outcome = Outcome.FAIL
    assert [pair.name for pair in compared(base, new).pairs] == [SYNC]
    assert compared(base, new).outcome is not Outcome.FAIL


def slower(cell: str = "*", until: date = TODAY) -> KnownDifference:
    return KnownDifference(
        cell=cell, checker="throughput", kind=KnownKind.SLOWER, reason="more flushes are needed", until=until
    )


def test_an_expected_slower_cell_does_not_fail() -> None:
    found = compared(run_with(FAST), run_with(SLOW, kernel="6.19.3"), slower())
    assert found.outcome is Outcome.PASS
    assert found.reason == "2 cells: 2 slower on new; all failures are expected in 2 cells"
    assert found.known is not None
    assert [(use.state, use.failed) for use in found.known.uses] == [(KnownState.EXPECTED, [SYNC, ASYNC])]


def test_a_slower_cell_beside_the_expected_one_fails() -> None:
    found = compared(run_with(FAST), run_with(SLOW, kernel="6.19.3"), slower(SYNC))
    assert found.outcome is Outcome.FAIL
    assert found.known is not None
    assert found.known.excused == [SYNC]


def test_an_expected_slower_cell_that_is_not_slower_is_reported() -> None:
    found = compared(run_with(FAST), run_with((130, 131, 132, 129, 128), kernel="6.19.3"), slower(SYNC))
    assert found.known is not None
    assert [use.state for use in found.known.uses] == [KnownState.PASSED]
    assert found.outcome is Outcome.PASS


def test_an_entry_out_of_date_does_not_excuse_a_slower_cell() -> None:
    found = compared(run_with(FAST), run_with(SLOW, kernel="6.19.3"), slower(until=date(2026, 11, 1)))
    assert found.known is not None
    assert [use.state for use in found.known.uses] == [KnownState.OUT_OF_DATE]
    assert found.outcome is Outcome.FAIL


def test_an_entry_that_matches_nothing_is_reported() -> None:
    found = compared(run_with(FAST), run_with(SLOW, kernel="6.19.3"), slower("level=7"))
    assert found.known is not None
    assert [use.state for use in found.known.uses] == [KnownState.NO_CELL]
    assert found.outcome is Outcome.FAIL


@pytest.mark.parametrize(("expected", "outcome"), [(True, "PASS"), (False, "FAIL")])
def test_a_newly_broken_promise_can_be_expected(expected: bool, outcome: str) -> None:
    faster = (130, 131, 132, 129, 128)
    base, new = run_with(FAST), run_with(faster, kernel="6.19.3")
    for run, end in ((base, Outcome.PASS), (new, Outcome.FAIL)):
        cycle = next(one for one in run.cycles if one.name == run.cells[0].cycle)
        cycle.verdicts = [Verdict(checker="write + fsync", kind="fsync", outcome=end, reason="because")]
        run.cells[0].outcome = end
    entry = KnownDifference(cell=SYNC, checker="fsync", kind=KnownKind.BROKEN, most=1, reason="known", until=TODAY)
    found = compared(base, new, *([entry] if expected else []))
    assert found.outcome.value == outcome


def test_a_comparison_of_stored_runs_survives_its_file() -> None:
    found = compared(run_with(FAST), run_with(SLOW, kernel="6.19.3"), slower())
    assert ComparisonRecord.model_validate_json(found.model_dump_json()) == found


def on_host(record: RunRecord, host: str, worker: str = "0") -> RunRecord:
    """Return a run whose repetitions a worker on this host has made."""
    assert record.plan is not None
    record.plan.workers = [WorkerRecord(name=worker, host=host, cpu="x", cores=2, kernel="6", load=0.0, version="1")]
    for one in record.cells:
        for repeat in one.repeats:
            repeat.worker = worker
    return record


def test_workers_of_one_name_on_two_machines_are_not_compared() -> None:
    compared = compare_stored(on_host(run_with(FAST), "a"), on_host(run_with(SLOW), "b"), name="x")
    assert {pair.finding for pair in compared.pairs} == {PairFinding.NOT_COMPARABLE}
    assert all("machines of workers differ" in pair.why for pair in compared.pairs)


def test_one_machine_is_compared_whatever_its_worker_is_called() -> None:
    compared = compare_stored(on_host(run_with(FAST), "a", "0"), on_host(run_with(SLOW), "a", "1"), name="x")
    assert {pair.finding for pair in compared.pairs} == {PairFinding.SLOWER}


def test_a_worker_on_several_machines_is_not_compared() -> None:
    base, new = on_host(run_with(FAST), "a"), on_host(run_with(SLOW), "a")
    assert new.plan is not None
    new.plan.workers.append(new.plan.workers[0].model_copy(update={"host": "b"}))
    assert {pair.finding for pair in compare_stored(base, new, name="x").pairs} == {PairFinding.NOT_COMPARABLE}
