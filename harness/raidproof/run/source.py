"""The source of an exploration: a recorded crash test, and what is needed to derive and judge its crash states."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from zlib import crc32

from raidproof.core.errors import RequestError, RigError, nearest
from raidproof.core.log import step
from raidproof.core.topology import Topology
from raidproof.crash.checker import DEADLINE_S, Checker, require_shown
from raidproof.crash.checker_worker import Factory, Job, RecordingCursor
from raidproof.crash.journal import digest_of
from raidproof.crash.recovery import second_name
from raidproof.crash.states import CrashState, Recording
from raidproof.crash.stats import ExplorationStats
from raidproof.disk.writelog import LogError, WriteLog
from raidproof.record import RunStore
from raidproof.record.run import CrashTestRecord, RunRecord
from raidproof.run.options import RESULTS
from raidproof.storage.filesystem import DIRECTORY
from raidproof.storage.stack import StackSpec
from raidproof.verdict.durability import needed_of, requests_of
from raidproof.verdict.evidence import WrittenData
from raidproof.verdict.oracle import Oracle
from raidproof.workload.application import ApplicationSpec
from raidproof.workload.ledger import LEDGER_DIRECTORY, application_config

RECORD_ANEW = "record a new run"
ANOTHER = "choose a crash test whose fault was injected on provider uml or qemu, or record a new run"

STEM = "explore-"
"""Beginning of the names of an exploration's files in the run's directory."""


@dataclass(frozen=True)
class Source:
    """One crash test of a stored run, with all that is needed to derive and judge its crash states."""

    store: RunStore
    run: RunRecord
    cycle: CrashTestRecord
    recording: Recording
    oracle: Oracle
    topology: Topology
    stack: StackSpec
    starts_dirty: bool = False
    """Whether checkers make md start arrays that are dirty and degraded, which md refuses by default."""
    lost_member: str | None = None
    """Serial of the member that is lost with the power cut, so that the array starts without it; None: no member."""
    scrub: bool = False
    """Whether checks with fsck also let the array resync, and then count the sectors that differ."""
    recovery: str | None = None
    """Name of the crash state whose recovery ``recording`` contains; None: it is the recording of the run."""

    @property
    def log(self) -> Path:
        """Path of the crash test's write log."""
        return self.store.path / recorded(self.cycle)

    @property
    def first(self) -> int:
        """The first cut to explore: at that time array and file system exist, and the clients begin."""
        if self.recording.origin is not None:
            # The clock of the recovery's log may be another one: the host may have been rebooted since the run.
            return self.recording.first_cut
        return self.recording.place(self.oracle.created_ns)

    @property
    def scan_config(self) -> dict[str, Any]:
        """The arguments with which the ledger's agent scans the server; see `scan_config_of`."""
        return scan_config_of(self.cycle, self.store.path)

    def checker(self, number: int, *, logs: Path) -> AbstractContextManager[Checker]:
        """Return a checker that is not booted yet; its console logs go to a subfolder of ``logs``."""
        folder = logs / f"checker{number}"
        folder.mkdir(parents=True, exist_ok=True)
        return Checker(
            self.topology,
            self.stack,
            self.scan_config,
            folder,
            content=self.recording.most_content,
            deadline_s=deadline_s(self.cycle),
            starts_dirty=self.starts_dirty,
            without=() if self.lost_member is None else (self.lost_member,),
            scrub=self.scrub,
        )

    @cached_property
    def data(self) -> WrittenData:
        """The ledger's data in the recording."""
        requests = requests_of(self.recording.records)
        return WrittenData(requests, needed_of(requests, self.oracle.history, self.oracle.workers))

    @property
    def application(self) -> ApplicationSpec | None:
        """The application of the crash test; None without one."""
        return application_of(self.cycle)

    @cached_property
    def log_digest(self) -> str:
        """Digest of the write log of the recording."""
        return digest_of(self.recording.log.path)

    @cached_property
    def acknowledged_ns(self) -> Mapping[str, Sequence[int]]:
        """Times of acknowledgements by kind of operation, up to the end of the write log."""
        instants: dict[str, list[int]] = {}
        for one in self.oracle.history.acknowledged(self.recording.end_ns):
            if one.promised_ns is not None:
                instants.setdefault(one.kind, []).append(one.promised_ns)
        return instants

    @cached_property
    def replay(self) -> Callable[[str], list[str]]:
        """Returns, for the name of a state, the command line that replays the state."""
        # The command line finds a run by its name only in the default directory.
        path = self.store.path
        run = self.run.run if path.parent == RESULTS else str(path)
        words = ["./raidproof", "explore", run, "--cycle", self.cycle.name]
        words += ["--starts-dirty"] if self.starts_dirty else []
        words += ["--lost-member", self.lost_member] if self.lost_member is not None else []
        return partial(replay_command, words, self.recovery)

    @property
    def stem(self) -> str:
        """The beginning of the names of the files of explorations of this source."""
        return f"{STEM}{self.cycle.name}{self.without}"

    @property
    def without(self) -> str:
        """The part of the names of files that names the lost member, such as ``-without-disk2``; empty if none is."""
        return "" if self.lost_member is None else f"-without-{self.lost_member}"

    def stages(self) -> tuple[RecordingCursor, ExplorationStats]:
        """Return the stages that read the content of single states, and that judge them."""
        return RecordingCursor(self.recording), ExplorationStats(self.recording, self.oracle)

    def job_of(self, state: CrashState, cursor: RecordingCursor) -> Job:
        """Return the check of one state: replay the write log up to its cut. ``cursor``: that of `stages`, unused."""
        step(f"replaying the write log up to the cut: {state.cut:,} of {len(self.recording.records):,} requests")
        cursor.go(state.cut)
        return cursor.job(state)

    def boots(self, logs: Path) -> Factory:
        """Return a function that makes the checker with a given number, with console logs below ``logs``."""
        return partial(self.checker, logs=logs)


