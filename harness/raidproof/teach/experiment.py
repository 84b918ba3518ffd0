"""The actions of a lesson on real machines: one lab, which boots while the learner reads, and one run."""

import shlex
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, Self

from raidproof.core.blame import Culprit
from raidproof.core.errors import ProductError, RaidproofError, RequirementMissing, RigError
from raidproof.core.log import logger, progress, step
from raidproof.core.topology import Platform, Topology
from raidproof.core.units import KIB
from raidproof.core.waiting import now_ns
from raidproof.crash.exploration import Budget
from raidproof.crash.journal import lines_of
from raidproof.disk.cache import CacheMode
from raidproof.fault import Degraded, Fault
from raidproof.lab.lab import Lab
from raidproof.provider.registry import prepare
from raidproof.record.cell import Repetition
from raidproof.record.environment import Environment
from raidproof.record.exploration import ExplorationRecord, Rows
from raidproof.record.lesson import ActionRecord, ValueRecord
from raidproof.record.outcome import Outcome
from raidproof.record.results.names import JOURNAL, crash_page_of
from raidproof.record.run import ControlSpec, CrashTestRecord
from raidproof.run.crash_states import Options
from raidproof.run.crash_test import NO_FAULT, CrashTestSpec
from raidproof.run.doctor import require_host
from raidproof.run.exploration import explore_cycle
from raidproof.run.repetition import new_record, run_repetition
from raidproof.run.run import Run
from raidproof.run.source import source_of
from raidproof.run.stack_deployer import StackDeployer
from raidproof.storage.deployment import user_lines
from raidproof.storage.filesystem.filesystem import mkfs_command
from raidproof.storage.mount import mount_command
from raidproof.storage.stack import Stack, StackSpec
from raidproof.storage.tuning import VM
from raidproof.teach.action import Cut, Explore, Locks, Measure
from raidproof.teach.lesson import Lesson
from raidproof.teach.locks import observe_locks
from raidproof.teach.quantity import meaning_of
from raidproof.verdict.cell import judge_cells
from raidproof.workload.ledger import LedgerSpec

MOST_STATES = 6
"""Greatest number of crash states that the record of an action describes."""
PERCENT = 100.0
Values = Mapping[str, list[float]]


