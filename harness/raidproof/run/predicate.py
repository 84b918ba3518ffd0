"""The predicates of a bisection: each repetition tests one candidate once, and returns an answer with its evidence."""

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from raidproof.core import command
from raidproof.core.errors import RequestError, RigError, Status
from raidproof.core.topology import Platform, SoftwareSpec, Topology, server_and_clients
from raidproof.crash.exploration import Budget
from raidproof.plan.axes import read_value
from raidproof.plan.cell import Cell, Matrix, matrix_of
from raidproof.plan.plan import Plan
from raidproof.provider.registry import prepare
from raidproof.record.bisection import CandidateAnswer, RepetitionResult
from raidproof.record.exploration import ExplorationRecord
from raidproof.record.outcome import Outcome
from raidproof.record.run import CrashTestRecord
from raidproof.record.sensitivity import noticed_in_states
from raidproof.run.candidates import Trial, filled, typed
from raidproof.run.crash_states import Options
from raidproof.run.exploration import explore_cycle
from raidproof.run.plan_runner import PlanRunner, cut_of, record_of
from raidproof.run.platform import words_of
from raidproof.run.run import Run
from raidproof.run.source import source_of
from raidproof.verdict.cell import why_not_of_the_hardware
from raidproof.verdict.crash_states import noticed_by

SKIP = 125
"""Exit status of a command that cannot test a candidate, as for `git bisect run`."""
COMMAND_DEADLINE_S = 24 * 3600.0
_STATUSES = {
    Status.PASS: CandidateAnswer.GOOD,
    Status.FAIL: CandidateAnswer.BAD,
    Status.ERROR: CandidateAnswer.UNKNOWN,
    Status.INVALID: CandidateAnswer.UNKNOWN,
    Status.INCONCLUSIVE: CandidateAnswer.UNKNOWN,
    Status.REQUIREMENT_MISSING: CandidateAnswer.UNTESTABLE,
    SKIP: CandidateAnswer.UNTESTABLE,
}
"""The answer for each exit status of a command; any other status ends the bisection."""
_OUTCOMES = {
    Outcome.PASS: CandidateAnswer.GOOD,
    Outcome.FAIL: CandidateAnswer.BAD,
    Outcome.ERROR: CandidateAnswer.UNKNOWN,
    Outcome.INVALID: CandidateAnswer.UNKNOWN,
    Outcome.INCONCLUSIVE: CandidateAnswer.UNKNOWN,
    Outcome.SKIP: CandidateAnswer.UNTESTABLE,
}
ALL_MACHINES = "all"
ROLES = (ALL_MACHINES, "server", "clients")
"""The machines that can have a candidate's software."""
Repeat = Callable[[int], RepetitionResult]
"""A function that tests a candidate once; the argument is the number of the repetition, from 1."""


class Predicate(Protocol):
    """Tests candidates."""

    @property
    def description(self) -> str:
        """Description of the predicate for records."""

    def refuse(self, trial: Trial) -> None:
        """Check before any build that candidates such as this one can be tested.

        Raises:
            RequestError: they cannot.
        """

    def on(self, trial: Trial, label: str) -> AbstractContextManager[Repeat]:
        """Return a context manager in which a candidate can be tested; ``label`` is part of names of runs and logs.

        Raises:
            RequirementMissing: this host lacks a program that the test needs.
            RigError: the machines of the candidate cannot be prepared.
        """


def answer_of(status: int) -> CandidateAnswer | None:
    """Return the answer for the exit status of a command; None if the bisection must end."""
    return _STATUSES.get(status)


def git_status(status: int) -> int:
    """Return the exit status for `git bisect run`: 0 good, 1 bad, 125 cannot say; 128 ends `git bisect run`."""
    if status == Status.INTERRUPTED:
        return Status.INTERRUPTED
    match answer_of(status):
        case CandidateAnswer.GOOD:
            return 0
        case CandidateAnswer.BAD:
            return 1
        case None:
            return 128
        case _:
            return SKIP