def replay_command(words: Sequence[str], recovery: str | None, name: str) -> list[str]:
    """Return the words of the command that replays the state with a name.

    ``words``: begin of the command. ``recovery``: name of the recovered state, for a state of a second cut.
    """
    return [*words, "--state", second_name(recovery, name), "--keep"]


def recorded(cycle: CrashTestRecord) -> str:
    """Return the path of a crash test's write log, relative to the run's directory.

    Raises:
        RequestError: the crash test has no write log.
    """
    if cycle.files.write_log is None:
        raise RequestError(f"crash test {cycle.name} cannot be explored: it has no write log", remedy=ANOTHER)
    return cycle.files.write_log


def scan_config_of(cycle: CrashTestRecord, run: Path) -> dict[str, Any]:
    """Return the arguments with which the ledger's agent scans the server; ``run``: the run's directory."""
    # The seed as in `raidproof.run.crash_test`: blocks of an earlier crash test must not be mistaken for current ones.
    seed = int(cycle.workload["ledger"]["seed"]) + crc32(cycle.name.encode())
    config = {"root": f"{DIRECTORY}/{LEDGER_DIRECTORY}", "seed": seed, "workers": cycle.workers}
    if (application := application_of(cycle)) is not None and cycle.files.application is not None:
        config |= application_config(application, json.loads((run / cycle.files.application).read_text()))
    return config


def deadline_s(cycle: CrashTestRecord) -> float:
    """Return the time limit in seconds of one step of the check of a crash state."""
    application = application_of(cycle)
    # The copy of the data and the check command have this limit each.
    return DEADLINE_S + (2 * application.check_s if application is not None else 0)


def application_of(cycle: CrashTestRecord) -> ApplicationSpec | None:
    """Return the application of a crash test; None if the crash test has none."""
    asked = cycle.workload["ledger"].get("application")
    return None if asked is None else ApplicationSpec.model_validate(asked)