class Experiment:
    """Carries out the actions of a lesson in one run, as a context manager that ends the machines on exit.

    The machines boot in another thread from the beginning. The kernel kills a machine when the thread that started it
    ends (PR_SET_PDEATHSIG in prctl(2)), so this thread lives as long as the machines.
    """

    def __init__(self, lesson: Lesson, results: Path, *, platform: Platform | None = None, seed: int = 1) -> None:
        self.lesson = lesson
        self.results = results
        self.seed = seed
        self.topology: Topology = lesson.head.hardware.topology(platform)
        self.boot_s: float | None = None
        """Seconds from the start of the machines until they were ready."""
        self._undo = ExitStack()
        self._boot: Future[Lab] | None = None

    def __enter__(self) -> Self:
        """Prepare kernel and image, create the run, and begin to boot the machines.

        Raises:
            RequestError: the kernel or the image is unknown.
            RequirementMissing: this host cannot run a lab.
        """
        require_host()
        with progress("preparing kernel and image"):
            prepare(self.topology)
        with ExitStack() as undo:
            pool = undo.enter_context(ThreadPoolExecutor(1, thread_name_prefix="boot"))
            self.run = undo.enter_context(Run(f"teach-{run_word(self.lesson.name)}", self.results, self.topology))
            self._boot = pool.submit(self._booted)
            # The machines must not start while the run ends: an interrupted lesson waits for the boot.
            undo.callback(self._await_quietly)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        """End the machines, and write the report of the run."""
        self._undo.__exit__(*error)

    def _booted(self) -> Lab:
        begun = now_ns()
        lab = self.run.lab
        self.boot_s = (now_ns() - begun) / 1e9
        return lab

    def _await_quietly(self) -> None:
        if self._boot is not None:
            self._boot.exception()

    @property
    def environment(self) -> Environment | None:
        """The machines and the host; None if no machine has booted."""
        return self.run.record.environment

    def lab(self) -> Lab:
        """Return the lab, and wait for its first boot.

        Raises:
            RigError: the lab does not boot.
        """
        if self._boot is not None:
            step("waiting for the machines")
            self._boot.result()
            # Only now: an interruption of the wait must leave the boot to `_await_quietly`.
            self._boot = None
        return self.run.lab

    def perform(self, action: Cut | Measure | Explore | Locks) -> ActionRecord:
        """Carry out an action, and return its record; an error of the rig or the system is recorded."""
        record = ActionRecord(name=action.name, title=action.words, do=action.do, shown=list(action.shown))
        begun = now_ns()
        try:
            match action:
                case Cut():
                    values = self._cut(action, record)
                case Measure():
                    values = self._measure(action, record)
                case Explore():
                    values = self._explore(action, record)
                case Locks():
                    values = self._locks(action, record)
            record.values = [value_record(action.do, name, each) for name, each in values.items() if each]
        except Exception as error:  # noqa: BLE001  `outcome_of` raises what is no result of the action
            record.outcome, record.error = outcome_of(error), "; ".join(map(str, single_errors(error)))
            logger.exception("action %s", action.name)
            self.run.discard_lab()
        record.seconds = (now_ns() - begun) / 1e9
        return record

    def _cut(self, action: Cut, record: ActionRecord) -> Values:
        lab, stack = self.lab(), action.stack(self.lesson.head.hardware)
        record.commands = commands_of(stack, lab)
        values: dict[str, list[float]] = {}
        for spec in crash_tests(action, stack, self.seed):
            step(f"{action.words}: the clients work for {spec.ledger_seconds:.1f} s")
            cycle = self.run.cycle(spec)
            if cycle.requirement_missing is not None:
                raise RequirementMissing(cycle.requirement_missing)
            for name, value in values_of_cut(cycle).items():
                values.setdefault(name, []).append(value)
            record.observed.append(f"{spec.title}: {cycle.outcome.value}: {cycle.reason}")
        return values

    def _measure(self, action: Measure, record: ActionRecord) -> Values:
        lab, hardware = self.lab(), self.lesson.head.hardware
        plan, cell = action.plan(hardware, self.seed), action.cell(hardware, self.seed)
        record.commands = [
            *commands_of(cell.stack, lab),
            f"# workload: {cell.workload.model_dump_json(exclude_defaults=True)}",
        ]
        mine = new_record(cell).model_copy(update={"name": action.name})
        self.run.record.cells.append(mine)
        deployer, values = StackDeployer(lab), dict[str, list[float]]()
        for number in range(1, action.repeats + 1):
            step(f"{action.words}: measurement {number} of {action.repeats}")
            repeat = Repetition(round=number)
            mine.repeats.append(repeat)
            directory = self.run.store.directory(f"cells/{action.name}-{number}")
            run_repetition(deployer, plan, cell, mine, repeat, directory)
            for name, value in values_of_repetition(repeat).items():
                values.setdefault(name, []).append(value)
            record.observed.append(f"measurement {number}: {repeat.cause}")
        deployer.teardown()
        judge_cells(self.run.record)
        self.run.store.save(self.run.record)
        return values

    def _explore(self, action: Explore, record: ActionRecord) -> Values:
        source = source_of(self.run.store, action.of, starts_dirty=action.starts_dirty)
        options = Options(Budget(action.states), seed=self.seed, explained=0)
        found, page = explore_cycle(source, options)
        if not found.judged:
            raise RigError(found.reason)
        record.pages.append(page.name)
        crash_page = self.run.store.path / crash_page_of(page.stem)
        if crash_page.exists():
            record.pages.append(crash_page.name)
        rows = rows_of_states(page.with_suffix("") / JOURNAL)
        record.observed += sentences_about_states(found, rows)
        return values_of_exploration(found, rows)

    def _locks(self, action: Locks, record: ActionRecord) -> Values:
        lab, stack = self.lab(), action.stack(self.lesson.head.hardware)
        record.commands = commands_of(stack, lab)
        seen = observe_locks(lab, stack, action.event)
        record.observed += seen.sentences
        return {name: [value] for name, value in seen.values.items()}


def run_word(name: str) -> str:
    """Return the name of a lesson with only the characters of a run's name."""
    return "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in name).strip("-") or "lesson"


