"""What the fixtures of scenarios return: a crash test, an exploration of its crash states, a measurement of a cell."""

import argparse
import re
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from raidproof.core.blame import Cause, Culprit, blamed_as, text_of
from raidproof.core.errors import (
    ControlFailed,
    Inconclusive,
    ProductError,
    RaidproofError,
    RequestError,
    RequirementMissing,
    RigError,
)
from raidproof.core.units import KIB, MIB
from raidproof.crash.checker import SHOW, not_shown
from raidproof.crash.exploration import Budget
from raidproof.crash.journal import lines_of
from raidproof.crash.shrink import EXPLAINED
from raidproof.crash.states import CrashState
from raidproof.lab.lab import Lab
from raidproof.machine.kernel_log import moment, said_since
from raidproof.monitor.bottleneck import Limit
from raidproof.plan.cell import PlannedCell
from raidproof.record import CrashTestRecord
from raidproof.record.cell import CellRecord
from raidproof.record.exploration import ExplorationRecord
from raidproof.record.failure import FailureRecord
from raidproof.record.outcome import Outcome
from raidproof.record.results.names import JOURNAL
from raidproof.run.crash_states import Options
from raidproof.run.crash_test import CrashTestSpec
from raidproof.run.directed import check_directed
from raidproof.run.exploration import explore_cycle
from raidproof.run.plan_runner import PlanRunner, record_of
from raidproof.run.platform import platform_of
from raidproof.run.replay import locate, replay
from raidproof.run.run import Run
from raidproof.run.source import Source, source_of
from raidproof.storage.array import LEVELS, MdSpec
from raidproof.storage.filesystem import FilesystemSpec, usual
from raidproof.storage.mount import MountSpec
from raidproof.storage.pair import PairSpec
from raidproof.storage.server import ExportSpec
from raidproof.storage.stack import StackSpec
from raidproof.verdict.crash_states import outcome_of
from raidproof.verdict.kernel_log import judge_kernel_logs
from raidproof.verdict.oracle import Judgement
from raidproof.workload.application import ApplicationSpec
from raidproof.workload.history import History
from raidproof.workload.ledger import LedgerSpec

MEMBERS = ("disk0", "disk1", "disk2", "disk3")
"""Serial numbers of the member disks of the lab that scenarios share."""
DISK_SIZE = 288 * MIB
"""Bytes of each disk. An array with the capacity of two disks is large enough for XFS, which needs 513 MiB here."""
LEDGER_SECONDS = 1.0
"""Duration of the ledger workload in seconds: enough for hundreds of acknowledged operations of every kind."""
TIMEO_S = 3.0
"""Seconds after which a client repeats a request without a reply (option timeo); the default is 60 s (nfs(5))."""
ERRORS: dict[Outcome, type[RaidproofError]] = {
    Outcome.FAIL: ProductError,
    Outcome.ERROR: RigError,
    Outcome.SKIP: RequirementMissing,
    Outcome.INVALID: ControlFailed,
    Outcome.INCONCLUSIVE: Inconclusive,
}
"""For each outcome other than PASS, the class of the error that ends a scenario with this outcome."""

DEFAULT_STATES = 150
"""Crash states that an exploration in a scenario checks by default."""


def stack_of(
    level: str = "5",
    *,
    members: int = len(MEMBERS),
    chunk_size: int = 64 * KIB,
    layout: str | None = None,
    bitmap_chunk: int | None = None,
    filesystem: FilesystemSpec | None = None,
    sync: bool = True,
    root_squash: bool = True,
    export: ExportSpec | None = None,
    mount: MountSpec | None = None,
    pair: PairSpec | None = None,
) -> StackSpec:
    """Return a stack on the shared lab's disks: by default RAID5, XFS, a sync export and NFSv4.2.

    Clients recover within seconds of a restart of the server: they retry requests after ``TIMEO_S`` seconds, and the
    server grants no delegations. ``members`` is the number of disks; the chunk sizes are in bytes. ``layout`` is the
    name of the array's layout in mdadm, for example ``f2`` for RAID10 with two far copies. Without ``root_squash`` the
    ledger's workers are root, who may also change owners; else they are ordinary users. ``pair`` requests a second
    server on the same disks; the lab needs one, too (`with_standby`).

    Raises:
        RequestError: values exclude each other, for example RAID6 on three disks.
    """
    array: dict[str, Any] = {"level": level, "members": MEMBERS[:members], "layout": layout}
    array["bitmap_chunk"] = bitmap_chunk
    if LEVELS[level].chunked:
        array["chunk_size"] = chunk_size
    if LEVELS[level].redundant:
        # All disks are blank at first, so the members agree without a resync.
        array["assume_clean"] = True
    return StackSpec(
        array=MdSpec(**array),
        filesystem=filesystem or usual(),
        export=export or ExportSpec(sync=sync, root_squash=root_squash, delegations=False),
        mount=(mount or MountSpec()).model_copy(update={"timeo_s": TIMEO_S}),
        pair=pair,
    )


