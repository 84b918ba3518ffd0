"""A lesson: its head and its steps, and the references from one step to another."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from raidproof.core.errors import RequestError, nearest
from raidproof.plan.hardware import Hardware
from raidproof.plan.table import Table, reader
from raidproof.report.lesson import LETTERS
from raidproof.teach.action import NAME, Action, Cut, Explore
from raidproof.teach.quantity import Condition, Reference, Term, meaning_of, placeholders


class Head(Table):
    """The head of a lesson's file."""

    title: str = Field(min_length=1)
    level: Literal["beginner", "intermediate", "advanced"] = "beginner"
    minutes: float = Field(gt=0, le=60)
    """Time that a class needs for the lesson, in minutes, with warm caches."""
    learn: tuple[str, ...] = Field(min_length=1)
    """What one learns, one sentence each."""
    hardware: Hardware = Hardware()
    """The hardware of the lab, as the table ``[hardware]`` of a plan."""


class Choice(Table):
    """One choice of a question."""

    text: str = Field(min_length=1)
    when: Annotated[Condition | None, reader(lambda text: None if text is None else Condition.read(str(text)))] = None
    """The condition under which this choice is the answer; without one, the choice is the answer if no other is."""


class Question(Table):
    """A question that measured values decide; the answer appears as soon as these values are measured."""

    name: str = Field(pattern=NAME)
    ask: str = Field(min_length=1)
    choices: tuple[Choice, ...] = Field(default=(), max_length=len(LETTERS))
    """The choices; the first one whose condition holds is the answer."""
    measured: Annotated[Term | None, reader(lambda text: None if text is None else Term.read(str(text)))] = None
    """The measured value that is the answer to a question about a number."""
    near: float = Field(default=0.25, ge=0, le=10)
    """Greatest difference of a guess that counts as near, as a share of the measured number."""
    unit: str | None = None
    """Unit of the number, if it is not that of the measured value."""
    expect: Annotated[
        str | tuple[float, float], BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)
    ]
    """The expected answer: the letter of a choice (or several letters), or the least and the greatest number."""
    explain: str = ""
    """Text that follows the answer."""
    otherwise: str = ""
    """Text that follows the answer instead of ``explain`` if the measurement is not as expected."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if bool(self.choices) == (self.measured is not None):
            raise ValueError("write either choices, or `measured` with the value that is the answer")
        if self.choices:
            self._possible_choices()
        elif not isinstance(self.expect, tuple) or self.expect[0] > self.expect[1]:
            raise ValueError("expect: write the least and the greatest expected number, such as [5, 40]")
        if not self.references:
            raise ValueError("no measured value decides the answer")
        return self

    def _possible_choices(self) -> None:
        if len(self.choices) < 2:
            raise ValueError("choices: write at least two")
        if any(choice.when is None for choice in self.choices[:-1]):
            raise ValueError("choices: only the last one may have no `when`")
        letters = LETTERS[: len(self.choices)]
        if not isinstance(self.expect, str) or not self.expect or not set(self.expect) <= set(letters):
            raise ValueError(f"expect: write the letter of the expected choice, {letters[0]} to {letters[-1]}")

    @property
    def references(self) -> tuple[Reference, ...]:
        """The measured values that decide the answer."""
        if self.measured is not None:
            return self.measured.references
        return tuple(one for choice in self.choices if choice.when is not None for one in choice.when.references)

    @property
    def needs(self) -> frozenset[str]:
        """Names of the actions whose values the question and its explanations need."""
        return frozenset(one.action for one in _in_question(self))


class Result(Table):
    """A table that compares actions by measured values."""

    title: str = Field(min_length=1)
    actions: tuple[str, ...] = Field(min_length=1)
    """Names of the actions, one row for each."""
    columns: tuple[str, ...] = Field(min_length=1)
    """Names of the values, one column for each."""
    bar: str | None = None
    """The value that is shown as bars; default: the last column."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.bar is not None and self.bar not in self.columns:
            raise ValueError(f"bar: not a column: {self.bar!r}; {nearest(self.bar, self.columns)}")
        return self