@dataclass(frozen=True)
class Command:
    """A command of the user, whose exit status is the answer."""

    words: tuple[str, ...]
    logs: Path
    """The folder for the outputs of the command."""

    @property
    def description(self) -> str:
        """Description of the predicate for records."""
        return f"exit status of {shlex.join(self.words)}"

    def refuse(self, trial: Trial) -> None:
        """Do nothing: only a build gives the texts of all placeholders."""

    @contextmanager
    def on(self, trial: Trial, label: str) -> Iterator[Repeat]:
        """Yield a function that runs the command once, in the work tree of the candidate if it has one."""
        words = filled(self.words, trial)

        def repeat(number: int) -> RepetitionResult:
            return run_logged(words, self.logs / f"{label}-{number}.log", trial.folder)

        yield repeat


def run_logged(words: Sequence[str], log: Path, folder: Path | None) -> RepetitionResult:
    """Run a command with its output in a log file, and return the answer of its exit status.

    Raises:
        KeyboardInterrupt: the command was interrupted.
        RequestError: the command refused its arguments, or its exit status has no meaning.
        RequirementMissing: the command is not installed.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", buffering=1) as file:
        ended = command.follow(
            words, lambda line: print(line, file=file), environment={}, folder=folder, deadline_s=COMMAND_DEADLINE_S
        )
    if ended.status == Status.INTERRUPTED:
        raise KeyboardInterrupt
    answer = answer_of(ended.status)
    if answer is None:
        meaning = "it refused its arguments" if ended.status == Status.BAD_REQUEST else "which says nothing"
        raise RequestError(
            f"the command ended with exit status {ended.status}, {meaning}: {shlex.join(words)} (output: {log})",
            remedy="the command must end with 0 if the candidate is good, 1 if it is bad, 125 if it cannot say",
        )
    return RepetitionResult(answer=answer, reason=f"exit status {ended.status}", evidence=str(log))


@dataclass(frozen=True)
class Scenario:
    """A scenario of pytest, which fails on bad candidates."""

    node: str
    """Path of the scenario and its name, as for pytest."""
    platform: Platform
    """Provider, and software of all candidates."""
    machines: str
    """The machines that have a candidate's software, one of `ROLES`."""
    logs: Path

    @property
    def description(self) -> str:
        """Description of the predicate for records."""
        return f"scenario {self.node}"

    def refuse(self, trial: Trial) -> None:  # noqa: ARG002
        """Check that the file of the scenario exists.

        Raises:
            RequestError: it does not exist.
        """
        path = self.node.partition("::")[0]
        if not Path(path).exists():
            raise RequestError(f"--scenario {self.node}: there is no file {path}")

    @contextmanager
    def on(self, trial: Trial, label: str) -> Iterator[Repeat]:
        """Yield a function that runs the scenario once, with raidproof's exit statuses."""
        platform = platform_with(self.platform, trial.software, self.machines)
        options = words_of(server_and_clients(platform=platform))
        words = [sys.executable, "-m", "raidproof.pytest_plugin", self.node, "--exhaustive", *options]

        def repeat(number: int) -> RepetitionResult:
            results = self.logs / f"{label}-{number}"
            found = run_logged([*words, "--results", str(results)], self.logs / f"{label}-{number}.log", None)
            runs = sorted(str(path) for path in results.glob("*/")) if results.is_dir() else []
            return found.model_copy(update={"evidence": ", ".join(runs) or found.evidence})

        yield repeat


def platform_with(platform: Platform, software: SoftwareSpec, machines: str) -> Platform:
    """Return a platform on which all machines, the server or the clients have a candidate's software."""
    changed = {
        role: software.over(common) if machines in {ALL_MACHINES, role} else common
        for role, common in (("server", platform.server), ("clients", platform.clients))
    }
    return platform.model_copy(update=changed)


class CellPart(Protocol):
    """What a predicate of a plan's cell does in each repetition."""

    def begin(self, current_run: Run, matrix: Matrix, path: Path) -> Repeat:
        """Return a function that tests the only cell of the matrix once, in a run."""

    def __str__(self) -> str: ...