class CrashTestResult:
    """The result of a crash test, with assertions for scenarios."""

    def __init__(self, record: CrashTestRecord, observations: Path) -> None:
        self.record = record
        self.observations = observations
        """Folder with the evidence of the crash test: the histories of operations, and the data read back."""

    def must_pass(self) -> Self:
        """Assert that the crash test passed: the promises of its options were kept, or a control gave its result.

        Raises:
            ProductError: a promise was broken.
            RigError: the rig failed.
            RequirementMissing: this host or a machine of the lab lacks something that the crash test needs.
            ControlFailed: the crash test was a control and did not give its expected result.
            Inconclusive: the crash test showed neither that a promise was broken nor that all were kept.
        """
        __tracebackhide__ = True
        if self.outcome is not Outcome.PASS:
            raise self._error(ERRORS[self.outcome])
        return self

    def must_keep_every_promise(self) -> Self:
        """Assert that no acknowledged operation is lost, nor was lost in a checked crash state.

        Raises:
            ProductError: an acknowledged operation is lost, even if the export's options allow the loss.
            RigError, RequirementMissing, ControlFailed, Inconclusive: as for `must_pass`.
        """
        __tracebackhide__ = True
        self.must_pass()
        if self.lost or any(one.lost for one in self.record.explored):
            raise self._error(ProductError)
        return self

    def must_lose_by_design(self) -> Self:
        """Assert that acknowledged operations were lost, as the export's options allow, and the loss was measured.

        Raises:
            Inconclusive: no operation was lost, or as for `must_pass`.
            ProductError, RigError, RequirementMissing, ControlFailed: as for `must_pass`.
        """
        __tracebackhide__ = True
        self.must_pass()
        if not self.lost:
            raise self._error(Inconclusive)
        return self

    def _error(self, kind: type[RaidproofError]) -> RaidproofError:
        _, reason = outcome_of(self.record)
        return kind(f"{self.record.title}: {reason}", remedy=f"see {self.observations}")

    @property
    def outcome(self) -> Outcome:
        """The outcome of the crash test with its crash states; ``record.outcome`` is that without them."""
        return outcome_of(self.record)[0]

    @property
    def acknowledged(self) -> int:
        """Number of operations that the server acknowledged before the fault."""
        return self.record.on_server.acknowledged_total if self.record.on_server else 0

    def went_on(self, client: str) -> bool:
        """Return whether a client began an operation after the fault and received its acknowledgement.

        The arrival time of a report does not show this: a worker reports an acknowledgement together with its next
        operation, so that the report of an operation before the fault may arrive after the fault.
        """
        history = History.read(self.observations / "history")
        workers = {worker["number"] for worker in self.record.workers if worker["client"] == client}
        after = self.record.fault_at_ns or 0
        return any(one.worker in workers and one.issued_ns > after for one in history.acknowledged())

    @property
    def lost(self) -> int:
        """Number of acknowledged operations that are missing: the largest number that a scan found."""
        later = (one.on_server for one in self.record.during)
        places = (self.record.on_server, self.record.on_client, *later)
        return max((evidence.lost_total for evidence in places if evidence), default=0)


