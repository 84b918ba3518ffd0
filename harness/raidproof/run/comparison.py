"""`raidproof ab`: run one plan alternately on two sides with different software, so that drift affects both."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Protocol, TypeVar

from raidproof.core.errors import RequestError, RequirementMissing, RigError
from raidproof.core.log import progress, say, step
from raidproof.core.topology import Platform, SoftwareSpec
from raidproof.core.units import GIB
from raidproof.core.waiting import Deadline
from raidproof.plan.cell import Matrix
from raidproof.plan.forecast import expect, in_words, left_in_words
from raidproof.provider.registry import prepare
from raidproof.record import RunRecord, RunStore
from raidproof.record.comparison import BASE, MARGIN, NEW, ComparisonRecord, PairFinding
from raidproof.record.known import KnownDifference
from raidproof.record.results.index import update
from raidproof.record.results.names import NAMED, RECORD
from raidproof.record.results.run_lock import locked
from raidproof.report.html import write_comparison
from raidproof.run.doctor import require_host
from raidproof.run.plan_runner import PlanRunner, record_of
from raidproof.run.run import Run
from raidproof.run.slow_motion import with_probed_factor
from raidproof.verdict.cell import judge_cells
from raidproof.verdict.change.comparison import compare, why_nothing_is_compared
from raidproof.verdict.change.foresight import foresee, looks_of
from raidproof.verdict.known import known_today

T = TypeVar("T")
NEWEST_RUNS = 10
"""Number of earlier runs of a plan, the newest, from which the variation of its cells is taken."""
ROLES = ("server", "clients")


def side_of(words: Iterable[str], common: Platform) -> Platform:
    """Return the platform of one side: the software that its command line words name, else the common software.

    ``kernel=debian/sid`` applies to all machines, ``server.kernel=debian/sid`` to the server only.

    Raises:
        RequestError: a word is not KEY=VALUE, or the provider is ``hosts``.
    """
    if common.provider == "hosts":
        raise RequestError(
            "provider hosts cannot run two sides: the harness does not choose the software of these machines, and "
            "both sides would use the same disks",
            remedy="run the plan with `raidproof run` before and after the update, and compare the reports",
        )
    by_role: dict[str, list[str]] = {role: [] for role in ("", *ROLES)}
    for word in words:
        role, dot, rest = word.partition(".")
        # A dot may also be in a value or in a package's name.
        if dot and role in ROLES:
            by_role[role].append(rest)
        else:
            by_role[""].append(word)
    both = SoftwareSpec.read(by_role[""])
    server, clients = (
        SoftwareSpec.read(by_role[role]).over(both).over(planned)
        for role, planned in (("server", common.server), ("clients", common.clients))
    )
    return common.model_copy(update={"server": server, "clients": clients})


def in_turn(round_: int, index: int) -> tuple[int, int]:
    """Return the order in which the sides (0, 1) make a repetition of a cell; the first side alternates by round."""
    return (0, 1) if (round_ + index) % 2 else (1, 0)


@dataclass(frozen=True)
class Effort:
    """How a comparison is decided, and how much time it may take."""

    margin: float = MARGIN
    """The greatest change of a cell that is the same, as a share."""
    most_repeats: int | None = None
    """Add repetitions until all cells are decided, at most to this number; None: add none."""
    minutes: float | None = None
    """Add no repetition after this time; None: no limit."""

    def looks(self, matrix: Matrix) -> list[int]:
        """Return the numbers of repetitions after which the sides are compared."""
        return looks_of(matrix.plan.run.repeats, self.most_repeats or matrix.plan.run.repeats)


def with_enough_repeats(matrix: Matrix, most: int | None = None, *, on_workers: bool = False) -> Matrix:
    """Return a matrix whose default number of repetitions lets the test find a change at all.

    A number that the plan or the command line gives stays. ``most``: as `Effort.most_repeats`. ``on_workers``: as for
    `foresee`.
    """
    run = matrix.plan.run
    if "repeats" in run.model_fields_set:
        return matrix
    repeats = run.repeats
    while (
        found := foresee(
            [cell.name for cell in matrix.cells],
            repeats,
            (),
            looks=len(looks_of(repeats, most or 0)),
            on_workers=on_workers,
        )
    ).fewest > repeats:
        repeats = found.fewest
    say(f"{repeats} repetitions of each side: with fewer, the test can find no change in {len(matrix.cells)} cells")
    run = run.model_copy(update={"repeats": repeats})
    return replace(matrix, plan=matrix.plan.model_copy(update={"run": run}))


def earlier_runs(name: str, results: Path) -> Iterator[RunRecord]:
    """Yield the newest stored runs of a plan, those of a side included; a record that cannot be read is left out."""
    stems = {name, *(f"{name}-{side}" for side in (BASE, NEW))}
    paths = [path.parent for path in results.glob(f"*-{name}*/{RECORD}")]
    named = [path for path in paths if (found := NAMED.fullmatch(path.name)) and found[2] in stems]
    for path in sorted(named, reverse=True)[:NEWEST_RUNS]:
        with suppress(RequestError):
            yield RunStore(path).load()


def announce(
    matrix: Matrix,
    base: Platform,
    new: Platform,
    effort: Effort = Effort(),
    results: Path | None = None,
    *,
    on_workers: bool = False,
) -> list[str]:
    """Return lines about the software of the two sides, the smallest change that can be found, time and memory.

    ``on_workers``: as for `foresee`.
    """
    expected = expect(matrix)
    looks = effort.looks(matrix)
    stored = earlier_runs(matrix.plan.name, results) if results else ()
    found = foresee(
        [cell.name for cell in matrix.cells], matrix.plan.run.repeats, stored, looks=len(looks), on_workers=on_workers
    )
    added = f"; undecided cells get up to {looks[-1]} repetitions" if len(looks) > 1 else ""
    alike = (
        ["both sides request the same software: an A/A run, whose differences are due to chance"]
        if base == new
        else []
    )
    return [
        *(f"{name}: server {side.server}; clients {side.clients}" for name, side in ((BASE, base), (NEW, new))),
        *alike,
        f"{found}{added}",
        f"A/B: each repetition runs on one side, then on the other; about {in_words(2 * expected.total_s)} in total, "
        f"with two labs at the same time ({2 * expected.memory / GIB:.1f} GiB of memory)"
        f"{', divided by the number of workers' if on_workers else ''}",
    ]


def run_ab(
    matrix: Matrix,
    path: Path,
    results: Path,
    *,
    base: Platform,
    new: Platform,
    effort: Effort = Effort(),
    known: Sequence[KnownDifference] = (),
    carry_out: "Callable[[Sequence[PlanRunner], Effort], None] | None" = None,
) -> tuple[ComparisonRecord, Path]:
    """Run a plan on two sides, each a run with its own record; return the comparison and the path of its HTML report.

    ``known``: the differences that are expected today. ``carry_out`` makes the repetitions and the power cuts; None:
    `measure`. After an interruption, the repetitions made until then are kept
    and compared, and both labs end.

    Raises:
        RequirementMissing: this host cannot run a lab, or a machine lacks the program of a workload.
        RigError: a side's lab does not boot.
    """
    require_host()
    plan = matrix.plan
    topologies = [plan.hardware.topology(platform) for platform in (base, new)]
    with progress("preparing kernels and images"):
        for topology in topologies:
            prepare(topology)
        matrix = with_probed_factor(matrix, [base, new])
        topologies = [matrix.plan.hardware.topology(platform) for platform in (base, new)]
        store = RunStore.create(results, f"{plan.name}-ab")
        with locked(store.path):
            sides = [
                Run(f"{plan.name}-{name}", results, topology)
                for name, topology in zip((BASE, NEW), topologies, strict=True)
            ]
            try:
                with ExitStack() as undo:
                    for side in sides:
                        side.record.plan = record_of(matrix, path)
                        side.record.known = known_today(known)
                        undo.enter_context(side)
                    (carry_out or measure)([PlanRunner(matrix, side) for side in sides], effort)
            except KeyboardInterrupt:
                say(f"interrupted; the comparison of the repetitions made until now is in {store.path}")
                raise
            finally:
                comparison = compare(
                    sides[0].record,
                    sides[1].record,
                    name=store.path.name,
                    margin=effort.margin,
                    looks=len(effort.looks(matrix)),
                    known=known_today(known),
                )
                page = write_comparison(comparison, store)
    update(store.path)
    return comparison, page


Place = tuple[int, str]
"""A repetition: its round, and the name of its cell."""


class Hands(Protocol):
    """How repetitions and power cuts are made: in labs of this host, or by the workers of a cluster."""

    def begin(self, execution: PlanRunner) -> list[Place]:
        """Return the remaining repetitions of one side, in order."""
        ...

    def take_turns(self, named: Mapping[str, PlanRunner], places: Iterable[Place]) -> None:
        """Make repetitions on both sides alternately."""
        ...

    def finish(self, execution: PlanRunner) -> None:
        """Make the power cuts of one side."""
        ...


class OnThisHost:
    """Repetitions and power cuts in labs of this host."""

    def begin(self, execution: PlanRunner) -> list[Place]:
        """See `Hands.begin`; boot the lab of the side."""
        return execution.begin()

    def take_turns(self, named: Mapping[str, PlanRunner], places: Iterable[Place]) -> None:
        """See `Hands.take_turns`."""
        take_turns(named, places)

    def finish(self, execution: PlanRunner) -> None:
        """See `Hands.finish`."""
        execution.finish()


HERE = OnThisHost()


def measure(executions: Sequence[PlanRunner], effort: Effort = Effort(), hands: Hands = HERE) -> None:
    """Make every repetition on both sides alternately, then the power cuts of one side and of the other.

    If the booted machines of both sides run the same software although different software was requested, nothing is
    measured.

    Raises:
        RequirementMissing: a machine lacks the program of a workload.
        RigError: a side's lab does not boot.
    """
    named = dict(zip((BASE, NEW), executions, strict=True))
    deadline = None if effort.minutes is None else Deadline.after(60 * effort.minutes)
    left, _ = [on_side(name, partial(hands.begin, execution)) for name, execution in named.items()]
    base, new = (execution.current_run.record for execution in executions)
    if why_nothing_is_compared(base, new) is not None:
        return
    hands.take_turns(named, left)
    looks = effort.looks(executions[0].matrix)
    for done, target in pairwise(looks):
        open_cells = undecided(base, new, effort.margin, len(looks))
        if not open_cells or (deadline is not None and deadline.passed):
            break
        step(f"{len(open_cells)} cells are undecided: up to {target} repetitions of each side")
        hands.take_turns(named, added(executions, open_cells, range(done + 1, target + 1), deadline))
    for name, execution in named.items():
        if execution.plan.run.cut is not None:
            step(f"{name}: power cuts")
        on_side(name, partial(hands.finish, execution))


def added(
    executions: Sequence[PlanRunner], cells: Sequence[str], rounds: Iterable[int], deadline: Deadline | None
) -> Iterator[Place]:
    """Add rounds with these cells to both sides, and yield their repetitions; add none after the deadline."""
    for round_ in rounds:
        if deadline is not None and deadline.passed:
            return
        for execution in executions:
            for cell in cells:
                execution.add(round_, cell)
        yield from ((round_, cell) for cell in cells)


def take_turns(named: Mapping[str, PlanRunner], places: Iterable[Place]) -> None:
    """Make repetitions, given as round and cell, on both sides alternately."""
    executions = list(named.values())
    forecasts = [execution.forecast for execution in executions]
    for round_, cell in places:
        for place in in_turn(round_, executions[0].cells[cell].index):
            name = (BASE, NEW)[place]
            named[name].turn(round_, cell, who=f"{name}, ", left=left_in_words(*forecasts))


def undecided(base: RunRecord, new: RunRecord, margin: float, looks: int) -> list[str]:
    """Return the names of the cells whose comparison is undecided."""
    for record in (base, new):
        judge_cells(record)
    pairs = compare(base, new, name="", margin=margin, looks=looks).pairs
    return [pair.name for pair in pairs if pair.finding is PairFinding.UNDECIDED]


def on_side(name: str, action: Callable[[], T]) -> T:
    """Call a function for one side; the message of an error gets the side's name as prefix.

    Raises:
        RequirementMissing: the function raised RequirementMissing.
        RigError: the function raised RigError.
    """
    try:
        return action()
    except RequirementMissing as error:
        raise RequirementMissing(f"{name}: {error}") from error
    except RigError as error:
        raise RigError(f"{name}: {error}") from error
