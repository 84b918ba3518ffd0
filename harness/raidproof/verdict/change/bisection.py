"""Decisions of a bisection: good or bad by repetitions with a bounded error, and the candidate to test next."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, exp, log, log2, prod
from statistics import fmean, stdev
from typing import Protocol

from scipy.stats import beta, t

from raidproof.record.bisection import CandidateAnswer, RepetitionResult

BAD_WANTED = 5
"""Number of BAD repetitions that the bad end must show, from which the rate of the failure is estimated."""
UNKNOWN_MOST = 3
"""Number of repetitions without an answer after which a candidate counts as untestable."""
LEAST_VALUES = 3
"""Number of values before the first test of a cell's speed: fewer have no reliable variance."""


@dataclass(frozen=True)
class Decision:
    """The decision about one candidate."""

    answer: CandidateAnswer
    """GOOD, BAD or UNTESTABLE."""
    reason: str
    error: float = 0.0
    """Probability that the decision is wrong, by the model of the rule."""


@dataclass(frozen=True)
class Seen:
    """The repetitions on candidates that are known to be bad."""

    bad: int = 0
    """Number of repetitions that showed the failure."""
    total: int = 0
    """Number of repetitions that showed the failure, or could have shown it."""


class Rule(Protocol):
    """Decides by repetitions whether a candidate is good or bad."""

    @property
    def model(self) -> str:
        """Description of the model, with its assumptions."""

    def decide(self, results: Sequence[RepetitionResult], seen: Seen, *, bad_end: bool) -> Decision | None:
        """Return the decision; None if a further repetition is needed.

        ``seen``: the repetitions on other candidates, which are known to be bad. ``bad_end``: whether the candidate is
        the bad end, whose repetitions also calibrate the rule.
        """

    def expected(self, seen: Seen) -> int:
        """Return how many repetitions a good candidate needs."""


def miss_probability(seen: Seen, repetitions: int) -> float:
    """Return the probability that a bad candidate shows no failure in this number of repetitions.

    With b failures in m repetitions on bad candidates, the failure's rate has the distribution Beta(b, m - b + 1),
    from which the Clopper-Pearson interval takes its lower bound. The result is the mean of (1 - rate)^n. If the
    repetitions end at the b-th failure, a rule that bounds this mean also bounds the probability of a miss for every
    true rate, averaged over m.
    """
    good = seen.total - seen.bad + 1
    return prod((good + number) / (seen.total + 1 + number) for number in range(repetitions))


@dataclass(frozen=True)
class Reproduction:
    """A failure that a bad candidate shows in some repetitions, and a good candidate in none."""

    error: float = 0.01
    """Bound of the probability that a bad candidate counts as good."""
    most: int = 50
    """Greatest number of repetitions on one candidate."""
    wanted: int = BAD_WANTED
    """Number of failures that the bad end must show."""
    once: bool = False
    """Whether one repetition decides, because the failure is known to occur in each repetition."""

    @property
    def model(self) -> str:
        """Description of the model, with its assumptions."""
        if self.once:
            return "one repetition decides: a bad candidate shows the failure in each repetition, a good one in none"
        return (
            "a good candidate never shows the failure, so that one failure proves a candidate bad. Bad candidates "
            "show it independently in each repetition, all with the same rate p; a candidate counts as good after n "
            "repetitions without the failure, with the mean of (1-p)^n over Beta(failures, others + 1) at most "
            f"{self.error:g}"
        )

    def decide(self, results: Sequence[RepetitionResult], seen: Seen, *, bad_end: bool) -> Decision | None:
        """Return the decision; None if a further repetition is needed."""
        bad = sum(one.answer is CandidateAnswer.BAD for one in results)
        total = bad + sum(one.answer is CandidateAnswer.GOOD for one in results)
        if bad and (self.once or not bad_end or bad >= self.wanted or total >= self.most):
            return Decision(CandidateAnswer.BAD, f"the failure occurred in {bad} of {_repetitions(total)}")
        if bad_end:
            never = total >= (1 if self.once else self.most)
            return (
                Decision(CandidateAnswer.GOOD, f"no failure in {_repetitions(total)}", 1.0)
                if never and not bad
                else None
            )
        if self.once:
            return Decision(CandidateAnswer.GOOD, "no failure in 1 repetition") if total else None
        missed = miss_probability(seen, total)
        if total and missed <= self.error:
            return Decision(CandidateAnswer.GOOD, f"no failure in {_repetitions(total)}", missed)
        if total >= self.most:
            needed = self.expected(seen)
            reason = f"no failure in {_repetitions(total)}, but {needed} are needed: it occurs too rarely"
            return Decision(CandidateAnswer.UNTESTABLE, reason)
        return None

    def expected(self, seen: Seen) -> int:
        """Return how many repetitions a good candidate needs; without any failure seen, how many the bad end needs."""
        if self.once or not seen.bad:
            return 1 if self.once else self.wanted
        number = 1
        while miss_probability(seen, number) > self.error:
            number += 1
        return number


