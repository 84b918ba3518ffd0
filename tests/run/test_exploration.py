import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from raidproof.core.errors import RequestError, RigError
from raidproof.core.waiting import wall_clock
from raidproof.crash.checker import Checker
from raidproof.crash.exploration import Budget
from raidproof.record.exploration import ExplorationRecord, StoppedBy
from raidproof.record.failure import FailureRecord
from raidproof.record.outcome import Outcome
from raidproof.record.results.index import Index
from raidproof.record.run import ScanResult
from raidproof.report.results.summary import summary_of_run
from raidproof.run import exploration as module
from raidproof.run.crash_states import Options
from raidproof.run.exploration import explore_cycle
from raidproof.run.exploration_record import ALL_LOSSES, undated
from raidproof.run.source import source_of
from raidproof.verdict.cell import SafetyWord, by_safety
from raidproof.verdict.run import conclude_run
from tests.crash.stored import CYCLE, HoldingChecker, OnFakes, store_run


def test_an_exploration_that_enough_broken_states_ended_says_so(tmp_path: Path) -> None:
    source = OnFakes.of(source_of(store_run(tmp_path / "run")))
    record, _ = explore_cycle(source, Options(Budget(None, broken=1), checkers=1, explained=0, crash_page=False))
    assert (record.outcome, record.stopped_by) == (Outcome.FAIL, StoppedBy.BROKEN)
    assert record.judged < record.candidates
    assert "no further states were checked" in (record.ended_early or "")