@dataclass(frozen=True)
class PlannedCell:
    """One cell of a plan, on the software or with the setting of each candidate."""

    plan: Plan
    path: Path
    """Path of the plan's file."""
    select: str | None
    """Expression that selects the cell."""
    platform: Platform
    """Provider, and software of all candidates."""
    machines: str
    """The machines that have a candidate's software, one of `ROLES`."""
    results: Path
    part: CellPart

    @property
    def description(self) -> str:
        """Description of the predicate for records."""
        return f"plan {self.path}{f' -k {shlex.quote(self.select)}' if self.select else ''}: {self.part}"

    def refuse(self, trial: Trial) -> None:
        """Check that the plan has exactly one selected cell with the candidate's setting.

        Raises:
            RequestError: it has none, or several.
        """
        self.matrix(trial)

    def matrix(self, trial: Trial) -> Matrix:
        """Return the matrix with only the selected cell, with the candidate's setting.

        Raises:
            RequestError: the expression selects no cell, or several; or the setting is impossible.
        """
        plan = self.plan
        for key, value in trial.setting.items():
            axes = {name: values for name, values in plan.axes.items() if name != key}
            fixed = {**plan.fixed, key: read_value(key, typed(value))}
            plan = plan.model_copy(update={"axes": axes, "fixed": fixed})
        matrix = matrix_of(plan).select(self.select)
        if len(matrix.cells) != 1:
            names = ", ".join(repr(cell.name) for cell in matrix.cells[:3])
            raise RequestError(
                f"{len(matrix.cells)} cells are selected, but a bisection tests one: {names}, ...",
                remedy="select one with -k, for example 'level=5 and export=sync'",
            )
        return matrix

    def topology(self, trial: Trial) -> Topology:
        """Return the lab of the plan with the candidate's software."""
        self.plan.hardware.refuse_auto("in a bisection")
        return self.plan.hardware.topology(platform_with(self.platform, trial.software, self.machines))

    @contextmanager
    def on(self, trial: Trial, label: str) -> Iterator[Repeat]:
        """Yield a function that tests the cell once, in a run of its own for this candidate."""
        matrix, topology = self.matrix(trial), self.topology(trial)
        prepare(topology)
        with Run(f"bisect-{label}", self.results, topology) as current_run:
            yield self.part.begin(current_run, matrix, self.path)


@dataclass(frozen=True)
class Speed:
    """Measures the cell in each repetition."""

    bound: float

    def __str__(self) -> str:
        return f"slower than {self.bound:g}"

    def begin(self, current_run: Run, matrix: Matrix, path: Path) -> Repeat:
        """Return a function that makes one repetition of the cell."""
        current_run.record.plan = record_of(matrix, path)
        runner = PlanRunner(replace(matrix, cells=()), current_run)
        cell = matrix.cells[0]

        def repeat(_number: int) -> RepetitionResult:
            return self.result(runner, cell).model_copy(update={"evidence": current_run.store.path.name})

        return repeat

    def result(self, runner: PlanRunner, cell: Cell) -> RepetitionResult:
        """Make one repetition of the cell, and return its value.

        A value below the bound that the rig limited proves nothing about the candidate.
        """
        record = runner.measure(cell)
        last = record.repeats[-1] if record.repeats else None
        if record.not_effective is not None:
            return RepetitionResult(answer=CandidateAnswer.UNTESTABLE, reason=record.not_effective)
        if last is None or last.value is None or last.value <= 0:
            reason = (last.rig_error if last else None) or "no value was measured"
            return RepetitionResult(answer=CandidateAnswer.UNKNOWN, reason=reason)
        limited = why_not_of_the_hardware(record)
        if limited is not None and last.value < self.bound:
            return RepetitionResult(
                answer=CandidateAnswer.UNKNOWN, reason=f"{last.value:g} {record.unit}, but {limited}"
            )
        said = f"{last.value:g} {record.unit}"
        return RepetitionResult(answer=CandidateAnswer.MEASURED, reason=said, value=last.value)