@dataclass(frozen=True)
class Text:
    """A text in Markdown."""

    markdown: str


Step = Text | Question | Result | Action


@dataclass(frozen=True)
class Placed:
    """A step and the line of the file at which it begins."""

    step: Any
    """A `Step`."""
    line: int


@dataclass(frozen=True)
class Lesson:
    """A lesson, read from a file."""

    name: str
    source: str
    """The path of the file."""
    digest: str
    """Digest of the file's content."""
    head: Head
    placed: tuple[Placed, ...]

    @property
    def steps(self) -> tuple[Any, ...]:
        """The steps, in order."""
        return tuple(one.step for one in self.placed)

    @property
    def actions(self) -> dict[str, Any]:
        """The actions by name, in order."""
        return {step.name: step for step in self.steps if not isinstance(step, Text | Question | Result)}

    @property
    def questions(self) -> tuple[Question, ...]:
        """The questions, in order."""
        return tuple(step for step in self.steps if isinstance(step, Question))

    def check(self) -> None:
        """Verify that names are unique, references lead to earlier measurements, and actions are possible.

        Raises:
            RequestError: a step is impossible; the message names file and line.
        """
        self._check_names()
        kinds: dict[str, str] = {}
        cuts: set[str] = set()
        every = {name: action.do for name, action in self.actions.items()}
        for one in self.placed:
            step = one.step
            if isinstance(step, Text):
                self._at(one.line, _known, _in_text, step, kinds, "before this text")
                continue
            if isinstance(step, Question):
                self._at(one.line, _known, _in_question, step, every, "in this lesson")
                continue
            if isinstance(step, Result):
                self._at(one.line, _known, _in_result, step, kinds, "before this result")
                continue
            self._at(one.line, step.refuse, self.head.hardware)
            if isinstance(step, Explore) and step.of not in cuts:
                raise RequestError(
                    f"{self.source}:{one.line}: of: no action `cut` named {step.of!r} comes before this action"
                )
            if isinstance(step, Cut):
                cuts.add(step.name)
            kinds[step.name] = step.do
        if not kinds:
            raise RequestError(f"{self.source}: the lesson has no action", remedy="docs/teaching.md has an example")

    def _check_names(self) -> None:
        """Verify that no two questions and no two actions have the same name."""
        questions, actions = set[str](), set[str]()
        for one in self.placed:
            if not isinstance(one.step, Text | Result):
                names = questions if isinstance(one.step, Question) else actions
                self._at(one.line, _unique, one.step.name, names)

    def _at(self, line: int, check: Callable[..., object], *arguments: Any) -> None:
        try:
            check(*arguments)
        except (RequestError, ValueError) as error:
            raise RequestError(f"{self.source}:{line}: {error}") from error


def _unique(name: str, names: set[str]) -> None:
    if name in names:
        raise RequestError(f"the name {name!r} is used twice")
    names.add(name)


def _known(references: Callable[[Any], Iterable[Reference]], step: Any, kinds: Mapping[str, str], where: str) -> None:
    """Verify that each reference of a step leads to a value that one of the actions measures."""
    for reference in references(step):
        if reference.action not in kinds:
            raise RequestError(
                f"{reference}: no action {reference.action!r} {where}; {nearest(reference.action, kinds)}"
            )
        meaning_of(kinds[reference.action], reference.value)


def _in_text(text: Text) -> tuple[Reference, ...]:
    return tuple(one for term in placeholders(text.markdown) for one in term.references)


def _in_question(question: Question) -> tuple[Reference, ...]:
    texts = (Text(question.explain), Text(question.otherwise))
    return (*question.references, *(one for text in texts for one in _in_text(text)))


def _in_result(result: Result) -> tuple[Reference, ...]:
    return tuple(Reference(action, column) for action in result.actions for column in result.columns)
