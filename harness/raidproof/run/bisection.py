"""A bisection: tests candidates until the first bad one is known; its state is stored after each repetition."""

import re
from collections.abc import Sequence
from pathlib import Path

from raidproof.core.errors import Inconclusive, RequestError, RigError
from raidproof.core.log import logger, say, step, to_file
from raidproof.core.waiting import now_ns, wall_clock
from raidproof.image import cache
from raidproof.image.kernel.source import BuildFailed
from raidproof.image.package import PackageBuildFailed
from raidproof.record.bisection import (
    BISECTION_SCHEMA,
    BisectionRecord,
    CandidateAnswer,
    RepetitionResult,
    StepRecord,
)
from raidproof.record.results.store import RunStore
from raidproof.record.stored import read_record
from raidproof.run.candidates import Candidates
from raidproof.run.predicate import Predicate, Repeat
from raidproof.verdict.change.bisection import (
    BAD_WANTED,
    Decision,
    Rule,
    Seen,
    first_bad,
    next_candidate,
    open_candidates,
    steps_left,
    without_answer,
)
from raidproof.verdict.change.noticed import comparable

RECORD = "bisection.json"
WHAT = "bisect"
"""End of the names of bisections' folders."""
SHOWN = 12
"""Number of characters of a candidate's name in messages: enough of a commit's hash."""
SHOW = "--show"
"""The option that tests one candidate again."""


class Bisection:
    """One bisection, new or resumed."""

    def __init__(
        self, candidates: Candidates, predicate: Predicate, rule: Rule, store: RunStore, record: BisectionRecord
    ) -> None:
        self.candidates, self.predicate, self.rule = candidates, predicate, rule
        self.store, self.record = store, record

    @property
    def decided(self) -> dict[int, CandidateAnswer]:
        """The decision about each candidate that was tested completely, by index."""
        return {one.index: one.decision for one in self.record.steps if one.decision is not None}

    def run(self) -> None:
        """Test the ends, then candidates between them, until the first bad one is known.

        Raises:
            RequestError: the good end is bad, or the bad end is good; or a command's exit status has no meaning.
            Inconclusive: an end cannot be tested.
            RequirementMissing: this host lacks a program.
            RigError: a candidate cannot be checked out, or the cache cannot be used.
        """
        with to_file(self.store.path / "raidproof.log"):
            self._save()
            try:
                last = len(self.record.candidates) - 1
                self._test_end(last, CandidateAnswer.BAD)
                self._test_end(0, CandidateAnswer.GOOD)
                while (index := next_candidate(self.decided)) is not None:
                    self._test(index, f"{len(open_candidates(self.decided))} left, about {self._steps()}")
            except (RequestError, Inconclusive):
                self.candidates.finish()
                raise
            except KeyboardInterrupt:
                say(f"interrupted; the same command with --resume continues the bisection in {self.store.path}")
                raise
            self.record.first_bad = first_bad(self.decided)
            self.record.again = again(self.record.command, self.record.candidates[self.record.first_bad[-1]].name)
            self.record.ended = wall_clock()
            self._save()
        self.candidates.finish()

    def _steps(self) -> str:
        number = steps_left(self.decided)
        return f"{number} step{'' if number == 1 else 's'}"

    def _test_end(self, index: int, expected: CandidateAnswer) -> None:
        self._test(index, f"the {expected} end")
        found = self.record.step_of(index)
        assert found is not None  # noqa: S101  just tested
        if found.decision is expected:
            return
        name = self.record.candidates[index].name[:SHOWN]
        if found.decision is CandidateAnswer.UNTESTABLE:
            # A resumed bisection tests this end again.
            self.record.steps.remove(found)
            self._save()
            raise Inconclusive(f"the {expected} end, {name}, cannot be tested: {found.reason}")
        raise RequestError(
            f"the {expected} end, {name}, is {found.decision}: {found.reason}",
            remedy="give ends between which the change occurred, or a predicate that shows it",
        )

    def _test(self, index: int, left: str) -> None:
        """Repeat the predicate on a candidate until it is decided; do nothing if it is decided already."""
        mine = self.record.step_of(index)
        if mine is None:
            mine = StepRecord(index=index)
            self.record.steps.append(mine)
        if mine.decision is not None:
            return
        candidate = self.record.candidates[index]
        said = f"candidate {candidate.name[:SHOWN]}{f' ({candidate.title})' if candidate.title else ''}"
        decision = self._decision(mine)
        if decision is None:
            decision = self._repeated(mine, said, left)
        mine.decision, mine.reason, mine.error = decision.answer, decision.reason, decision.error
        say(f"{said}: {decision.answer}: {decision.reason}")
        self._save()

    def _repeated(self, mine: StepRecord, said: str, left: str) -> Decision:
        begun = now_ns()
        step(f"{said}, {left}: preparing")
        try:
            trial = self.candidates.prepare(mine.index)
        except (BuildFailed, PackageBuildFailed) as error:
            return Decision(CandidateAnswer.UNTESTABLE, f"does not build: {error}")
        finally:
            mine.built = self.candidates.builds
            mine.build_s += (now_ns() - begun) / 1e9
        try:
            with self.predicate.on(trial, label_of(mine.index, self.record.candidates[mine.index].name)) as repeat:
                while (decision := self._decision(mine)) is None:
                    number = len(mine.results) + 1
                    step(f"{said}, {left}: repetition {number} of about {self._expected(mine)}")
                    mine.results.append(once(repeat, number))
                    self._save()
        except RigError as error:
            logger.exception("preparing the machines of candidate %s", mine.index)
            return Decision(CandidateAnswer.UNTESTABLE, f"its machines cannot be prepared: {error}")
        return decision

    def _expected(self, mine: StepRecord) -> int:
        return max(len(mine.results) + 1, self.rule.expected(self._seen(mine)))

    def _decision(self, mine: StepRecord) -> Decision | None:
        last = mine.index == len(self.record.candidates) - 1
        results = comparable(mine.results, self._others(mine))
        decided = self.rule.decide(results, self._seen(mine), bad_end=last)
        return decided or without_answer(results)

    def _others(self, mine: StepRecord) -> list[RepetitionResult]:
        """Return the repetitions on the other candidates that are known to be bad."""
        results = [
            one for other in self.record.steps if other.decision is CandidateAnswer.BAD for one in other.results
        ]
        return [one for one in results if mine.decision is not CandidateAnswer.BAD or one not in mine.results]

    def _seen(self, mine: StepRecord) -> Seen:
        """Return the numbers of repetitions on the other candidates that are known to be bad."""
        others = self._others(mine)
        results = comparable(others, ())
        bad = sum(one.answer is CandidateAnswer.BAD for one in results)
        return Seen(bad, bad + sum(one.answer is CandidateAnswer.GOOD for one in results))

    def show(self, name: str) -> Decision:
        """Test one candidate until it shows the failure, at most `BAD_WANTED` times, and return the decision.

        Raises:
            RequestError: no candidate, or more than one, has a name that begins with ``name``.
            BuildFailed: the candidate does not build.
            RigError: the candidate's machines cannot be prepared.
        """
        found = [index for index, one in enumerate(self.record.candidates) if one.name.startswith(name)]
        if len(found) != 1:
            raise RequestError(f"{SHOW} {name}: {len(found)} candidates have a name that begins so")
        try:
            return self._shown(found[0])
        finally:
            self.candidates.finish()

    def _shown(self, index: int) -> Decision:
        name = self.record.candidates[index].name
        trial = self.candidates.prepare(index)
        results: list[RepetitionResult] = []
        with self.predicate.on(trial, f"{label_of(index, name)}-again") as repeat:
            while len(results) < BAD_WANTED:
                step(f"candidate {name[:SHOWN]}: repetition {len(results) + 1}")
                results.append(once(repeat, len(results) + 1))
                # One failure proves a candidate bad, and several measured values may decide.
                if decision := self.rule.decide(results, Seen(), bad_end=False) or without_answer(results):
                    return decision
        answers = [one.answer for one in results]
        answer = CandidateAnswer.GOOD if CandidateAnswer.GOOD in answers else CandidateAnswer.UNTESTABLE
        return Decision(answer, f"no failure in {len(results)} repetitions: {results[-1].reason}")

    def _save(self) -> None:
        self.store.write_text(RECORD, self.record.model_dump_json(indent=1) + "\n")