def outcome_of(error: Exception) -> Outcome:
    """Return the outcome of an action that an error ended."""
    match error:
        case RequirementMissing():
            return Outcome.SKIP
        case ProductError():
            return Outcome.FAIL
        case RaidproofError() | OSError() | ExceptionGroup():
            return Outcome.ERROR
        case _:
            raise error


def single_errors(error: Exception) -> list[Exception]:
    """Return an error, or the single errors of a group."""
    if not isinstance(error, ExceptionGroup):
        return [error]
    return [single for one in error.exceptions for single in single_errors(one)]


def value_record(kind: str, name: str, each: list[float]) -> ValueRecord:
    """Return the record of a measured value."""
    meaning = meaning_of(kind, name)
    return ValueRecord(name=name, meaning=meaning.text, unit=meaning.unit, each=each)


def crash_tests(action: Cut, stack: StackSpec, seed: int) -> list[CrashTestSpec]:
    """Return the crash tests of an action: one for each repetition, with times that follow from the seed alone."""
    random = Random(f"{seed}:{action.name}")  # noqa: S311  the plan of a lesson is no secret
    during: tuple[Fault, ...] = () if action.missing is None else (Degraded(action.missing),)
    lying = action.disks is CacheMode.LYING and action.power == "cut"
    return [
        CrashTestSpec(
            name=action.name if number == 1 else f"{action.name}-{number}",
            title=action.words if action.repeats == 1 else f"{action.words}, repetition {number}",
            stack=stack,
            cache_mode=action.disks,
            cache_mode_of=action.disks_of,
            policy=action.policy,
            fault="power-cut" if action.power == "cut" else NO_FAULT,
            during=during,
            seed=seed,
            ledger=LedgerSpec(kinds=action.work, seed=seed),
            ledger_seconds=random.uniform(*action.seconds),
            # Lying disks must lose data: such a crash test is a control, and its loss no failure of the run.
            control=ControlSpec(expects_loss=True, expects_blame=Culprit.DISKS) if lying else None,
        )
        for number in range(1, action.repeats + 1)
    ]


def values_of_cut(cycle: CrashTestRecord) -> dict[str, float]:
    """Return the measured values of a crash test.

    Raises:
        RigError: the crash test measured nothing.
        ProductError: a setting had no effect.
    """
    if cycle.not_effective is not None:
        raise ProductError(cycle.not_effective)
    if cycle.not_recovered is not None:
        return {"recovered": 0.0}
    evidence = cycle.on_server
    if cycle.rig_error is not None or evidence is None:
        raise RigError(cycle.rig_error or cycle.reason)
    total, lost = evidence.acknowledged_total, evidence.lost_total
    values: dict[str, float | None] = {
        "recovered": 1,
        "acknowledged": total,
        "lost": lost,
        "lost_seconds": cycle.loss_window_s,
        "lost_share": PERCENT * lost / total if total else None,
        "lost_files": evidence.lost_files,
        "broken_blocks": evidence.broken_blocks,
        "worked_seconds": cycle.ledger_seconds,
        "acknowledged_per_s": cycle.throughput.acknowledged_per_s,
        "fsyncs_per_s": cycle.throughput.fsyncs_per_s,
        "outage_seconds": cycle.recovery.total_s,
        **_requests(cycle),
    }
    if (back := cycle.observed.write_back) is not None:
        values |= {"expire_seconds": back.expire_s, "wake_seconds": back.wake_s, "commit_seconds": back.commit_s}
    return {name: float(value) for name, value in values.items() if value is not None}


def _requests(cycle: CrashTestRecord) -> dict[str, float]:
    """Return the numbers of requests to all members while the clients worked; the engine counts from its start."""
    begun = cycle.observed.disks or {}
    members = [serial for serial in cycle.disks if serial in begun]
    if not members:
        return {}
    counted = {
        value: sum(cycle.disks[serial].get(field, 0) - getattr(begun[serial], field) for serial in members)
        for value, field in (("flushes", "flushes"), ("forced", "fua"), ("lied", "lied"))
    }
    return {**counted, "at_risk": sum(cycle.disks[serial].get("pending", 0) for serial in members)}