class Ends:
    """Raises an error at one of the calls that follow after all states were judged."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looks: int | None = None
        self.at = 0
        self.error: type[BaseException] = KeyboardInterrupt
        monkeypatch.setattr(module, "step", self._step)

    def _step(self, said: str) -> None:
        if said == "the checks of crash states have ended":
            self.looks = 0

    def look(self, _number: int) -> None:
        if self.looks is not None:
            self.looks += 1
            if self.looks >= self.at > 0:
                raise self.error("the end")


class Ending(OnFakes):
    """A source whose exploration may end early."""

    ends: Ends

    @contextmanager
    def checker(self, number: int, *, logs: Path) -> Iterator[Checker]:
        checker = HoldingChecker()
        checker.before_check = self.ends.look
        yield cast("Checker", checker)


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Ends:
    monkeypatch.setattr(Ending, "ends", one := Ends(monkeypatch), raising=False)
    return one


OPTIONS = Options(Budget(None), checkers=1, crash_page=False)
LOST = {"server_memory_lost": True, "caches": "drop"}


def ended(path: Path) -> tuple[ExplorationRecord, FailureRecord]:
    """Explore; return the record as it was stored, and its failure."""
    with pytest.raises(KeyboardInterrupt):
        explore_cycle(Ending.of(source_of(store_run(path))), OPTIONS)
    record = ExplorationRecord.model_validate_json((path / f"explore-{CYCLE}.json").read_text())
    (failure,) = record.failures
    return record, failure


def test_what_an_interruption_leaves_of_shrinking_is_kept(tmp_path: Path, ends: Ends) -> None:
    whole, _ = explore_cycle(Ending.of(source_of(store_run(tmp_path / "whole"))), OPTIONS)
    looks = ends.looks or 0
    known = []
    for ends.at in (1, 2, 3, looks // 2, looks):
        ends.looks = None
        record, failure = ended(tmp_path / f"at{ends.at}")
        assert (record.outcome, record.broken) == (Outcome.FAIL, whole.broken)
        assert record.ended_early == module.INTERRUPTED
        assert failure.confirmed == failure.repeated
        known.append((failure.confirmed, failure.shrunk is not None, failure.shortest is not None))
    assert known[:3] == [(0, False, False), (1, False, False), (2, False, False)]
    assert known == sorted(known)
    # The last look of all is that of the machine that has just booted.
    assert failure == whole.failures[0].model_copy(update={"replay": failure.replay})


def test_an_interruption_reports_the_results_so_far(
    tmp_path: Path, ends: Ends, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(module, "say", said.append)
    ends.at = 3
    record, _ = ended(tmp_path / "run")
    page = tmp_path / "run" / f"explore-{CYCLE}.html"
    assert said == [
        f"{record.judged} states were judged and are kept, {record.broken} of them broken: {page}",
        "the same command with --resume continues the exploration",
    ]
    assert page.is_file()


def test_what_a_failing_rig_leaves_of_shrinking_is_kept(tmp_path: Path, ends: Ends) -> None:
    ends.at, ends.error = 3, RigError
    record, page = explore_cycle(Ending.of(source_of(store_run(tmp_path / "run"))), OPTIONS)
    assert page.is_file()
    assert record.ended_early == "the rig failed: the end"
    assert [(one.repeated, one.confirmed) for one in record.failures] == [(2, 2)]
    assert record.outcome is Outcome.FAIL


@pytest.mark.usefixtures("ends")
def test_at_replies_the_power_goes_at_each_acknowledgement_and_nowhere_else(tmp_path: Path) -> None:
    source = Ending.of(source_of(store_run(tmp_path / "run")))
    every, _ = explore_cycle(source, OPTIONS)
    record, _ = explore_cycle(source, Options(Budget(None), checkers=1, at_replies=True, crash_page=False))
    # When the ledger began, three requests had completed; then each third is the flush that ends an operation.
    assert record.policies == {"at-reply": record.candidates}
    assert every.policies["at-reply"] == record.candidates
    assert sorted(mark.at_s for mark in record.marks) == [at / 1e9 for at in (3999, 6999, 9999, 12999, 15999)]
    # From just before the first of these to the last request.
    assert every.span_s == (2999 / 1e9, 18000 / 1e9)
    # Two flushes are lies; the operation of the second was acknowledged after the end.
    assert record.broken == 1


def test_undated_acknowledgements_are_among_what_it_cannot_prove(tmp_path: Path) -> None:
    said = []
    for number, checks in enumerate(({"replies": {"why_not": "host tool not found: dumpcap"}}, {"replies": {}}, {})):
        store = store_run(tmp_path / str(number), checks=checks)
        said.append(undated(source_of(store)))
    assert said[1:] == [[], []]
    assert "host tool not found: dumpcap" in said[0][0]


def test_what_was_explored_to_its_end_is_not_explored_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_run(tmp_path)
    record, _ = explore_cycle(OnFakes.of(source_of(store)), OPTIONS)
    asked: list[Options] = []

    def again(_source: object, options: Options) -> tuple[ExplorationRecord, Path]:
        asked.append(options)
        return record, Path("page")

    monkeypatch.setattr(module, "explore_cycle", again)
    explored = module.explored(store, CYCLE, 8, 3)
    assert (explored.judged, explored.outcome, explored.file) == (
        record.judged,
        record.outcome,
        f"explore-{CYCLE}.json",
    )
    assert not asked
    path = tmp_path / f"explore-{CYCLE}.json"
    path.write_text(record.model_copy(update={"ended_early": module.INTERRUPTED}).model_dump_json())
    module.explored(store, CYCLE, 8, 3)
    path.unlink()
    module.explored(store, CYCLE, 8, 3)
    assert [(one.seed, one.resume, one.budget) for one in asked] == [(3, True, Budget(8))] * 2


def of_all_losses(most: int, states: int | None = None, *, resume: bool = False) -> Options:
    return Options(Budget(states), checkers=1, all_losses=most, resume=resume, crash_page=False)


@pytest.mark.usefixtures("ends")
def test_all_losses_are_checked_and_counted(tmp_path: Path) -> None:
    source = Ending.of(source_of(store_run(tmp_path / "run")))
    record, page = explore_cycle(source, of_all_losses(2))
    every = record.all_losses
    assert every is not None
    assert every.judged == every.states
    assert every.complete
    assert (record.judged, record.candidates, sum(every.states)) == (every.total,) * 3
    assert record.policies == {"few-lost": every.total}
    # The disk lies from the fourth overwrite on; the ledger block of the first lost overwrite is one lost request.
    assert record.outcome is Outcome.FAIL
    assert record.cannot_prove[1:3] == list(ALL_LOSSES)
    assert (
        f"all {every.total} crash states with up to 2 lost requests of all {every.epochs} flush epochs"
        in page.read_text()
    )


@pytest.mark.usefixtures("ends")
def test_the_number_done_of_all_losses_is_kept_and_resumed(tmp_path: Path) -> None:
    source = Ending.of(source_of(store_run(tmp_path / "run")))
    record, _ = explore_cycle(source, of_all_losses(1, 5))
    assert record.all_losses is not None
    assert sum(record.all_losses.judged) == record.judged == 5
    assert not record.all_losses.complete
    resumed, _ = explore_cycle(source, of_all_losses(1, resume=True))
    assert resumed.all_losses is not None
    assert resumed.all_losses.complete
    assert resumed.judged == record.all_losses.total


@pytest.mark.usefixtures("ends")
def test_a_sample_does_not_resume_all_losses(tmp_path: Path) -> None:
    source = Ending.of(source_of(store_run(tmp_path / "run")))
    explore_cycle(source, of_all_losses(1, 5))
    with pytest.raises(RequestError, match=r"begun with all losses 1, not None"):
        explore_cycle(source, Options(Budget(5), checkers=1, resume=True))


def test_the_run_is_no_longer_safe_after_its_exploration_found_a_broken_state(tmp_path: Path) -> None:
    """The record, the report, the index and the summary of the run have the result of the exploration."""
    store = store_run(
        tmp_path / "20261123-120000-run",
        ended=wall_clock(),
        outcome=Outcome.PASS,
        of_cycle={"outcome": Outcome.PASS, "on_server": ScanResult(acknowledged={"fsync": 9}), "effects": LOST},
    )
    before = store.load()
    conclude_run(before)
    assert (before.outcome, [*by_safety(before)]) == (Outcome.PASS, [SafetyWord.SAFE])
    record, _ = explore_cycle(OnFakes.of(source_of(store)), OPTIONS)
    assert record.outcome is Outcome.FAIL
    stored = json.loads((store.path / "report.json").read_text())
    assert stored["outcome"] == "FAIL"
    (kept,) = stored["cycles"][0]["explored"]
    assert (kept["file"], kept["broken"], kept["outcome"]) == (f"explore-{CYCLE}.json", record.broken, "FAIL")
    after = store.load()
    assert [*by_safety(after)] == [SafetyWord.LOSES_DATA]
    assert "SAFE" not in summary_of_run(after)
    page = (store.path / "report.html").read_text()
    head = page[page.index("<header") : page.index("</header")]
    assert "LOSES DATA" in head
    assert not re.search(r"\bSAFE\b", head)
    with Index.open(tmp_path) as index:
        (listed,) = index.runs()
    assert (listed.outcome, listed.explored) == (Outcome.FAIL, Outcome.FAIL)


def test_the_record_of_a_run_in_progress_is_left_to_its_process(tmp_path: Path) -> None:
    store = store_run(tmp_path / "run")
    before = (store.path / "report.json").read_text()
    explore_cycle(OnFakes.of(source_of(store)), OPTIONS)
    assert (store.path / "report.json").read_text() == before
    assert store.load().cycles[0].explored[0].outcome is Outcome.FAIL
