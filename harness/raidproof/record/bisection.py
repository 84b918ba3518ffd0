"""The record schema of a bisection: its candidates, the repetitions on each tested candidate, and the result."""

from datetime import datetime
from enum import StrEnum

from pydantic import Field

from raidproof.record.cell import Strict
from raidproof.record.sensitivity import Noticed

BISECTION_SCHEMA = 1


class CandidateAnswer(StrEnum):
    """The result of one repetition on a candidate, or the decision about the candidate."""

    GOOD = "good"
    BAD = "bad"
    MEASURED = "measured"
    """Of a repetition: it has a value or counts, and only all repetitions together decide."""
    UNKNOWN = "cannot say"
    """Of a repetition: it neither showed the failure nor could have shown it; another repetition may."""
    UNTESTABLE = "untestable"
    """The candidate does not build, does not boot, or gave no answer."""


class RepetitionResult(Strict):
    """One repetition of the predicate on a candidate."""

    answer: CandidateAnswer
    reason: str
    value: float | None = None
    """The measured value of a cell, in its unit; None if the predicate measures nothing."""
    broken: int | None = None
    """Number of crash states that break a promise; None if the predicate does not count crash states."""
    judged: int | None = None
    """Number of crash states that were checked; None if the predicate does not count crash states."""
    noticed: Noticed | None = None
    """The missing flushes that the crash test would have shown; None if not known, and without a crash test."""
    evidence: str | None = None
    """Name of the run, or path of the log, with the evidence; None without one."""
    seconds: float = 0.0


class StepRecord(Strict):
    """The repetitions on one candidate, and the decision."""

    index: int
    """Index of the candidate, from 0, the good end."""
    results: list[RepetitionResult] = Field(default_factory=list)
    decision: CandidateAnswer | None = None
    """GOOD, BAD or UNTESTABLE; None as long as repetitions remain."""
    reason: str = ""
    error: float = 0.0
    """Probability that the decision is wrong, by the model of the predicate's rule."""
    built: bool = False
    """Whether the candidate was built, or taken from the cache of builds."""
    build_s: float = 0.0
    """Seconds for checkouts and builds of this candidate."""


class CandidateRecord(Strict):
    """One candidate: a commit, a version of packages, or a value of an axis."""

    name: str
    """Identifier of the candidate: the commit's hash, the version, or the setting ``key=value``."""
    title: str = ""
    """Subject of the commit, or the names of the packages; empty for a setting."""


class BisectionRecord(Strict):
    """A bisection, complete or not; ``--resume`` continues from this record."""

    schema_version: int = BISECTION_SCHEMA
    name: str
    started: datetime
    ended: datetime | None = None
    """None as long as the bisection is not complete."""
    command: list[str]
    digest: str
    """Digest of the request; only the same request can continue the bisection."""
    predicate: str
    """Description of the predicate."""
    model: str
    """Description of the statistical model by which repetitions decide about a candidate."""
    error_of_a_step: float
    """Bound of the error probability of each decision."""
    candidates: list[CandidateRecord]
    """All candidates from the good end to the bad end."""
    steps: list[StepRecord] = Field(default_factory=list)
    """The tested candidates, in the order of their tests; the first two are the ends."""
    first_bad: list[int] = Field(default_factory=list)
    """Indices of the candidates of which one is the first bad one: a single index, or several because of candidates
    that cannot be tested. Empty as long as the bisection is not complete."""
    again: list[str] = Field(default_factory=list)
    """The command line that shows the failure of the first bad candidate again."""

    def step_of(self, index: int) -> StepRecord | None:
        """Return the step of the candidate with this index; None if the candidate was not tested."""
        return next((step for step in self.steps if step.index == index), None)

    @property
    def builds(self) -> int:
        """Number of candidates that were built or taken from the cache of builds."""
        return sum(step.built for step in self.steps)

    @property
    def repetitions(self) -> int:
        """Number of repetitions of the predicate on all candidates."""
        return sum(len(step.results) for step in self.steps)

    @property
    def build_s(self) -> float:
        """Seconds of all checkouts and builds."""
        return sum(step.build_s for step in self.steps)

    @property
    def test_s(self) -> float:
        """Seconds of all repetitions."""
        return sum(one.seconds for step in self.steps for one in step.results)

    @property
    def error(self) -> float:
        """Greatest probability that the result is wrong: the sum of the error probabilities of all decisions."""
        return min(1.0, sum(step.error for step in self.steps))
