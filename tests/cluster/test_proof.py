"""The proof of a checker says no to each kind of wrong answers."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raidproof.cluster.proof import Unsound, points_of, prove
from raidproof.core.errors import RequestError
from raidproof.crash.checker_worker import CheckerWorker, RecordingCursor
from raidproof.crash.states import Patch
from raidproof.crash.stats import ExplorationStats
from raidproof.record.exploration import End, Observation
from raidproof.verdict.conditions import Conditions
from raidproof.verdict.oracle import Oracle
from raidproof.workload.history import History
from tests.crash.made_up import WORKER, FakeChecker, MadeUp, told, written


class Planted(FakeChecker):
    """A checker with a defect."""

    def __init__(self, defect: str) -> None:
        super().__init__()
        self.defect = defect
        self.first: Observation | None = None

    def advance(self, patch: Patch) -> None:
        if self.defect != "loses what became durable":
            super().advance(patch)

    def check(self, patch: Patch, **options: Any) -> Observation:
        seen = super().check(Patch() if self.defect == "ignores patches" else patch, **options)
        self.first = self.first or seen
        match self.defect:
            case "answers as at first":
                return self.first
            case "finds everything":
                return Observation(end=End.READ, found={"f@0": {"blocks": [2, 2, 1, 1], "names": ["f"]}})
            case "mounts nothing":
                return Observation(end=End.NOT_MOUNTED, said="no")
        return seen


def proved(made_up: MadeUp, defect: str = "") -> None:
    @contextmanager
    def boot(_: int) -> Iterator[FakeChecker]:
        yield Planted(defect)

    stats, cursor = ExplorationStats(made_up.recording, made_up.oracle), RecordingCursor(made_up.recording)
    with CheckerWorker(1, boot) as worker:
        prove(worker, cursor, stats, points_of(stats))


@pytest.fixture
def made_up(tmp_path: Path) -> MadeUp:
    return MadeUp(tmp_path / "run", written(), told())


def test_an_honest_checker_is_sound(made_up: MadeUp) -> None:
    proved(made_up)


def test_operations_may_be_acknowledged_while_the_ledger_is_started(made_up: MadeUp) -> None:
    made_up.oracle = replace(made_up.oracle, created_ns=19_000)
    proved(made_up)


@pytest.mark.parametrize(
    ("defect", "said"),
    [
        ("answers as at first", "operations are missing in the state in which all requests survived"),
        ("loses what became durable", "operations are missing"),
        ("finds everything", "is not clean|was not found"),
        ("mounts nothing", "a clean state is not clean"),
    ],
)
def test_a_checker_with_wrong_answers_is_unsound(made_up: MadeUp, defect: str, said: str) -> None:
    with pytest.raises(Unsound, match=said):
        proved(made_up, defect)


def test_without_an_acknowledged_operation_nothing_can_be_proved(made_up: MadeUp) -> None:
    made_up.oracle = Oracle((WORKER,), History(()), Conditions(export_sync=True), created_ns=0)
    with pytest.raises(RequestError, match="no operation was acknowledged"):
        proved(made_up)
