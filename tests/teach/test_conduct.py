from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from raidproof.core.errors import RequestError
from raidproof.record.lesson import LESSON_RECORD, LessonRecord
from raidproof.record.outcome import Outcome
from raidproof.teach import conduct as module
from raidproof.teach.answers import ScriptedAnswers
from raidproof.teach.conduct import conduct
from raidproof.teach.reader import read_lesson
from tests.teach.measured import TEXT, FakeMachines, usual_machines

LESSON = read_lesson(TEXT, source="my.md", name="left")


def on(machines: FakeMachines, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let lessons run on fake machines, with a folder as the directory of the run."""

    @contextmanager
    def fake(*_: Any, **__: Any) -> Iterator[Any]:
        run = SimpleNamespace(store=SimpleNamespace(path=folder))
        yield SimpleNamespace(run=run, perform=machines.perform, environment=None, boot_s=2.5)

    monkeypatch.setattr(module, "Experiment", fake)


def conducted(folder: Path, lines: list[str], handout: Path | None = None) -> tuple[LessonRecord, Path]:
    screen = Console(file=StringIO(), width=100)
    return conduct(LESSON, folder, ScriptedAnswers(lines, "mine"), screen, learner="Ann", seed=7, handout=handout)


def test_a_lesson_leaves_its_record_and_its_handout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on(usual_machines(), tmp_path, monkeypatch)
    record, page = conducted(tmp_path, ["4", "a"])
    assert record.outcome is Outcome.PASS
    assert (record.learner, record.seed, record.boot_s) == ("Ann", 7, 2.5)
    assert LessonRecord.model_validate_json((tmp_path / LESSON_RECORD).read_text()) == record
    assert page == tmp_path / "handout.html"
    assert "What is left" in page.read_text()


def test_the_handout_may_be_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on(usual_machines(), tmp_path, monkeypatch)
    assert conducted(tmp_path, ["4"], tmp_path / "mine.html")[1] == tmp_path / "mine.html"
    with pytest.raises(RequestError, match=r"cannot write the handout .*none/x\.html"):
        conducted(tmp_path, ["4"], tmp_path / "none" / "x.html")


def test_an_interrupted_lesson_keeps_its_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machines = usual_machines()

    def interrupted(action: Any) -> Any:
        if action.name == "late":
            raise KeyboardInterrupt
        return FakeMachines.perform(machines, action)

    monkeypatch.setattr(machines, "perform", interrupted)
    on(machines, tmp_path, monkeypatch)
    screen = Console(file=StringIO(), width=100)
    with pytest.raises(KeyboardInterrupt):
        conduct(LESSON, tmp_path, ScriptedAnswers(["4", "a"], "mine"), screen)
    assert isinstance(screen.file, StringIO)
    assert screen.file.getvalue().endswith(f"handout: {tmp_path / 'handout.html'}\n")
    record = LessonRecord.model_validate_json((tmp_path / LESSON_RECORD).read_text())
    assert record.reason == "ended early: KeyboardInterrupt"
    assert [one.name for one in record.questions] == ["lost"]
    assert (tmp_path / "handout.html").is_file()


def test_answers_are_checked_before_machines_boot(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="mine:2"):
        conducted(tmp_path, ["4", "z"])
    assert list(tmp_path.iterdir()) == []