def source_of(
    store: RunStore,
    name: str | None = None,
    *,
    starts_dirty: bool = False,
    lost_member: str | None = None,
    scrub: bool = False,
) -> Source:
    """Return the crash test of this name in a stored run, or the only one that can be explored, as a `Source`.

    Raises:
        RequestError: the name is unknown; the crash test cannot be explored, or not without the lost member. The
            message has the reason.
    """
    run = store.load()
    topology = Topology.model_validate(run.topology)
    require_shown(topology.provider)
    cycle = choose_cycle(run, store.path, name)
    stack = StackSpec.model_validate(cycle.asked)
    if lost_member is not None:
        stack.array.refuse_loss(lost_member)
    try:
        log = WriteLog(store.path / recorded(cycle))
        lost = [] if lost_member is None else [log.number(lost_member)]
        recording = Recording(log, stack.array, lost=lost)
        oracle = Oracle.of(cycle, store.path, recording.corrupted_ns)
        if lost_member is not None:
            oracle = replace(oracle, incomplete_ns=0)
        if oracle.incomplete_ns is not None:
            oracle = replace(oracle, expected=stack.array.lost)
    except (LogError, OSError) as error:
        raise RequestError(f"crash test {cycle.name} cannot be explored: {error}", remedy=RECORD_ANEW) from error
    except RigError as error:
        raise RequestError(
            f"crash test {cycle.name} cannot be explored: its history cannot be read: {error}", remedy=RECORD_ANEW
        ) from error
    if log.ending is not None and not log.ending.complete:
        raise RequestError(
            f"crash test {cycle.name} cannot be explored: its write log is truncated after "
            f"{log.ending.records:,} records",
            remedy=f"the run was probably killed before it closed the write log; {RECORD_ANEW}",
        )
    serials = [disk.serial for disk in topology.disks]
    if serials != [member.serial for member in recording.members]:
        raise RequestError(
            f"crash test {cycle.name} cannot be explored: its write log does not have the run's disks "
            f"({', '.join(serials)})",
            remedy=f"the directory has files of different runs; {RECORD_ANEW}",
        )
    return Source(store, run, cycle, recording, oracle, topology, stack, starts_dirty, lost_member, scrub)


def choose_cycle(run: RunRecord, path: Path, name: str | None) -> CrashTestRecord:
    """Return the crash test that is named in a run (`cycle_of`), or the only one that can be explored.

    Raises:
        RequestError: the name is unknown; the named crash test cannot be explored; or, without a name, no crash test
            can be explored, or more than one.
    """
    reasons = {cycle.name: why_not(cycle, path) for cycle in run.cycles}
    if name is not None:
        named = cycle_of(run, name)
        if reason := reasons[named.name]:
            raise RequestError(f"crash test {named.name} cannot be explored: {reason}", remedy=ANOTHER)
        return named
    possible = [cycle for cycle in run.cycles if reasons[cycle.name] is None]
    if len(possible) == 1:
        return possible[0]
    if possible:
        names = ", ".join(cycle.name for cycle in possible)
        raise RequestError(
            f"run {run.run} has several crash tests that can be explored", remedy=f"choose one with --cycle: {names}"
        )
    raise RequestError(f"run {run.run} has no crash test that can be explored{suffix_of(reasons)}", remedy=ANOTHER)


def cycle_of(run: RunRecord, said: str) -> CrashTestRecord:
    """Return the crash test of a run with this name, or this number in the report, or this title.

    Raises:
        RequestError: no crash test has it, or several have this title.
    """
    known = {cycle.name: cycle for cycle in run.cycles}
    numbers = {str(number): cycle for number, cycle in enumerate(run.cycles, start=1)}
    titles = [cycle for cycle in run.cycles if cycle.title.casefold() == said.casefold()]
    if (found := known.get(said) or numbers.get(said)) is not None:
        return found
    if len(titles) > 1:
        names = ", ".join(cycle.name for cycle in titles)
        raise RequestError(f"run {run.run} has several crash tests {said!r}", remedy=f"name one of them: {names}")
    if not titles:
        raise RequestError(f"run {run.run} has no crash test {said!r}", remedy=nearest(said, known))
    return titles[0]


def suffix_of(reasons: Mapping[str, str | None]) -> str:
    """Return why each crash test cannot be explored, as the end of a message; empty without crash tests."""
    return "".join(f"; {name}: {reason}" for name, reason in reasons.items())


def why_not(cycle: CrashTestRecord, run: Path) -> str | None:
    """Return why a crash test cannot be explored, from its record and its files; None if it can be explored."""
    if reason := cycle.requirement_missing or cycle.not_effective:
        return f"it did not take place: {reason}"
    kept = [("write log", cycle.files.write_log), ("history", cycle.files.history)]
    if application_of(cycle) is not None:
        kept.append(("application", cycle.files.application))
    for what, path in kept:
        if path is None:
            return f"it has no {what}"
        if not (run / path).is_file():
            return f"the file of its {what} is missing: {path}"
    if not cycle.workers or cycle.ledger_begun_ns is None:
        return "its clients did not begin to work"
    return None
