"""The presentation of a lesson: its steps in order, a guess before each answer, and guess against measurement."""

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console

from raidproof.core.log import progress
from raidproof.record.lesson import (
    ActionRecord,
    AnswersFrom,
    LessonRecord,
    QuestionRecord,
    ResultRecord,
    ResultRow,
    TextRecord,
)
from raidproof.record.outcome import Outcome
from raidproof.report import lesson as page
from raidproof.report.lesson import LETTERS
from raidproof.teach.answers import Answers
from raidproof.teach.lesson import Lesson, Question, Result, Text
from raidproof.teach.quantity import Reference, filled, heading_of, meaning_of
from raidproof.verdict.conclusion import Part, concluded

Perform = Callable[[Any], ActionRecord]
"""A function that carries out an action, such as `Experiment.perform`."""


class Presentation:
    """Shows the steps of a lesson on a console, and fills in its record."""

    def __init__(self, lesson: Lesson, record: LessonRecord, answers: Answers, console: Console) -> None:
        self.lesson = lesson
        self.record = record
        self.answers = answers
        self.console = console
        self.done: dict[str, ActionRecord] = {}
        """The actions that were carried out, by name."""
        self._open: list[tuple[Question, float | None]] = []
        """Questions that no measurement has decided yet, with the guesses."""

    def run(self, perform: Perform) -> None:
        """Show every step; ``perform`` carries out the actions."""
        if self.answers.source is AnswersFrom.NONE:
            page.show_skipped(self.console)
        for step in self.lesson.steps:
            match step:
                case Text():
                    self._show_text(step)
                case Question():
                    self._ask(step)
                case Result():
                    self._show_result(step)
                case _:
                    self._perform(step, perform)
        for question, guess in self._open:
            self._reveal(question, guess)
        conclude(self.record)

    def _show_text(self, step: Text) -> None:
        shown = TextRecord(markdown=filled(step.markdown, self.done))
        self.record.steps.append(shown)
        page.show_text(shown, self.console)

    def _ask(self, question: Question) -> None:
        page.show_question(question.ask, [choice.text for choice in question.choices], self.console)
        self._open.append((question, self.answers.guess(question)))
        self._reveal_decided()

    def _perform(self, action: Any, perform: Perform) -> None:
        page.show_begin(action.words, self.console)
        with progress(action.words):
            done = perform(action)
        self.done[action.name] = done
        self.record.machine_s += done.seconds
        self.record.steps.append(done)
        page.show_action(done, self.console)
        self._reveal_decided()

    def _reveal_decided(self) -> None:
        decided = [one for one in self._open if one[0].needs <= self.done.keys()]
        self._open = [one for one in self._open if one not in decided]
        for question, guess in decided:
            self._reveal(question, guess)

    def _reveal(self, question: Question, guess: float | None) -> None:
        answer = answered(question, guess, self.done)
        self.record.steps.append(answer)
        page.show_answer(answer, self.console)
        self.answers.wait()

    def _show_result(self, step: Result) -> None:
        result = result_of(step, self.done)
        self.record.steps.append(result)
        page.show_result(result, self.console)


def answered(question: Question, guess: float | None, done: Mapping[str, ActionRecord]) -> QuestionRecord:
    """Return the record of a question, with the answer that the measured values give."""
    kinds = {name: action.do for name, action in done.items()}
    if question.measured is not None:
        measured = question.measured.of(done)
        known = all(one.action in kinds for one in question.measured.references)
        unit = question.unit if question.unit is not None else question.measured.unit(kinds) if known else ""
        decided_by = [" / ".join(map(str, question.measured.references))]
    else:
        measured, unit = chosen(question, done), ""
        decided_by = [choice.when.text if choice.when else "otherwise" for choice in question.choices]
    expected = None if measured is None else as_expected(question, measured)
    return QuestionRecord(
        name=question.name,
        ask=question.ask,
        choices=[choice.text for choice in question.choices],
        unit=unit,
        decided_by=decided_by,
        guess=guess,
        measured=measured,
        near=None if guess is None or measured is None else is_near(question, guess, measured),
        as_expected=expected,
        explanation=filled(question.explain if expected or not question.otherwise else question.otherwise, done)
        if expected is not None
        else "",
    )


def chosen(question: Question, done: Mapping[str, ActionRecord]) -> float | None:
    """Return the number of the first choice whose condition holds, from 1; None if a value was not measured."""
    for number, choice in enumerate(question.choices, start=1):
        holds = True if choice.when is None else choice.when.holds(done)
        if holds is None:
            return None
        if holds:
            return float(number)
    return None


def as_expected(question: Question, measured: float) -> bool:
    """Return whether the measured answer is the one that the lesson expects."""
    if isinstance(question.expect, str):
        return LETTERS[int(measured) - 1] in question.expect
    least, most = question.expect
    return least <= measured <= most


def is_near(question: Question, guess: float, measured: float) -> bool:
    """Return whether a guess agrees with the measurement: the same choice, or a number within `Question.near`."""
    if question.choices:
        return guess == measured
    return abs(guess - measured) <= question.near * abs(measured)


def result_of(step: Result, done: Mapping[str, ActionRecord]) -> ResultRecord:
    """Return the record of a table of measured values."""
    kind = next((done[name].do for name in step.actions if name in done), "cut")
    meanings = [meaning_of(kind, column) for column in step.columns]
    return ResultRecord(
        title=step.title,
        columns=[heading_of(kind, column) for column in step.columns],
        meanings=[one.text for one in meanings],
        units=[one.unit for one in meanings],
        bar=step.columns.index(step.bar) if step.bar else len(step.columns) - 1,
        rows=[
            ResultRow(
                title=done[name].title if name in done else name,
                values=[Reference(name, column).of(done) for column in step.columns],
            )
            for name in step.actions
        ],
    )


def conclude(record: LessonRecord) -> None:
    """Fill in the outcome: PASS if each answer was measured and is as the lesson expects."""
    parts = [Part(one.outcome, f"{one.title}: {one.error}") for one in record.actions if one.error is not None]
    unmeasured = [one.name for one in record.questions if one.measured is None]
    unexpected = [one.name for one in record.questions if one.as_expected is False]
    for reason, found in (
        ("the measurement gives no answer", unmeasured),
        ("not as the lesson expects", unexpected),
    ):
        if found and not parts:
            parts.append(Part(Outcome.INCONCLUSIVE, f"{reason}: {', '.join(found)}"))
    record.outcome, record.reason = concluded(parts, "every measurement is as the lesson expects")