class CrashTestRunner:
    """Runs the crash tests of one scenario; the name of each crash test begins with the name of the scenario."""

    def __init__(self, current_run: Run, name: str, states: int = 0, ledger: LedgerSpec | None = None) -> None:
        """``states`` and ``ledger``: those of a crash test whose call has none.

        ``states``: greatest number of crash states that are checked after a crash test. ``ledger``: None: all kinds of
        worker.
        """
        self.current_run = current_run
        self.states = states
        self.ledger = ledger or LedgerSpec()
        self._name = name
        self._count = 0

    def __call__(
        self,
        stack: StackSpec,
        *,
        application: ApplicationSpec | None = None,
        states: int | None = None,
        **changes: Any,
    ) -> CrashTestResult:
        """Run one crash test on a stack; ``changes`` are fields of `CrashTestSpec` other than name and title.

        ``application``: the user's own application, whose acknowledged operations are checked instead of the ledger's.
        ``states``: greatest number of crash states at the replies to solo operations that are checked afterwards, for
        at most a minute; 0: none; None: as pytest's option ``--states`` says, by default 60.
        """
        ledger = self.ledger if application is None else LedgerSpec.of(application)
        self._count += 1
        name = self._name if self._count == 1 else f"{self._name}-{self._count}"
        title = name.replace("-", " ")
        return self.run(
            CrashTestSpec.model_validate(
                {
                    "name": name,
                    "title": title,
                    "stack": stack,
                    "ledger_seconds": LEDGER_SECONDS,
                    "ledger": ledger,
                    **changes,
                }
            ),
            states,
        )

    def run(self, spec: CrashTestSpec, states: int | None = None) -> CrashTestResult:
        """Run a crash test, check ``states`` of its crash states, and return its result; see `__call__`."""
        record = self.current_run.cycle(spec)
        check_directed(self.current_run, record, self.states if states is None else states)
        return CrashTestResult(record, self.current_run.store.path / spec.name)


class Measured:
    """The measurements of a cell, with assertions for scenarios."""

    def __init__(self, record: CellRecord, run: Path) -> None:
        self.record = record
        self.run = run
        """Folder of the stored run."""

    def must_be_measured(self) -> Self:
        """Assert that the configuration took effect and the workload ran, at any speed.

        Raises:
            ProductError: the effective configuration differs from the requested one.
            RigError: every repetition failed.
        """
        __tracebackhide__ = True
        if self.record.outcome is not Outcome.PASS:
            raise self._error(ERRORS[self.record.outcome], self.record.reason)
        return self

    def must_reach(self, share_of_expected: float) -> Self:
        """Assert that the median is at least ``share_of_expected`` times the value expected of the simulated hardware.

        Raises:
            ProductError: the median is smaller, or as for `must_be_measured`.
            RigError: as for `must_be_measured`.
            Inconclusive: no formula gives an expected value, or the rig limited the measured value.
        """
        __tracebackhide__ = True
        self.must_be_measured()._must_not_be_limited_by_the_rig()
        if (ratio := self.record.ratio) is None:
            raise self._error(Inconclusive, "no formula gives the expected value of this workload on this hardware")
        if ratio < share_of_expected:
            found = f"the median is {ratio:.0%} of the expected value, required {share_of_expected:.0%}"
            raise self._error(ProductError, f"{found}: {self.record.cause}")
        return self

    def must_be_faster_than(self, other: "Measured", by: float = 0.0) -> Self:
        """Assert that each value of this cell is at least (1 + ``by``) times each value of another cell.

        Raises:
            ProductError: each value of this cell is less than (1 + ``by``) times each value of the other.
            RequestError: the cells have different units.
            Inconclusive: the ranges of the values overlap, or the rig limited one of the cells.
        """
        __tracebackhide__ = True
        for one in (self, other):
            one.must_be_measured()._must_not_be_limited_by_the_rig()
        mine, theirs = self.record, other.record
        if mine.unit != theirs.unit:
            raise self._error(RequestError, f"{mine.unit} cannot be compared with {theirs.unit}")
        ranges = f"{min(mine.measured):.3g} to {max(mine.measured):.3g} {mine.unit}, and {theirs.name} "
        ranges += f"{min(theirs.measured):.3g} to {max(theirs.measured):.3g}; required: {1 + by:g} times the speed"
        if max(mine.measured) < (1 + by) * min(theirs.measured):
            raise self._error(ProductError, f"not faster: {ranges}")
        if min(mine.measured) < (1 + by) * max(theirs.measured):
            raise self._error(Inconclusive, f"the ranges overlap: {ranges}")
        return self

    def _must_not_be_limited_by_the_rig(self) -> None:
        __tracebackhide__ = True
        limit = self.record.limit
        if limit in set(Limit) and not Limit(limit).rankable:
            raise self._error(
                Inconclusive, f"the rig ({limit}) limited the measured value, not the simulated hardware"
            )

    def _error(self, kind: type[RaidproofError], reason: str) -> RaidproofError:
        return kind(f"{self.record.name}: {reason}", remedy=f"see {self.run}")