def once(repeat: Repeat, number: int) -> RepetitionResult:
    """Make one repetition; return its result, which is UNKNOWN if the rig failed."""
    begun = now_ns()
    try:
        result = repeat(number)
    except RigError as error:
        logger.exception("repetition %d", number)
        result = RepetitionResult(answer=CandidateAnswer.UNKNOWN, reason=str(error))
    return result.model_copy(update={"seconds": (now_ns() - begun) / 1e9})


def label_of(index: int, name: str) -> str:
    """Return the part of the names of runs and logs that stands for a candidate."""
    return f"{index:03}-{re.sub(r'[^A-Za-z0-9.+-]+', '-', name)[:SHOWN]}"


def again(command: Sequence[str], name: str) -> list[str]:
    """Return the command line that tests one candidate of a bisection again; ``command``: that of the bisection."""
    words = list(command)
    end = words.index("--") if "--" in words else len(words)
    return [*(word for word in words[:end] if word != "--resume"), f"{SHOW}={name}", *words[end:]]


def digest_of(candidates: Candidates, predicate: Predicate, rule: Rule, *more: str) -> str:
    """Return the digest of a request; ``more``: further parts of the request that change its results."""
    return cache.digest(*(one.name for one in candidates.listed), predicate.description, repr(rule), *more)


def newest_of(digest: str, results: Path) -> RunStore:
    """Return the newest stored bisection of a request that is not complete.

    Raises:
        RequestError: the directory has none.
    """
    for path in sorted(results.glob(f"*-{WHAT}*/{RECORD}"), reverse=True):
        record = load(path)
        if record.digest == digest and record.ended is None:
            return RunStore(path.parent)
    raise RequestError(f"{results.absolute()} has no incomplete bisection of this request that could be resumed")


def load(path: Path) -> BisectionRecord:
    """Return a stored record of a bisection.

    Raises:
        RequestError: the file is not the record of a bisection, or of another schema version.
    """
    return read_record(path, BisectionRecord, BISECTION_SCHEMA, "a bisection")


def new_record(
    candidates: Candidates,
    predicate: Predicate,
    rule: Rule,
    *,
    name: str,
    digest: str,
    command: list[str],
    error: float,
) -> BisectionRecord:
    """Return the record of a bisection that has not begun."""
    return BisectionRecord(
        name=name,
        started=wall_clock(),
        command=command,
        digest=digest,
        predicate=predicate.description,
        model=rule.model,
        error_of_a_step=error,
        candidates=candidates.listed,
    )
