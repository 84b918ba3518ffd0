"""Lessons are given whole, with scripted answers: every question gets an answer from a measurement."""

import json
import re
from pathlib import Path

import pytest

from raidproof.cli.main import main
from raidproof.core.errors import Status
from raidproof.core.waiting import unwinding_on_signals
from raidproof.record.lesson import LESSON_RECORD, AnswersFrom, LessonRecord
from raidproof.record.outcome import Outcome

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "teaching.md"
ANSWERS = {
    "flush": ["6", "a", "d", "b", "a"],
    "locks": ["a", "12", "c", "1", "b"],
    "async": ["20", "a", "d", "10", "2"],
    "small-writes": ["100", "c", "20", "0", "b", "a"],
    "write-hole": ["c", "0", "b", "0"],
}


def given(lesson: str, lines: list[str], folder: Path) -> tuple[int, LessonRecord]:
    """Give a lesson by the command line; return the exit status and the stored record."""
    (folder / "answers.txt").write_text("\n".join(lines))
    with unwinding_on_signals():
        words = ["--answers", str(folder / "answers.txt"), "--results", str(folder), "--name", "ann", "--seed", "7"]
        status = main(["teach", lesson, *words])
    (path,) = folder.glob(f"*/{LESSON_RECORD}")
    record = LessonRecord.model_validate(json.loads(path.read_text()))
    assert record.answers_from is AnswersFrom.FILE
    page = (path.parent / "handout.html").read_text()
    for question in record.questions:
        assert question.guess is not None
        assert question.measured is not None, f"{question.name} has no answer: {record.reason}"
        assert question.explanation
    assert page.count("Decided by") == len(lines) == len(record.questions)
    return status, record


@pytest.mark.parametrize(
    "lesson",
    [
        "locks",
        pytest.param("flush", marks=pytest.mark.exhaustive),
        pytest.param("async", marks=pytest.mark.exhaustive),
        pytest.param("small-writes", marks=pytest.mark.exhaustive),
        pytest.param("write-hole", marks=pytest.mark.exhaustive),
    ],
)
def test_a_lesson_measures_what_it_asks(lesson: str, tmp_path: Path) -> None:
    status, record = given(lesson, ANSWERS[lesson], tmp_path)
    # Another result than the lesson expects is an observation of this host; an error of the rig is not.
    assert status in {Status.PASS, Status.INCONCLUSIVE}, record.reason
    assert record.machine_s > 0
    surprises = {one.name for one in record.questions if one.as_expected is False}
    # These do not depend on the speed of this host.
    assert not surprises & {"lost-short", "mount", "honest", "lying", "protected", "harmless", "survives"}


def test_the_lesson_of_the_document_works(tmp_path: Path) -> None:
    example = re.search(r"<!-- lesson -->\n````markdown\n(.*?)````\n", DOCUMENT.read_text(), re.DOTALL)
    assert example is not None
    (tmp_path / "mine.md").write_text(example[1])
    status, record = given(str(tmp_path / "mine.md"), ["100", "b"], tmp_path)
    assert (status, record.outcome) == (Status.PASS, Outcome.PASS), record.reason
    (action,) = record.actions
    lost, acknowledged = action.value("lost"), action.value("acknowledged")
    assert lost is not None
    assert acknowledged is not None
    assert lost.each == acknowledged.each
    assert any(line.startswith("/etc/exports: ") and "async" in line for line in action.commands)