class Plans:
    """The runs of plans whose cells scenarios measure: one run for each plan, one lab at a time."""

    def __init__(self, options: argparse.Namespace, shared: Callable[[], Run | None]) -> None:
        """``options``: those of pytest's command line. ``shared``: returns the run that all scenarios share."""
        self._options = options
        self._shared = shared
        self._undo = ExitStack()
        self._executions: dict[Path, PlanRunner] = {}

    @property
    def runs(self) -> list[Run]:
        """The runs of all plans."""
        return [one.current_run for one in self._executions.values()]

    def execution_of(self, cell: PlannedCell) -> PlanRunner:
        """Return the runner of a cell's plan, and end all other labs, whose load would change the measured values."""
        if cell.path not in self._executions:
            options, plan = self._options, cell.matrix.plan
            plan.hardware.refuse_auto("in a scenario")
            topology = plan.hardware.topology(platform_of(vars(options), plan.run.platform))
            current_run = Run(f"scenarios-{plan.name}", Path(options.results), topology, keep=options.keep)
            current_run.record.plan = record_of(cell.matrix, cell.path)
            self._undo.enter_context(current_run)
            # Without cells: the record must contain only the cells that scenarios measure.
            self._executions[cell.path] = PlanRunner(replace(cell.matrix, cells=()), current_run)
        mine = self._executions[cell.path]
        shared = self._shared()
        for one in (*self.runs, *([shared] if shared else [])):
            if one is not mine.current_run:
                one.discard_lab()
        return mine

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._undo.__exit__(*error)


class Measure:
    """Measures cells of plans, in labs with the hardware of the plans."""

    def __init__(self, plans: Plans) -> None:
        self._plans = plans

    def __call__(self, cell: PlannedCell, repeats: int = 1) -> Measured:
        """Measure ``repeats`` more repetitions of a cell; the result includes the repetitions of earlier calls."""
        execution = self._plans.execution_of(cell)
        return Measured(execution.measure(cell, repeats), execution.current_run.store.path)


class Consoles:
    """The kernel messages of a lab's machines since the creation of this object."""

    def __init__(self, lab: Lab) -> None:
        self._machines = lab.machines
        self._begun = {name: moment(one) for name, one in lab.machines.items()}

    def must_be_calm(self) -> None:
        """Assert that the kernels have logged no suspicious message since this object was created.

        Raises:
            ProductError: a kernel logged a suspicious message.
        """
        __tracebackhide__ = True
        logs = [(name, said_since(self._machines[name], begun)) for name, begun in self._begun.items()]
        verdict = judge_kernel_logs(logs)
        if verdict.outcome is not Outcome.PASS:
            raise ProductError(f"kernel log: {verdict.reason}")


def name_of(node: str) -> str:
    """Return the name of a crash test from the name of a test: ``a-cut-torn-3`` from ``test_a_cut[torn-3]``."""
    return re.sub(r"[^a-z0-9]+", "-", node.lower().removeprefix("test_")).strip("-")


