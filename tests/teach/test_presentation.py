from io import StringIO

import pytest
from rich.console import Console

from raidproof.core.errors import RequestError
from raidproof.record.lesson import AnswersFrom, LessonRecord, QuestionRecord
from raidproof.record.outcome import Outcome
from raidproof.report.handout import render_handout
from raidproof.teach.answers import Answers, NoAnswers, ScriptedAnswers
from raidproof.teach.presentation import Presentation
from raidproof.teach.reader import read_lesson
from tests.teach.measured import TEXT, FakeMachines, cut, new_record, usual_machines


def presented(machines: FakeMachines, answers: Answers, text: str = TEXT) -> tuple[LessonRecord, str]:
    """Present a lesson on fake machines; return its record and the text on the terminal."""
    record, screen = new_record(answers_from=answers.source), StringIO()
    lesson = read_lesson(text, source="my.md", name="my")
    Presentation(lesson, record, answers, Console(file=screen, width=100)).run(machines.perform)
    return record, screen.getvalue()


def test_a_whole_lesson_with_scripted_answers() -> None:
    machines = usual_machines()
    record, shown = presented(machines, ScriptedAnswers(["4", "c"], "mine"))
    assert machines.performed == ["early", "late"]
    lost, other = record.questions
    assert (lost.guess, lost.measured, lost.near, lost.as_expected) == (4.0, 4.0, True, True)
    assert lost.explanation == "Lost: 4.00\N{NO-BREAK SPACE}s, 50 operations, worst 5.00\N{NO-BREAK SPACE}s."
    assert (other.guess, other.measured, other.near) == (3.0, 1.0, False)
    assert other.decided_by == ["late.lost = 0", "late.lost < 0.5 * early.lost", "otherwise"]
    assert record.outcome is Outcome.PASS
    assert record.machine_s == 3.0
    # The question comes before the measurement, the answer after it.
    assert shown.index("How many seconds are lost?") < shown.index("export async") < shown.index("your guess:")
    assert "your guess agrees with the measurement" in shown
    assert "your guess differs from the measurement" in shown
    assert "The end: 0 of 100." in shown


def test_an_answer_appears_as_soon_as_its_values_are_measured() -> None:
    record, _ = presented(usual_machines(), ScriptedAnswers(["4", "c"], "mine"))
    kinds = ["text", "action", "question", "action", "question", "result", "text"]
    assert [step.step for step in record.steps] == kinds


def test_a_measurement_against_the_expectation_is_an_observation() -> None:
    machines = FakeMachines(early=cut("early", [0], [0.0]), late=cut("late", [3], [0.1]))
    record, shown = presented(machines, ScriptedAnswers(["4", "a"], "mine"))
    lost, other = record.questions
    assert (lost.measured, lost.as_expected, lost.near) == (0.0, False, False)
    assert lost.explanation.startswith("Another result: 0")
    assert (other.measured, other.as_expected) == (3.0, False)
    assert shown.count("Observation: the lesson expects another result.") == 2
    assert record.outcome is Outcome.INCONCLUSIVE
    assert record.reason == "not as the lesson expects: lost, any"
    assert "Observation: the lesson expects another result." in render_handout(record)


def test_an_action_that_fails_leaves_its_questions_without_an_answer() -> None:
    machines = FakeMachines(early=cut("early", [40], [3.0]))
    record, shown = presented(machines, ScriptedAnswers(["4", "a"], "mine"))
    assert [one.measured for one in record.questions] == [3.0, None]
    assert record.outcome is Outcome.ERROR
    assert record.reason == "late: no lab boots"
    assert "nothing was measured: no lab boots" in shown
    assert "so that the question has no answer" in shown
    assert "The end: (not measured) of (not measured)." in shown
    render_handout(record)


def test_without_a_terminal_questions_are_skipped_and_the_lesson_says_so() -> None:
    record, shown = presented(usual_machines(), NoAnswers())
    assert record.answers_from is AnswersFrom.NONE
    assert [(one.guess, one.near, one.measured) for one in record.questions] == [(None, None, 4.0), (None, None, 1.0)]
    assert "every question is skipped" in shown


def test_control_characters_of_a_lesson_do_not_reach_the_terminal() -> None:
    record, shown = presented(usual_machines(), NoAnswers(), TEXT.replace("replies early", "replies \x1b[2J early"))
    assert "\x1b[2J" not in shown
    assert "\x1b" not in render_handout(record)


def test_scripted_answers_that_do_not_fit_end_the_lesson() -> None:
    with pytest.raises(RequestError, match="mine:1"):
        presented(usual_machines(), ScriptedAnswers(["x"], "mine"))


def test_the_record_is_read_back_as_it_was_written() -> None:
    record, _ = presented(usual_machines(), ScriptedAnswers(["4", "c"], "mine"))
    again = LessonRecord.model_validate_json(record.model_dump_json())
    assert again == record
    assert isinstance(again.steps[2], QuestionRecord)
