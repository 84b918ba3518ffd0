"""XFS recovers again after a power cut that tears a write of its log recovery.

A crash state of a recorded crash test is recovered on disks that record a write log. For a sample of the writes of the
log recovery, the power is cut a second time after the write, of which only the first sector survives: XFS with sectors
of 512 bytes must not rely on more (`sb_sectsize`).
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from findings.answer import Record, conclude
from raidproof.core.units import KIB, SECTOR
from raidproof.crash.checkers import LocalCheckers
from raidproof.crash.recovery import recording_of
from raidproof.crash.states import CrashState, Recording, Survivor
from raidproof.crash.stats import ExplorationStats
from raidproof.disk.writelog import Kind
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.record.exploration import End
from raidproof.run.crash_test import CrashTestSpec
from raidproof.run.run import Run
from raidproof.run.source import Source, source_of
from scenarios.crash.small_lab import small_lab

NAME = "torn-recovery"
LEDGER_SECONDS = 0.7
SAMPLE, LEAST = 60, 30
"""Number of torn writes that are tried, and the least number to conclude that XFS recovers."""
PAGE = 4 * KIB


@pytest.fixture
def own(current_run: Run) -> Iterator[Run]:
    """Yield a separate run with one client."""
    with small_lab(current_run, NAME) as one:
        yield one


def test_xfs_recovers_from_a_torn_write_of_its_recovery(own: Run, record: Record, tmp_path: Path) -> None:
    own.cycle(CrashTestSpec(name=NAME, title=NAME, stack=stack_of(), ledger_seconds=LEDGER_SECONDS))
    ends = [end is not End.READ for end in torn_ends(source_of(own.store, NAME), tmp_path)]
    measured = f"after {sum(ends)} of {len(ends)} torn writes of its log recovery XFS does not mount"
    conclude(record, own.lab.server, measured, wrong=sum(ends), seen=len(ends), least=LEAST)


def torn_ends(source: Source, folder: Path) -> Iterator[End]:
    """Yield how the check ends after each torn write of the recovery of the recording's last crash state."""
    recording = source.recording
    first = CrashState(len(recording.records))
    stats = ExplorationStats(recording, source.oracle)
    with LocalCheckers(recording, source.boots(folder), stats, checkers=1) as checkers:
        (worker,), cursor = checkers.seats, checkers.cursor
        cursor.go(first.cut)
        log = folder / "recovery.log"
        recovered = worker.recover(cursor.job(first), recording.modes(first.cut), log, 0.0).result()
        assert recovered.observation.end is End.READ, recovered.observation.said
        second = recording_of(log, recording, first)
        cursor.read(second)
        begun = dict(recovered.stages)
        for number in pages(second, begun["mount"], begun["verify"]):
            cursor.go(number + 1)
            if number in cursor.window.open:
                at = second.request(number).offset
                state = CrashState(number + 1, (Survivor(number, ((at, at + SECTOR),)),))
                yield worker.submit(cursor.job(state)).result().observation.end


def pages(recording: Recording, begin_ns: int, end_ns: int) -> list[int]:
    """Return a sample of the writes of one page that completed in a time, in order."""
    found = [
        number
        for number, one in enumerate(recording.records[recording.first_cut :], start=recording.first_cut)
        if one.kind is Kind.WRITE and one.length == PAGE and begin_ns <= one.completed_ns < end_ns
    ]
    return found[:: -(-len(found) // SAMPLE)] if found else []