def values_of_repetition(repeat: Repetition) -> dict[str, float]:
    """Return the measured values of a repetition: those of the tool, and those of the monitors."""
    values: dict[str, float | None] = {
        name: value for name, value in repeat.values.items() if name.endswith(("_s", "_iops", "_ms", "_us"))
    }
    values["timed_seconds"] = repeat.timed_s
    seen = repeat.derived or {}
    size = seen.get("mean_write_bytes")
    values |= {
        "call_kib": None if size is None else size / KIB,
        "calls": (seen.get("writes") or {}).get("calls"),
        "commits": (seen.get("commits") or {}).get("calls"),
        "member_reads": seen.get("member_reads_per_written"),
        "member_writes": seen.get("write_amplification"),
    }
    return {name: float(value) for name, value in values.items() if value is not None}


def rows_of_states(journal: Path) -> dict[str, Rows]:
    """Return the consistency of the array's rows in each judged crash state, by the name of the state."""
    by_digest: dict[str, Rows] = {}
    found: dict[str, Rows] = {}
    for line in lines_of(journal):
        if line.observation is not None and line.observation.rows is not None:
            by_digest[line.digest] = line.observation.rows
        if line.digest in by_digest:
            found[line.crash.name] = by_digest[line.digest]
    return found


def sentences_about_states(found: ExplorationRecord, rows: Mapping[str, Rows]) -> list[str]:
    """Return sentences about the crash states with differing rows and about broken ones, the most damaged first."""
    broken = {mark.name for mark in found.marks if mark.broken}
    at = {mark.name: mark.at_s for mark in found.marks}
    differ = {name: one.differ for name, one in rows.items() if one.unchecked is None}
    shown = sorted(
        (name for name in at if name in broken or differ.get(name)),
        key=lambda name: (name not in broken, -differ.get(name, 0), at[name]),
    )
    failures = [f"{one.promise}: {one.damage}, in {one.states} crash states" for one in found.failures]
    return failures[:MOST_STATES] + [
        f"state {name}, cut {at[name]:.3f} s after the recording began: "
        f"{f'{differ[name]} rows whose parity does not match' if name in differ else 'rows cannot be compared'}; "
        f"{'acknowledged data is lost or damaged' if name in broken else 'all acknowledged data is there'}"
        for name in shown[:MOST_STATES]
    ]


def values_of_exploration(found: ExplorationRecord, rows: Mapping[str, Rows]) -> Values:
    """Return the measured values of an exploration."""
    values = {"judged": found.judged, "distinct": found.distinct, "broken": found.broken, "cuts": found.cuts}
    # Without a state whose rows can be compared (a member is missing), the number of differing rows is unknown.
    if found.redundancy.checked:
        values |= {
            "differing": found.redundancy.differing,
            "unmarked": found.redundancy.unmarked,
            "differing_rows": max((one.differ for one in rows.values() if one.unchecked is None), default=0),
        }
    return {name: [float(value)] for name, value in values.items()}


def commands_of(spec: StackSpec, lab: Lab) -> list[str]:
    """Return the commands and configuration lines that build a stack by hand on a server."""
    stack = Stack(spec, lab.server, lab.clients[:1])
    device, path = stack.volume.device, stack.export.path
    lines = [shlex.join(command) for command in spec.array.create_commands()]
    lines += [shlex.join(command) for command in spec.volume.format_commands(spec.array.device)]
    assembly = spec.volume.assembly(spec.array.device)
    lines += [shlex.join(command) for one in assembly for command in user_lines(one)]
    lines += [shlex.join(mkfs_command(spec.filesystem, device, spec.array.geometry))]
    lines += [f"{file} = {value}" for file, value in write_back_lines(spec).items()]
    lines += [f"/etc/exports: {path} {spec.export.network}({','.join(spec.export.options())})"]
    lines += [shlex.join(mount_command(spec.mount, spec.source("server", path)))]
    return lines


def write_back_lines(spec: StackSpec) -> dict[str, str]:
    """Return the requested settings of the server's write-back, by file; none if Linux's defaults apply."""
    asked: dict[str, float | None] = {
        f"{VM}/dirty_expire_centisecs": spec.tuning.server_dirty_expire_s,
        f"{VM}/dirty_writeback_centisecs": spec.tuning.server_dirty_writeback_s,
        "/proc/sys/fs/xfs/xfssyncd_centisecs": spec.tuning.server_xfs_sync_s,
    }
    return {file: f"{value * 100:.0f}" for file, value in asked.items() if value is not None}