class Explored:
    """The result of an exploration, with assertions for scenarios."""

    def __init__(self, record: ExplorationRecord, source: Source, page: Path) -> None:
        self.record = record
        self.source = source
        """The crash test that was explored."""
        self.page = page
        """Path of the HTML report of the exploration."""

    def must_keep_every_promise(self, *, but: Collection[str] = ()) -> Self:
        """Assert that no checked crash state lacks an acknowledged operation.

        ``but``: names of findings (`raidproof findings`) that the tested kernel is known to have: failures that agree
        with one of them are allowed, in at most 5 % of the judged states.

        Raises:
            ProductError: a crash state lacks an acknowledged operation, even if the export's options allow the loss.
            RigError: the rig failed, or a reused checker gave another result than a newly booted one.
            Inconclusive: no crash state was checked, or a failure was not reproduced.
        """
        __tracebackhide__ = True
        if self.record.outcome is Outcome.FAIL and not self.record.failures_beyond(but):
            return self
        if self.record.outcome is not Outcome.PASS:
            raise self._error(ERRORS[self.record.outcome])
        # A control that loses data as expected passes, although its promises were broken.
        if self.record.loss is not None or self.record.failures:
            raise self._error(ProductError)
        return self

    def must_find(self, kind: str, blame: Culprit | Cause | None = None) -> FailureRecord:
        """Assert that a failure was found and reproduced, and return the failure.

        ``kind`` is a part of the text of the broken promise or of the damage. ``blame`` is the expected culprit or
        cause; None accepts any blame.
        If several failures match, the first one whose shrinking completed is returned, else the first one.

        Raises:
            RigError: the rig failed, or a reused checker gave another result than a newly booted one.
            ProductError: the failure has another blame.
            Inconclusive: no failure of this kind was found and reproduced.
        """
        __tracebackhide__ = True
        if self.record.outcome not in (Outcome.FAIL, Outcome.PASS):
            raise self._error(ERRORS[self.record.outcome])
        alike = (one for one in self.record.failures if kind in one.promise or kind in one.damage)
        found = [one for one in alike if one.confirmed]
        if not found:
            raise self._error(Inconclusive, f"no failure with {kind!r} was found and reproduced; ")
        first = next((one for one in found if one.shrunk is not None and one.shrunk.whole), found[0])
        if blame is not None and not blamed_as(first.blame, blame):
            found_blame = f"{first.promise} is blamed on {first.blame or 'no part of the system'}"
            raise self._error(ProductError, f"expected blame: {text_of(blame)}; {found_blame}; ")
        return first

    def broken(self) -> list[CrashState]:
        """Return the crash states in which a promise was broken, in the order of their checks."""
        names = {mark.name for mark in self.record.marks if mark.broken}
        lines = list(lines_of(self.page.with_suffix("") / JOURNAL))
        return [line.crash for line in lines if line.crash.name in names]

    def replay(self, failure: FailureRecord, times: int = 1) -> tuple[Judgement, ...]:
        """Check the smallest crash state of a failure again, ``times`` times, and return the judgements."""
        source, state = locate(self.source, failure.shrunk.state if failure.shrunk is not None else failure.state)
        logs = self.source.store.directory(self.source.stem)
        return replay(source, state, logs, times=times).judgements

    def _error(self, kind: type[RaidproofError], why: str = "") -> RaidproofError:
        return kind(f"{self.record.title}: {why}{self.record.reason}", remedy=f"see {self.page}")


class Explore:
    """Explores the crash states of crash tests of the current run."""

    def __init__(self, current_run: Run) -> None:
        self._run = current_run

    def __call__(
        self,
        cycle: CrashTestResult | CrashTestRecord,
        states: int | None = DEFAULT_STATES,
        seed: int = 1,
        *,
        minutes: float | None = None,
        tear: int = 512,
        checkers: int = 2,
        at_replies: bool = False,
        starts_dirty: bool = False,
        lost_member: str | None = None,
        scrub: bool = False,
        second_cuts: int = 0,
        explained: int = EXPLAINED,
        smallest: bool = True,
        cold: bool = True,
        crash_page: bool = False,
    ) -> Explored:
        """Check a number of crash states of a crash test, or as many as possible in ``minutes``.

        ``tear`` is the bytes that a disk writes atomically.
        ``at_replies``: cut only at the instants of acknowledgements, and lose all unflushed data.
        ``starts_dirty``: start arrays that are dirty and degraded, which md refuses by default (md(4)).
        ``lost_member``: serial of a member that is lost with the power cut, so that the array starts without it.
        ``scrub``: with each check by fsck, let the array resync, and count the sectors that still differ.
        ``second_cuts``: number of crash states during whose recovery the power is cut a second time.
        ``explained``: greatest number of broken states that are checked again and shrunk, for a minute each.
        ``smallest``: search the smallest state of each failure that is checked again.
        ``cold``: check some states on newly booted machines, too; at least one, which takes the boot of a machine.
        ``crash_page``: write the crash page, which takes seconds; `raidproof show RUN --crash` writes it later.

        Raises:
            RequirementMissing: the provider of the lab cannot give its disks the content of a crash state.
        """
        record = cycle.record if isinstance(cycle, CrashTestResult) else cycle
        if (provider := self._run.topology.provider) not in SHOW:
            raise RequirementMissing(str(not_shown(provider)))
        store = self._run.store
        source = source_of(store, record.name, starts_dirty=starts_dirty, lost_member=lost_member, scrub=scrub)
        options = Options(
            Budget(states, minutes),
            seed=seed,
            tear=tear,
            checkers=checkers,
            at_replies=at_replies,
            second_cuts=second_cuts,
            explained=explained,
            smallest=smallest,
            cold=cold,
            crash_page=crash_page,
        )
        explored, page = explore_cycle(source, options)
        self._run.store.read_explorations(self._run.record)
        return Explored(explored, source, page)