@dataclass(frozen=True)
class SlowerThan:
    """A value that is below a bound on bad candidates, and above the bound on good candidates."""

    bound: float
    error: float = 0.01
    """Bound of the probability that the decision about a candidate is wrong."""
    most: int = 50
    """Greatest number of repetitions on one candidate."""

    @property
    def model(self) -> str:
        """Description of the model, with its assumptions."""
        return (
            "the logarithms of a candidate's values are independent and normally distributed. The candidate is bad "
            f"if a one-sided t interval of their mean lies below the logarithm of {self.bound:g}, good if above. "
            f"Tests follow at {LEAST_VALUES} values and at each time when the values have grown by a third; the j-th "
            f"test has the error probability {self.error:g}/2^j, so that all together have at most {self.error:g}"
        )

    def decide(self, results: Sequence[RepetitionResult], seen: Seen, *, bad_end: bool) -> Decision | None:  # noqa: ARG002
        """Return the decision; None if a further repetition is needed."""
        values = [one.value for one in results if one.value is not None]
        # Only the values at the instant of a test count, so that a resumed bisection decides as an uninterrupted one.
        for number, level in looks(len(values), LEAST_VALUES, self.error):
            ratio, margin = _ratio(values[:number], self.bound, level)
            said = f"{ratio:.3f} of the bound, confidence factor {margin:.3f}, in {_repetitions(number)}"
            if ratio * margin < 1:
                return Decision(CandidateAnswer.BAD, said, level)
            if ratio / margin > 1:
                return Decision(CandidateAnswer.GOOD, said, level)
        if len(values) >= self.most:
            return Decision(
                CandidateAnswer.UNTESTABLE, f"too near to the bound to decide in {_repetitions(len(values))}"
            )
        return None

    def expected(self, seen: Seen) -> int:  # noqa: ARG002
        """Return how many repetitions a good candidate needs."""
        return LEAST_VALUES


def _ratio(values: Sequence[float], bound: float, level: float) -> tuple[float, float]:
    """Return the geometric mean of positive values divided by the bound, and the factor of its one-sided interval."""
    logs = [log(value / bound) for value in values]
    # Equal values have no variance: the smallest difference that floating point shows stands for it.
    spread = max(stdev(logs), 1e-9)
    margin = float(t.isf(level, len(logs) - 1)) * spread / len(logs) ** 0.5
    return exp(fmean(logs)), exp(min(margin, 50.0))


