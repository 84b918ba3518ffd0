"""Recorded recoveries of crash states, for a second power cut: their choice, their files, their phases.

A recovery is recorded once for each crash state of a write log, in a directory of its own. All explorations of the log
use the same recording, so that the name of a state of a second cut is unique.
"""

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple
from zlib import crc32

from pydantic import BaseModel, ConfigDict, ValidationError

from raidproof.core.errors import RequestError
from raidproof.core.files import write_durably
from raidproof.crash.checker import Recovered
from raidproof.crash.disk_states import DiskStates
from raidproof.crash.journal import Line, digest_of
from raidproof.crash.sampler import Choice, Choices, Order, in_turns
from raidproof.crash.states import CrashState, Origin, Recording, Torn
from raidproof.disk.writelog import WriteLog
from raidproof.record.exploration import End, Observation
from raidproof.record.recovery import Phase

SECOND = "+"
"""Separator in the name of a state of a second cut, between the name of the recovered state and its own name."""
VERSION = 1
RESYNC_FIRST_S = 10.0
"""Greatest time in seconds that md's resync has before the mount, in half of the recoveries; 0 in the others."""
LOG, DESCRIPTION = "write.log", "recovery.json"
"""The files in the directory of a recovery."""
_PHASES = {
    "assemble": Phase.ASSEMBLY,
    "resync": Phase.RESYNC,
    "mount": Phase.LOG_RECOVERY,
    "verify": Phase.MOUNTED,
    "settle": Phase.MOUNTED,
}


class Recovery(BaseModel):
    """The description of the recorded recovery of one crash state."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int = VERSION
    """Version of the file's format."""
    state: str
    """The crash state, in the format of `CrashState.dump`."""
    of_log: str
    """Digest of the write log to which the crash state belongs (`digest_of`)."""
    log_digest: str
    """Digest of the recovery's write log."""
    resync_first_s: float
    """Greatest time in seconds that md's resync had before the mount."""
    stages: tuple[tuple[str, int], ...]
    """The name of each stage, and the instant in ns at which it began (CLOCK_MONOTONIC)."""
    settled: bool
    """Whether md ended its resync, and marked all arrays clean, before the log ended."""
    observation: Observation
    """What the machine observed after the recovery."""

    def phase(self, at_ns: int) -> Phase:
        """Return the phase of the recovery at an instant."""
        begun = [name for name, since_ns in self.stages if since_ns <= at_ns]
        return _PHASES[begun[-1]] if begun else Phase.ASSEMBLY


@dataclass(frozen=True)
class RecoveryFiles:
    """The directory of the recovery of one crash state.

    ``folder``: the directory of all recoveries of a crash test. ``name``: the name of the crash state, preceded by
    those of the states that were recovered before it (`second_name`).
    """

    folder: Path
    name: str

    @property
    def log(self) -> Path:
        """The write log of the recovery."""
        return self.folder / self.name / LOG

    @property
    def draft(self) -> Path:
        """The directory in which this process records the recovery; another process may record the same one."""
        return self.folder / f".{self.name}-{os.getpid()}"

    def begin(self) -> Path:
        """Create the directory for a recording, empty; return the path of the write log, which does not exist."""
        shutil.rmtree(self.draft, ignore_errors=True)
        self.draft.mkdir(parents=True)
        return self.draft / LOG

    def keep(self, state: CrashState, of_log: str, resync_first_s: float, recovered: Recovered) -> Recovery:
        """Store the recording that `begin` began; return its description, or that of an earlier one of the same state.

        Raises:
            OSError: a file cannot be written.
        """
        found = Recovery(
            state=state.dump(),
            of_log=of_log,
            log_digest=digest_of(self.draft / LOG),
            resync_first_s=resync_first_s,
            stages=recovered.stages,
            settled=recovered.settled,
            observation=recovered.observation,
        )
        write_durably(self.draft / DESCRIPTION, found.model_dump_json(indent=1) + "\n")
        try:
            self.draft.rename(self.folder / self.name)
        except OSError:
            earlier = self.read(state, of_log)
            if earlier is None:
                raise
            shutil.rmtree(self.draft, ignore_errors=True)
            return earlier
        return found

    def drop(self) -> None:
        """Remove what `begin` created, unless `keep` has stored it."""
        shutil.rmtree(self.draft, ignore_errors=True)

    def read(self, state: CrashState, of_log: str) -> Recovery | None:
        """Return the description of the stored recovery of a crash state; None if none is stored.

        ``of_log``: digest of the write log to which the crash state belongs.

        Raises:
            RequestError: the files are damaged, or are of another state or log.
        """
        path = self.folder / self.name / DESCRIPTION
        if not path.is_file():
            return None
        try:
            found = Recovery.model_validate_json(path.read_text())
        except ValidationError as error:
            raise self._unusable(f"does not have the format of a recovery: {error.errors()[0]['msg']}") from error
        if (found.state, found.of_log) != (state.dump(), of_log):
            raise self._unusable("is the recovery of a state of another write log")
        if not self.log.is_file() or digest_of(self.log) != found.log_digest:
            raise self._unusable(f"has not the write log that belongs to it: {LOG} is missing or was changed")
        return found

    def _unusable(self, why: str) -> RequestError:
        folder = self.folder / self.name
        return RequestError(
            f"{folder} {why}",
            remedy="restore the directory from a copy; without it, the states of second cuts in it cannot be shown",
        )