@dataclass(frozen=True)
class Promise:
    """Cuts the power of the cell's configuration in each repetition, and judges a promise."""

    kind: str | None
    """Kind of the operation whose promise is judged, a key of `PROMISES`; None: any failure counts."""

    def __str__(self) -> str:
        return f"power cut breaks the promise {self.kind!r}" if self.kind else "power cut breaks a promise"

    def begin(self, current_run: Run, matrix: Matrix, path: Path) -> Repeat:  # noqa: ARG002
        """Return a function that makes one crash test."""

        def repeat(_number: int) -> RepetitionResult:
            return self.result(crash_test(current_run, matrix)).model_copy(
                update={"evidence": f"{current_run.store.path.name}, {current_run.record.cycles[-1].name}"}
            )

        return repeat

    def result(self, cycle: CrashTestRecord) -> RepetitionResult:
        """Return the answer that a crash test gives."""
        return self._answer(cycle).model_copy(update={"noticed": noticed_by(cycle)})

    def _answer(self, cycle: CrashTestRecord) -> RepetitionResult:
        if self.kind is None or cycle.outcome in (Outcome.ERROR, Outcome.SKIP):
            return RepetitionResult(answer=_OUTCOMES[cycle.outcome], reason=cycle.reason)
        about = [one for one in cycle.verdicts if one.kind == self.kind]
        for outcome in (Outcome.FAIL, Outcome.PASS):
            if (found := next((one for one in about if one.outcome is outcome), None)) is not None:
                return RepetitionResult(answer=_OUTCOMES[outcome], reason=f"{found.checker}: {found.reason}")
        return RepetitionResult(answer=CandidateAnswer.UNKNOWN, reason=f"no verdict about {self.kind}: {cycle.reason}")


def crash_test(current_run: Run, matrix: Matrix) -> CrashTestRecord:
    """Make one crash test of the configuration of a matrix's only cell; its name is unique in the run."""
    number = len(current_run.record.cycles) + 1
    return current_run.cycle(cut_of(matrix.plan, matrix.cells[0], f"cut-{number:03}"))


@dataclass(frozen=True)
class CrashStates:
    """Cuts the power of the cell's configuration in each repetition, and explores the crash states."""

    states: int
    """Number of crash states to check in each repetition."""
    failure: str | None = None
    """Name of a promise or of a damage; None: crash states are counted."""
    share: float = 0.0
    """Greatest share of broken crash states of a good candidate."""

    def __str__(self) -> str:
        if self.failure is not None:
            return f"a crash state of {self.states:,} shows {self.failure!r}"
        return f"more than {self.share:.3g} of {self.states:,} crash states are broken"

    def begin(self, current_run: Run, matrix: Matrix, path: Path) -> Repeat:  # noqa: ARG002
        """Return a function that makes one crash test and explores its crash states."""

        def repeat(number: int) -> RepetitionResult:
            cycle = crash_test(current_run, matrix)
            evidence = f"{current_run.store.path.name}, {cycle.name}"
            if cycle.outcome in (Outcome.ERROR, Outcome.SKIP):
                return RepetitionResult(answer=_OUTCOMES[cycle.outcome], reason=cycle.reason, evidence=evidence)
            options = Options(Budget(self.states), seed=number, explained=0)
            try:
                record, _ = explore_cycle(source_of(current_run.store, cycle.name), options)
            except (RequestError, RigError) as error:
                return RepetitionResult(answer=CandidateAnswer.UNKNOWN, reason=str(error), evidence=evidence)
            return self.result(record).model_copy(
                update={"evidence": evidence, "noticed": noticed_in_states(record.sensitivity, record.judged)}
            )

        return repeat

    def result(self, record: ExplorationRecord) -> RepetitionResult:
        """Return the answer that an exploration gives."""
        if record.outcome is Outcome.ERROR or not record.judged:
            return RepetitionResult(answer=CandidateAnswer.UNKNOWN, reason=record.reason)
        counts = {"broken": record.broken, "judged": record.judged}
        said = f"{record.broken:,} of {record.judged:,} crash states are broken"
        if self.failure is None:
            return RepetitionResult.model_validate({"answer": CandidateAnswer.MEASURED, "reason": said, **counts})
        shown = [one for one in record.failures if self.failure in (one.promise, one.damage)]
        answer = CandidateAnswer.BAD if shown else CandidateAnswer.GOOD
        if shown:
            said = f"{shown[0].promise}: {shown[0].damage} in {shown[0].states:,} of {record.judged:,} crash states"
        return RepetitionResult.model_validate({"answer": answer, "reason": said, **counts})