@dataclass(frozen=True)
class MoreThanShare:
    """A share of broken crash states that is above a bound on bad candidates, and below it on good candidates."""

    share: float
    """The bound, from 0 to 1."""
    error: float = 0.01
    """Bound of the probability that the decision about a candidate is wrong."""
    most: int = 50
    """Greatest number of repetitions (explorations) on one candidate."""

    @property
    def model(self) -> str:
        """Description of the model, with its assumptions."""
        return (
            "each crash state of a candidate is broken independently with the same probability, also states of one "
            f"recording. The candidate is bad if a one-sided Clopper-Pearson interval lies above {self.share:.3g}, "
            f"good if it lies below; the j-th test has the error probability {self.error:g}/2^j"
        )

    def decide(self, results: Sequence[RepetitionResult], seen: Seen, *, bad_end: bool) -> Decision | None:  # noqa: ARG002
        """Return the decision; None if a further repetition is needed."""
        counted = [(one.broken, one.judged) for one in results if one.broken is not None and one.judged]
        for number, level in looks(len(counted), 1, self.error):
            broken = sum(one[0] for one in counted[:number])
            judged = sum(one[1] or 0 for one in counted[:number])
            said = f"{broken:,} of {judged:,} crash states are broken"
            # Clopper and Pearson's bounds of a proportion.
            if broken and float(beta.ppf(level, broken, judged - broken + 1)) > self.share:
                return Decision(CandidateAnswer.BAD, said, level)
            if broken < judged and float(beta.isf(level, broken + 1, judged - broken)) < self.share:
                return Decision(CandidateAnswer.GOOD, said, level)
        if len(counted) >= self.most:
            return Decision(
                CandidateAnswer.UNTESTABLE, f"too near to the bound to decide in {_repetitions(len(counted))}"
            )
        return None

    def expected(self, seen: Seen) -> int:  # noqa: ARG002
        """Return how many repetitions a good candidate needs."""
        return 1


def looks(repetitions: int, first: int, error: float) -> list[tuple[int, float]]:
    """Return the tests of a sequence of repetitions: the number of repetitions and the error probability of each test.

    The error probabilities of all tests sum up to less than ``error`` (Bonferroni's inequality).
    """
    found: list[tuple[int, float]] = []
    number = first
    while number <= repetitions:
        found.append((number, error / 2 ** (len(found) + 1)))
        number = max(number + 1, number * 4 // 3)
    return found


def without_answer(results: Sequence[RepetitionResult]) -> Decision | None:
    """Return the decision UNTESTABLE if a repetition excludes an answer, or if too many gave none; else None."""
    never = next((one for one in results if one.answer is CandidateAnswer.UNTESTABLE), None)
    if never is not None:
        return Decision(CandidateAnswer.UNTESTABLE, never.reason)
    unknown = [one for one in results if one.answer is CandidateAnswer.UNKNOWN]
    if len(unknown) >= UNKNOWN_MOST:
        return Decision(
            CandidateAnswer.UNTESTABLE, f"{len(unknown)} repetitions gave no answer, the last: {unknown[-1].reason}"
        )
    return None


def bounds(decided: Mapping[int, CandidateAnswer]) -> tuple[int, int]:
    """Return the last candidate that is known to be good, and the first that is known to be bad.

    ``decided``: the decision about each tested candidate by index; it contains a good and a bad candidate.
    """
    bad = min(index for index, answer in decided.items() if answer is CandidateAnswer.BAD)
    return max(index for index, answer in decided.items() if answer is CandidateAnswer.GOOD and index < bad), bad


def open_candidates(decided: Mapping[int, CandidateAnswer]) -> list[int]:
    """Return the indices of the candidates between good and bad that were not tested."""
    good, bad = bounds(decided)
    return [index for index in range(good + 1, bad) if index not in decided]


def next_candidate(decided: Mapping[int, CandidateAnswer]) -> int | None:
    """Return the index of the candidate to test next; None if no test can narrow the result down.

    It is the candidate in the middle. Next to candidates that cannot be tested, others probably cannot either: after s
    of them the next candidate is at least 2^(s-1) away from each, if there is one.
    """
    good, bad = bounds(decided)
    left = open_candidates(decided)
    if not left:
        return None
    skipped = [index for index in range(good + 1, bad) if index in decided]
    distance = 2 ** (len(skipped) - 1) if skipped else 0
    while True:
        far = [index for index in left if all(abs(index - one) >= distance for one in skipped)]
        if far:
            return min(far, key=lambda index: (abs(2 * index - good - bad), index))
        distance //= 2


def steps_left(decided: Mapping[int, CandidateAnswer]) -> int:
    """Return how many candidates remain to be tested, if all can be tested."""
    return ceil(log2(len(open_candidates(decided)) + 1))


def first_bad(decided: Mapping[int, CandidateAnswer]) -> list[int]:
    """Return the candidates of which one is the first bad one: those after the last good one, up to the first bad."""
    good, bad = bounds(decided)
    return list(range(good + 1, bad + 1))


def _repetitions(number: int) -> str:
    return f"{number} repetition{'' if number == 1 else 's'}"