def second_name(recovery: str | None, name: str) -> str:
    """Return the name of a state of a second cut; ``recovery``: name of the recovered state, None for a first cut."""
    return name if recovery is None else f"{recovery}{SECOND}{name}"


def resync_first_s(name: str) -> float:
    """Return the time that md's resync has before the mount in the recovery of the state with this name."""
    return RESYNC_FIRST_S if crc32(name.encode()) % 2 else 0.0


def recording_of(log: Path, recording: Recording, state: CrashState) -> Recording:
    """Return the recording of the recovery of a crash state; ``recording``: that to which the state belongs.

    Raises:
        LogError: the file ``log`` is no write log with data.
    """
    disks = DiskStates(recording)
    disks.move(state.cut)
    torn = Torn(recording)
    origin = Origin(
        content=disks.content(state),
        acknowledged_ns=recording.acknowledged_ns(state.cut),
        torn=torn.within(state),
        torn_blocks=torn.blocks(state),
    )
    return Recording(WriteLog(log), recording.array, origin)


class Candidate(NamedTuple):
    """A crash state whose recovery can be recorded, without what a checker observed in it: a journal may be large."""

    choice: Choice
    dump: str
    """The crash state, in the format of `CrashState.dump`."""
    digest: str
    """Digest of the disks' content in the state."""
    weight: int
    """How much sooner than others the recovery tends to be recorded."""

    @property
    def crash(self) -> CrashState:
        """The crash state."""
        return CrashState.load(self.dump)


def by_recovery(lines: Iterable[Line], seed: int, first_cut: int) -> list[Candidate]:
    """Return the states that were read and have no excused difference, in the order in which a second cut is tried.

    The order is a weighted random sample without replacement. The weight is the product of the numbers of bits of two
    numbers: rows that md must resync, and requests since ``first_cut``, the begin of the clients' work, of which the
    file system's log has a part to replay.
    """
    known: dict[str, Candidate] = {}
    for line in lines:
        seen, choice = line.observation, line.choice
        if seen is None or not _suits(seen):
            continue
        if line.digest in known and known[line.digest].choice < choice:
            continue
        replayed = max(choice.cut - first_cut, 0)
        weight = (1 + (seen.rows.differ if seen.rows else 0).bit_length()) * (1 + replayed.bit_length())
        known[line.digest] = Candidate(choice, line.state, line.digest, weight)
    draw = Random(f"{seed}/second")  # noqa: S311  a seeded choice, no secret
    # As in `Choices`: sorting by exponential variates is weighted sampling without replacement.
    turns = [(draw.expovariate(one.weight), one) for one in sorted(known.values())]
    return [one for _, one in sorted(turns)]


class SecondChoices(Choices):
    """The crash states of the recording of a recovery, of which the phases of the recovery take turns."""

    def __init__(self, recording: Recording, recovery: Recovery, seed: int, *, unit: int, by_interest: bool) -> None:
        # Without any request of the recovery, the state would be that of the first cut.
        super().__init__(recording, seed, first=recording.first_cut + 1, unit=unit, by_interest=by_interest)
        # The assembly comes last: it has few requests, so that many of its states have the same content.
        by_phase = {phase: Order() for phase in (*list(Phase)[1:], Phase.ASSEMBLY)}
        for choice in self.order:
            by_phase[recovery.phase(recording.instant_ns(choice.cut))].append(choice)
        self.order = Order(in_turns(*by_phase.values()))


def _suits(seen: Observation) -> bool:
    """Return whether a state was read, and has no copies that differ because a page changed while md wrote it.

    Without the log before the recovery it would be unknown that md allows such a difference.
    """
    return seen.end is End.READ and not (seen.rows is not None and seen.rows.changed)


def journal_of(recovery: str | None) -> str:
    """Return the name of the journal of the states of a second cut during a recovery; None: of the first cut."""
    return "states.jsonl" if recovery is None else f"second-{recovery}.jsonl"
