"""Rows of an array of which a copy or the parity was never written, by the write log of a whole crash test."""

from pathlib import Path

from raidproof.crash.disk_states import DiskStates
from raidproof.crash.redundancy import Redundancy
from raidproof.crash.states import CrashState, Recording, Survivor
from raidproof.disk.writelog import LogError, WriteLog
from raidproof.storage.array import ArraySpec

MOST = 3
"""Greatest number of rows that are described."""


def never_written(log: Path, array: ArraySpec) -> list[str] | None:
    """Return descriptions of the first rows that differ at the end of a write log although no write is in progress.

    The last write of such a row was durable on its members, and had ended, more than `SETTLED_NS` before. Rows whose
    copies differ because the page changed while md wrote it are left out. None: the log does not tell.
    """
    try:
        recording = Recording(WriteLog(log), array)
    except (LogError, OSError):
        return None
    window = DiskStates(recording)
    redundancy = Redundancy(window)
    cut = len(recording.records)
    redundancy.moved(window.move(cut))
    found = redundancy.accuracy(CrashState(cut, tuple(map(Survivor, window.open))))
    return None if found.unchecked else [str(one) for one in found.settled[:MOST]]
