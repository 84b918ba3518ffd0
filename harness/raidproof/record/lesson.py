"""The record schema of a lesson: its steps with the guesses of the learner and the values that were measured."""

from datetime import datetime
from enum import StrEnum
from statistics import median
from typing import Annotated, Literal

from pydantic import Field

from raidproof.record.cell import Strict
from raidproof.record.environment import Environment
from raidproof.record.outcome import Outcome

LESSON_SCHEMA = 1
LESSON_RECORD = "lesson.json"
"""Name of the file with the record of a lesson, in the directory of its run."""


class AnswersFrom(StrEnum):
    """The source of a lesson's answers."""

    TERMINAL = "terminal"
    """The learner typed them."""
    FILE = "file"
    """A file, or standard input, contained them."""
    NONE = "none"
    """There was no terminal and no file: every question was skipped."""


class ValueRecord(Strict):
    """One measured value of an action."""

    name: str
    """Name of the value in lesson files, such as ``lost_seconds``."""
    meaning: str
    """The value in words."""
    unit: str = ""
    """The unit; empty for a number of things."""
    each: list[float] = Field(min_length=1)
    """The value in each repetition, in the order of the repetitions."""

    @property
    def middle(self) -> float:
        """Median of the repetitions."""
        return median(self.each)


class TextRecord(Strict):
    """A text of the lesson."""

    step: Literal["text"] = "text"
    markdown: str
    """The text with the measured values in place of their names."""


class ActionRecord(Strict):
    """An action on the machines, and what was measured."""

    step: Literal["action"] = "action"
    name: str
    title: str
    do: str
    """The kind of action: ``cut``, ``measure``, ``explore``, ``locks``."""
    values: list[ValueRecord] = Field(default_factory=list)
    shown: list[str] = Field(default_factory=list)
    """Names of the values that the lesson shows after the action."""
    observed: list[str] = Field(default_factory=list)
    """Sentences about the observations, made from measured values."""
    commands: list[str] = Field(default_factory=list)
    """Commands and lines of configuration files with the settings of the action."""
    pages: list[str] = Field(default_factory=list)
    """Paths of pages with details, relative to the directory of the run."""
    seconds: float = 0.0
    """Duration of the action."""
    outcome: Outcome = Outcome.PASS
    """PASS: the action measured its values. Otherwise why not: the rig, the system, or a missing requirement."""
    error: str | None = None
    """Why the action measured nothing; None if it measured its values."""

    def value(self, name: str) -> ValueRecord | None:
        """Return the measured value of this name; None if it was not measured."""
        return next((one for one in self.values if one.name == name), None)


class QuestionRecord(Strict):
    """A question, the learner's guess, and the answer that the measurement gives."""

    step: Literal["question"] = "question"
    name: str
    ask: str
    choices: list[str] = Field(default_factory=list)
    """The choices; empty for a question about a number."""
    unit: str = ""
    """The unit of a number; empty for a choice."""
    decided_by: list[str]
    """The measured value that is the answer; of a choice: the condition on measured values of each choice."""
    guess: float | None = None
    """The learner's number, or the number of the chosen choice, from 1; None if the question was skipped."""
    measured: float | None = None
    """The measured number, or the number of the choice that the measurement gives; None if nothing was measured."""
    near: bool | None = None
    """Whether the guess agrees with the measurement; None if one of the two is missing."""
    as_expected: bool | None = None
    """Whether the measurement is as the lesson expects; None if nothing was measured."""
    explanation: str = ""
    """The lesson's text about the answer, with the measured values in place of their names."""


class ResultRow(Strict):
    """One row of a result: an action, and its values."""

    title: str
    values: list[float | None]
    """A value for each column; None if it was not measured."""


class ResultRecord(Strict):
    """A table that compares actions, with one column as bars."""

    step: Literal["result"] = "result"
    title: str
    columns: list[str]
    """Headings of the columns: the names of the values."""
    meanings: list[str]
    """The values in words."""
    units: list[str]
    """Unit of each column."""
    bar: int
    """Index of the column that is shown as bars, from 0."""
    rows: list[ResultRow]


Step = Annotated[TextRecord | ActionRecord | QuestionRecord | ResultRecord, Field(discriminator="step")]


class LessonRecord(Strict):
    """The record of one lesson of one learner."""

    schema_version: int = LESSON_SCHEMA
    lesson: str
    """Name of the lesson."""
    title: str
    digest: str
    """Digest of the lesson's file: records are comparable if it is equal."""
    learner: str = ""
    """Name of the learner, as given by ``--name``; empty if none was given."""
    seed: int
    answers_from: AnswersFrom
    started: datetime
    ended: datetime | None = None
    run: str = ""
    """Name of the run's directory; empty before the run begins."""
    command: list[str] = Field(default_factory=list)
    environment: Environment | None = None
    """The machines and the host; None if no machine booted."""
    boot_s: float | None = None
    """Seconds from the start of the machines until they were ready, while the learner reads; None without a boot."""
    machine_s: float = 0.0
    """Seconds in which the machines carried out actions."""
    steps: list[Step] = Field(default_factory=list)
    outcome: Outcome = Outcome.INCONCLUSIVE
    reason: str = "the lesson has not ended"

    @property
    def questions(self) -> list[QuestionRecord]:
        """The questions of the lesson, in order."""
        return [step for step in self.steps if isinstance(step, QuestionRecord)]

    @property
    def actions(self) -> list[ActionRecord]:
        """The actions of the lesson, in order."""
        return [step for step in self.steps if isinstance(step, ActionRecord)]


class LessonEntry(Strict):
    """A lesson in the list of lessons."""

    name: str
    """The name, or the path of the file, by which `raidproof teach` starts the lesson."""
    title: str
    level: str
    minutes: float
    """Time that the lesson takes, in minutes."""
    learn: list[str]
    """What one learns."""


class UnreadRecord(Strict):
    """A file that is no record of a lesson."""

    path: str
    reason: str


class ClassRecord(Strict):
    """The results of a class: the records of one lesson by several learners, gathered from a folder."""

    schema_version: int = LESSON_SCHEMA
    folder: str
    lessons: list[LessonRecord] = Field(default_factory=list)
    """The records, in the order of lesson, digest, and learner."""
    unread: list[UnreadRecord] = Field(default_factory=list)
