import io
import json
import os
import pty
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from rich.console import Console

from raidproof.cli.main import main
from raidproof.cli.teach import answers_from
from raidproof.core.errors import Status
from raidproof.record.lesson import AnswersFrom
from raidproof.record.outcome import Outcome
from raidproof.teach import conduct
from raidproof.teach.reader import read_lesson
from tests.teach.measured import TEXT, new_record

HOME = Path(__file__).resolve().parents[2]


def schema(name: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads((HOME / "docs" / "schema" / f"{name}.schema.json").read_text()))


@pytest.fixture
def lesson(tmp_path: Path) -> Path:
    path = tmp_path / "left.md"
    path.write_text(TEXT)
    return path


def test_lessons_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["teach"]) == Status.PASS
    assert "write-hole" in capsys.readouterr().out
    assert main(["teach", "--json"]) == Status.PASS
    schema("lessons").validate(json.loads(capsys.readouterr().out))


def test_a_lesson_file_is_checked_without_machines(lesson: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["teach", str(lesson), "--check"]) == Status.PASS
    assert "2 actions, 2 questions, no error" in capsys.readouterr().out
    lesson.write_text(TEXT.replace("repeats = 2", "repeats = 0"))
    assert main(["teach", str(lesson), "--check"]) == Status.BAD_REQUEST
    assert re.search(r"left\.md:\d+: .*repeats", capsys.readouterr().err)


def test_an_unknown_lesson(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["teach", "flsh"]) == Status.BAD_REQUEST
    assert "did you mean 'flush'" in capsys.readouterr().err


@pytest.mark.parametrize("outcome", [Outcome.PASS, Outcome.INCONCLUSIVE, Outcome.ERROR])
def test_the_exit_status_is_that_of_the_lesson(
    outcome: Outcome, lesson: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}

    def conducted(*arguments: Any, **named: Any) -> Any:
        given.update(named, answers=arguments[2])
        return new_record(outcome=outcome), Path("handout.html")

    monkeypatch.setattr(conduct, "conduct", conducted)
    (lesson.parent / "mine.txt").write_text("4\n")
    words = ["--seed", "7", "--name", "Ann", "--answers", str(lesson.parent / "mine.txt"), "--json"]
    assert main(["teach", str(lesson), *words]) == Status[outcome.name]
    said = capsys.readouterr()
    schema("lesson").validate(json.loads(said.out))
    assert "handout: handout.html" in said.err
    assert (given["seed"], given["learner"], given["answers"].source) == (7, "Ann", AnswersFrom.FILE)


def test_the_source_of_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("4\nb\n"))
    assert answers_from(None, Console(file=io.StringIO())).source is AnswersFrom.NONE
    first, second = read_lesson(TEXT, source="my.md", name="my").questions
    scripted = answers_from("-", Console(file=io.StringIO()))
    assert (scripted.guess(first), scripted.guess(second)) == (4.0, 2.0)


def test_a_terminal_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, theirs = pty.openpty()
    with os.fdopen(theirs) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        console = Console(file=io.StringIO(), force_terminal=True)
        answers = answers_from(None, console)
        assert answers.source is AnswersFrom.TERMINAL
        os.write(mine, b"many\n12\n")
        question = read_lesson(TEXT, source="my.md", name="my").questions[0]
        assert answers.guess(question) == 12.0
    os.close(mine)


def test_answers_that_cannot_be_read(lesson: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["teach", str(lesson), "--answers", str(lesson.parent / "none")]) == Status.BAD_REQUEST
    assert "cannot be read: No such file" in capsys.readouterr().err
    (lesson.parent / "binary").write_bytes(b"\xff")
    assert main(["teach", str(lesson), "--answers", str(lesson.parent / "binary")]) == Status.BAD_REQUEST
    assert "are not UTF-8" in capsys.readouterr().err


def test_answers_that_do_not_fit_are_refused_before_machines_boot(
    lesson: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (lesson.parent / "mine.txt").write_text("4\nz\n")
    words = ["--answers", str(lesson.parent / "mine.txt"), "--results", str(lesson.parent / "results")]
    assert main(["teach", str(lesson), *words]) == Status.BAD_REQUEST
    assert "mine.txt:2: question any" in capsys.readouterr().err
    assert not (lesson.parent / "results").exists()


def test_a_class_is_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ann.json").write_text(new_record(learner="ann").model_dump_json())
    assert main(["teach", "--compare", str(tmp_path)]) == Status.PASS
    assert "What is left: 1 records" in capsys.readouterr().out
    assert main(["teach", "--compare", str(tmp_path), "--json"]) == Status.PASS
    schema("class").validate(json.loads(capsys.readouterr().out))
    assert main(["teach", "async", "--compare", str(tmp_path)]) == Status.BAD_REQUEST
    assert main(["teach", "--compare", str(tmp_path / "none")]) == Status.BAD_REQUEST


def test_the_example_of_the_document_is_a_lesson() -> None:
    text = (HOME / "docs" / "teaching.md").read_text()
    example = re.search(r"<!-- lesson -->\n````markdown\n(.*?)````\n", text, re.DOTALL)
    assert example is not None
    found = read_lesson(example[1], source="docs/teaching.md", name="example")
    assert (len(found.questions), len(found.actions)) == (2, 1)
