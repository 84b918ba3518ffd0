"""Rounds and power cuts of a plan on a worker: what is requested, how it is carried out, and what is returned.

The unit is a round: machines differ, so that the cells of a round, and both sides of a comparison, are measured on one
worker. A round has labs of its own.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePath

from raidproof.cluster.identity import software_digest
from raidproof.cluster.proof import Unsound
from raidproof.core.topology import Topology
from raidproof.plan.cell import Matrix
from raidproof.record.cell import CellRecord, PlanRecord
from raidproof.record.comparison import BASE, NEW
from raidproof.record.environment import Environment
from raidproof.record.run import CrashTestRecord
from raidproof.run.comparison import on_side
from raidproof.run.doctor import require_host
from raidproof.run.plan_runner import PlanRunner
from raidproof.run.run import Run
from raidproof.verdict.change.comparison import why_nothing_is_compared

ALONE = ""
"""Name of the only side of a plan that is not compared."""
EXPLORATION = "explore-"
"""Beginning of the names of an exploration's files."""
LAB = "lab"
"""Beginning of the names of folders with the consoles of a lab."""
LOG = "raidproof.log"


@dataclass(frozen=True)
class PlanJob:
    """The plan whose rounds workers make, by content: no path of the client's machine is used on a worker."""

    matrix: Matrix
    record: PlanRecord
    topologies: Mapping[str, Topology]
    """The lab of each side; a plan that is not compared has the side `ALONE`."""
    software: Mapping[str, str]
    """Digest of the kernels and images of each side; see `identity.software_digest`."""

    def carried_out(self, request: "Request", folder: Path) -> "Made":
        """Carry out a request on this machine, with runs in a folder; the labs end in any case.

        Raises:
            Unsound: a kernel or an image differs from that of the client.
            RequirementMissing: this machine, or a machine of the lab, lacks something.
            RigError: a lab does not boot, or a download or a build failed.
        """
        require_host()
        runners: dict[str, PlanRunner] = {}
        with ExitStack() as undo:
            for side in request.sides:
                topology = self.topologies[side]
                if (found := software_digest(topology)) != self.software[side]:
                    raise Unsound(
                        f"its kernel or image differs from the client's: digest {found}, not {self.software[side]}"
                    )
                run = undo.enter_context(Run(side or "plan", folder, topology))
                run.record.plan = self.record.model_copy(deep=True)
                run.record.cells = [one.model_copy(deep=True) for one in request.records()]
                runners[side] = PlanRunner(self.matrix, run)
            request.carry_out(runners)
        return {side: result_of(runner, request) for side, runner in runners.items()}


@dataclass(frozen=True)
class RoundRequest:
    """One round of a plan, or a part of it."""

    round: int
    turns: tuple[tuple[str, str], ...]
    """Side and cell of each repetition, in order."""

    @property
    def sides(self) -> tuple[str, ...]:
        """The sides that take part."""
        return tuple(dict.fromkeys(side for side, _ in self.turns))

    @property
    def label(self) -> str:
        """Name of the request, for folders and messages."""
        return f"round-{self.round}"

    def records(self) -> tuple[CellRecord, ...]:
        """Return what was measured before: nothing."""
        return ()

    def carry_out(self, runners: Mapping[str, PlanRunner]) -> None:
        """Make the repetitions; none if the booted machines of both sides allow no comparison.

        Raises:
            RequirementMissing: a machine lacks the program of a workload.
            RigError: a lab does not boot.
        """
        for side, runner in runners.items():
            runner.order = [(self.round, cell) for of, cell in self.turns if of == side]
            on_side(side, runner.begin) if side else runner.begin()
        if {BASE, NEW} <= {*runners}:
            base, new = (runners[side].current_run.record for side in (BASE, NEW))
            if why_nothing_is_compared(base, new) is not None:
                return
        for side, cell in self.turns:
            runners[side].turn(self.round, cell)


@dataclass(frozen=True)
class CutRequest:
    """The power cuts of some configurations of one side, with their controls."""

    side: str
    cells: tuple[CellRecord, ...]
    """The records of the measured cells whose power is cut."""
    part: int
    """Number of this request among those of the side, from 1."""
    taken: frozenset[str]
    """Names that crash tests must not have, because the run has files with these names."""

    @property
    def sides(self) -> tuple[str, ...]:
        """The sides that take part."""
        return (self.side,)

    @property
    def label(self) -> str:
        """Name of the request, for folders and messages."""
        return f"cuts-{self.part}"

    def records(self) -> tuple[CellRecord, ...]:
        """Return what was measured before."""
        return self.cells

    def carry_out(self, runners: Mapping[str, PlanRunner]) -> None:
        """Run the controls and cut the power, as `PlanRunner.cut`."""
        runner = runners[self.side]
        runner.part, runner.taken = self.part, self.taken
        runner.cut([runner.cells[one.name] for one in self.cells])


Request = RoundRequest | CutRequest


@dataclass(frozen=True)
class SideResult:
    """What a worker made of a request for one side."""

    cells: list[CellRecord]
    """The records of the cells of the request."""
    cycles: list[CrashTestRecord]
    environment: Environment | None
    files: dict[str, bytes]
    """Content of the files, by their path in the client's run."""


Made = dict[str, SideResult]
"""What a worker made of a request, by side."""


def result_of(runner: PlanRunner, request: Request) -> SideResult:
    """Return what a runner made of a request."""
    record, path = runner.current_run.record, runner.current_run.store.path
    cells = [cell for cell in record.cells if cell.repeats or cell.not_effective or cell.cycle]
    failed = any(repeat.rig_error for cell in cells for repeat in cell.repeats) or any(
        cycle.rig_error for cycle in record.cycles
    )
    files = {name: file.read_bytes() for name, file in kept(path, request.label, failed=failed)}
    return SideResult(cells, record.cycles, record.environment, files)


def kept(path: Path, label: str, *, failed: bool) -> Iterator[tuple[str, Path]]:
    """Yield the name in the client's run, and the path, of each file of a run that the client keeps.

    The log and the consoles of labs are kept if the rig failed.
    """
    for file in sorted(path.rglob("*")):
        if not file.is_file() or file.is_symlink():
            continue
        relative = PurePath(file.relative_to(path))
        top = relative.parts[0]
        if top.startswith(LAB) or relative.name == LOG:
            if failed:
                yield f"{LAB}-{label}/{relative}", file
        elif len(relative.parts) > 1 or top.startswith(EXPLORATION):
            yield str(relative), file
