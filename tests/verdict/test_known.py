"""Known differences: a failure that is expected, one that is not, an entry in vain, and one that is out of date."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path

import pytest

from raidproof.record.cell import CellRecord, Explored
from raidproof.record.known import KnownDifference, KnownKind, KnownRecord, KnownState, KnownUse
from raidproof.record.outcome import Outcome, Verdict
from raidproof.record.run import CrashTestRecord, RunRecord
from raidproof.verdict.crash_states import RECOVERY
from raidproof.verdict.run import conclude_run

DATA = Path(__file__).resolve().parents[1] / "data" / "run"
TODAY = date(2026, 11, 23)
SYNC, ASYNC = "export=sync", "export=async"


@pytest.fixture
def run() -> RunRecord:
    record = RunRecord.model_validate_json((DATA / "ab-new.json").read_text())
    for cell in record.cells:
        for repeat in cell.repeats:
            repeat.limit = "disks"
    for cycle in record.cycles:
        cycle.verdicts = [
            Verdict(checker=f"{promise}, seen on {where}", kind=kind, outcome=Outcome.PASS, reason="kept")
            for kind, promise in (("fsync", "write + fsync"), ("create", "create"))
            for where in ("the server", "a client")
        ]
    return record


def cut_of(run: RunRecord, cell: str) -> CrashTestRecord:
    found = next(one for one in run.cells if one.name == cell)
    return next(one for one in run.cycles if one.name == found.cycle)


def breaks(run: RunRecord, cell: str, *kinds: str, lost: int = 2) -> None:
    """Let the power cut of a cell break promises: of 100 operations of each kind, some are lost."""
    cycle = cut_of(run, cell)
    cycle.verdicts = [
        one.model_copy(update={"outcome": Outcome.FAIL, "reason": "lost"}) if one.kind in kinds else one
        for one in cycle.verdicts
    ]
    assert cycle.on_server is not None
    for kind in kinds:
        cycle.on_server.acknowledged[kind], cycle.on_server.lost[kind] = 100, lost
    cycle.outcome, cycle.reason = Outcome.FAIL, f"broke {', '.join(kinds)}"


def entry(
    cell: str = SYNC, checker: str = "fsync", kind: KnownKind = KnownKind.BROKEN, until: date = TODAY
) -> KnownDifference:
    return KnownDifference(cell=cell, checker=checker, kind=kind, reason="a defect of the kernel", until=until)


def judged(run: RunRecord, *entries: KnownDifference) -> Sequence[KnownUse]:
    run.known = KnownRecord(date=TODAY, entries=list(entries))
    conclude_run(run)
    assert run.known is not None
    return run.known.uses


def test_the_sample_passes_and_a_broken_promise_makes_it_fail(run: RunRecord) -> None:
    conclude_run(run)
    assert run.outcome.value == "PASS"
    breaks(run, SYNC, "fsync")
    conclude_run(run)
    assert run.outcome.value == "FAIL"


def test_an_expected_failure_does_not_make_the_run_fail(run: RunRecord) -> None:
    breaks(run, SYNC, "fsync")
    [use] = judged(run, entry())
    assert (use.state, use.failed, use.passed) == (KnownState.EXPECTED, [SYNC], [])
    assert run.outcome.value == "PASS"
    assert "all failures are expected, in 1 of 2 cells" in run.reason
    # The cell itself still says what happened.
    assert run.cells[0].outcome is Outcome.FAIL


def test_a_failure_beside_the_expected_one_still_fails(run: RunRecord) -> None:
    breaks(run, SYNC, "fsync", "create")
    [use] = judged(run, entry())
    assert use.state is KnownState.EXPECTED
    assert run.outcome.value == "FAIL"
    assert run.known is not None
    assert run.known.excused == []
    judged(run, entry(), entry(checker="create"))
    assert run.outcome.value == "PASS"


@pytest.mark.parametrize(
    ("lost", "most", "excused"), [(5, 0.05, True), (6, 0.05, False), (6, 0.1, True), (0, 0.9, False)]
)
def test_an_entry_excuses_no_more_than_its_share(run: RunRecord, lost: int, most: float, excused: bool) -> None:
    """If the number of lost operations is not known, only an entry for all of them excuses the failure."""
    breaks(run, SYNC, "fsync", lost=lost)
    [use] = judged(run, entry().model_copy(update={"most": most}))
    assert (use.state is KnownState.EXPECTED) is excused
    assert use.state in {KnownState.EXPECTED, KnownState.EXCEEDED}
    assert run.outcome.value == ("PASS" if excused else "FAIL")


def test_an_entry_for_few_crash_states_does_not_excuse_nearly_all(run: RunRecord) -> None:
    run.cells[0].explored = Explored(file=None, judged=1000, broken=997, outcome=Outcome.FAIL, reason="997 of 1,000")
    [use] = judged(run, entry(checker="crash states"))
    assert (use.state, run.outcome) == (KnownState.EXCEEDED, Outcome.FAIL)


def test_no_pattern_excuses_that_the_storage_did_not_come_up(run: RunRecord) -> None:
    cycle = cut_of(run, SYNC)
    cycle.verdicts = [Verdict(checker=RECOVERY, outcome=Outcome.FAIL, reason="does not mount")]
    cycle.outcome, cycle.not_recovered = Outcome.FAIL, "mount: wrong fs type"
    judged(run, entry(cell="*", checker="*"))
    assert run.outcome is Outcome.FAIL
    [use] = judged(run, entry(checker=RECOVERY))
    assert (use.state, run.outcome) == (KnownState.EXPECTED, Outcome.PASS)


def test_a_failure_in_another_cell_still_fails(run: RunRecord) -> None:
    breaks(run, ASYNC, "fsync")
    [use] = judged(run, entry())
    assert use.state is KnownState.PASSED
    assert run.outcome.value == "FAIL"


def test_an_expected_failure_that_passes_is_reported(run: RunRecord) -> None:
    [use] = judged(run, entry(cell="*"))
    assert (use.state, use.passed) == (KnownState.PASSED, [SYNC, ASYNC])
    assert run.outcome.value == "PASS"


def test_an_entry_out_of_date_excuses_nothing(run: RunRecord) -> None:
    breaks(run, SYNC, "fsync")
    [use] = judged(run, entry(until=date(2026, 11, 22)))
    assert (use.state, use.failed) == (KnownState.OUT_OF_DATE, [SYNC])
    assert run.outcome.value == "FAIL"


def test_an_entry_that_matches_nothing_is_reported(run: RunRecord) -> None:
    uses = judged(
        run,
        entry(cell="level=6"),
        entry(checker="no such check"),
        entry(checker="throughput", kind=KnownKind.SLOWER),
    )
    assert [one.state for one in uses] == [KnownState.NO_CELL, KnownState.NOT_JUDGED, KnownState.NOT_JUDGED]


def test_a_check_is_meant_by_its_name_too(run: RunRecord) -> None:
    cycle = cut_of(run, SYNC)
    cycle.verdicts.append(Verdict(checker="kernel log of server", outcome=Outcome.FAIL, reason="WARNING"))
    cycle.outcome = Outcome.FAIL
    [use] = judged(run, entry(checker="kernel log*"))
    assert (use.state, run.outcome) == (KnownState.EXPECTED, Outcome.PASS)


def test_crash_states_and_the_configuration_are_checks(run: RunRecord) -> None:
    run.cells[0].explored = Explored(file=None, judged=100, broken=2, outcome=Outcome.FAIL, reason="2 of 100")
    run.cells[1].not_effective = "wsize: requested 1048576, effective 524288"
    uses = judged(run, entry(checker="crash states"), entry(cell=ASYNC, checker="configuration"))
    assert [one.state for one in uses] == [KnownState.EXPECTED, KnownState.EXPECTED]
    assert run.outcome.value == "PASS"
    assert run.reason == "all failures are expected, in 2 of 2 cells"


@pytest.mark.parametrize("outcome", [Outcome.INVALID, Outcome.ERROR, Outcome.INCONCLUSIVE])
def test_nothing_excuses_what_proves_nothing(run: RunRecord, outcome: Outcome) -> None:
    cut_of(run, SYNC).outcome = outcome
    judged(run, entry(), entry(checker="*"))
    assert run.outcome is outcome


def test_a_run_survives_its_file(run: RunRecord) -> None:
    judged(run, entry())
    assert RunRecord.model_validate_json(run.model_dump_json()) == run


def test_a_cell_without_a_result_is_not_excused(run: RunRecord) -> None:
    run.cells.append(CellRecord(name="x", settings={}, workload={}, unit="", asked={}))
    [use] = judged(run, entry(cell="x", checker="*"))
    assert use.state is KnownState.NOT_JUDGED
