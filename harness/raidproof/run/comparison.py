"""`raidproof ab`: run one plan alternately on two sides with different software, so that drift affects both."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from raidproof.core.errors import RequestError, RequirementMissing, RigError
from raidproof.core.log import progress, say, step
from raidproof.core.topology import Platform, SoftwareSpec
from raidproof.core.units import GIB
from raidproof.plan.cell import Matrix
from raidproof.plan.forecast import expect, in_words, left_in_words
from raidproof.provider.registry import prepare
from raidproof.record import RunStore
from raidproof.record.comparison import BASE, NEW, ComparisonRecord
from raidproof.record.known import KnownDifference
from raidproof.report.html import write_comparison
from raidproof.run.doctor import require_host
from raidproof.run.plan_runner import PlanRunner, record_of
from raidproof.run.run import Run
from raidproof.verdict.comparison import compare, why_nothing_is_compared
from raidproof.verdict.known import known_today

T = TypeVar("T")
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


def announce(matrix: Matrix, base: Platform, new: Platform) -> list[str]:
    """Return lines about the requested software of the two sides, and the time and memory that both sides need."""
    expected = expect(matrix)
    alike = (
        ["both sides request the same software: an A/A run, whose differences are due to chance"]
        if base == new
        else []
    )
    return [
        *(f"{name}: server {side.server}; clients {side.clients}" for name, side in ((BASE, base), (NEW, new))),
        *alike,
        f"A/B: each repetition runs on one side, then on the other; about {in_words(2 * expected.total_s)} in total, "
        f"with two labs at the same time ({2 * expected.memory / GIB:.1f} GiB of memory)",
    ]


def run_ab(
    matrix: Matrix,
    path: Path,
    results: Path,
    *,
    base: Platform,
    new: Platform,
    known: Sequence[KnownDifference] = (),
) -> tuple[ComparisonRecord, Path]:
    """Run a plan on two sides, each a run with its own record; return the comparison and the path of its HTML report.

    ``known``: the differences that are expected today. After an interruption, the repetitions made until then are kept
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
        store = RunStore.create(results, f"{plan.name}-ab")
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
                measure([PlanRunner(matrix, side) for side in sides])
        except KeyboardInterrupt:
            say(f"interrupted; the comparison of the repetitions made until now is in {store.path}")
            raise
        finally:
            comparison = compare(sides[0].record, sides[1].record, name=store.path.name, known=known_today(known))
            page = write_comparison(comparison, store)
    return comparison, page


def measure(executions: Sequence[PlanRunner]) -> None:
    """Make every repetition on both sides alternately, then the power cuts of one side and of the other.

    If the booted machines of both sides run the same software although different software was requested, nothing is
    measured.

    Raises:
        RequirementMissing: a machine lacks the program of a workload.
        RigError: a side's lab does not boot.
    """
    named = dict(zip((BASE, NEW), executions, strict=True))
    left, _ = [on_side(name, execution.begin) for name, execution in named.items()]
    base, new = (execution.current_run.record for execution in executions)
    if why_nothing_is_compared(base, new) is not None:
        return
    turns = [
        ((BASE, NEW)[place], round_, cell)
        for round_, cell in left
        for place in in_turn(round_, executions[0].cells[cell].index)
    ]
    forecasts = [execution.forecast for execution in executions]
    for name, round_, cell in turns:
        named[name].turn(round_, cell, who=f"{name}, ", left=left_in_words(*forecasts))
    for name, execution in named.items():
        if execution.plan.run.cut is not None:
            step(f"{name}: power cuts")
        on_side(name, execution.finish)


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
