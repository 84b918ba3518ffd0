"""Where the files of running labs are, so that what a killed run left can be found again."""

import os
import secrets
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import psutil
from pydantic import BaseModel

from harness.errors import RigError
from harness.machine.keys import KeyPair, LabKeys

ENTRY = "lab.json"


class LabEntry(BaseModel):
    """What is written about a lab in its directory: who made it, and what would have to be ended."""

    harness: tuple[int, float]
    """Process id and start time of the harness that made it."""
    keeper: tuple[int, float] | None = None
    kept: bool = False
    keys: tuple[str, str, str, str] | None = None
    """Private and public keys of user and host: only in a kept lab, for `raidproof shell`."""

    @property
    def lab_keys(self) -> LabKeys | None:
        """The keys of a kept lab."""
        if self.keys is None:
            return None
        return LabKeys(user=KeyPair(*self.keys[:2]), host=KeyPair(*self.keys[2:]))


def identity(pid: int) -> tuple[int, float]:
    """Return what tells a process from a later one with the same number."""
    return pid, psutil.Process(pid).create_time()


def alive(process: tuple[int, float]) -> bool:
    """Whether that very process still runs."""
    try:
        return identity(process[0]) == process and psutil.Process(process[0]).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def labs_directory() -> Path:
    """Return the directory of this user's labs. Short, for a unix socket's path has at most 107 bytes.

    Raises:
        RigError: somebody else owns it.
    """
    path = Path(tempfile.gettempdir()) / f"raidproof-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    if path.lstat().st_uid != os.getuid() or path.is_symlink():
        raise RigError(f"{path} belongs to somebody else", remedy="set TMPDIR to a directory of your own")
    return path


@dataclass
class LabDirectory:
    """The directory of one lab."""

    path: Path

    @classmethod
    def create(cls) -> "LabDirectory":
        """Make the directory of a new lab and note who made it."""
        made = cls(labs_directory() / secrets.token_hex(4))
        made.path.mkdir(mode=0o700)
        made._write(LabEntry(harness=identity(os.getpid())))
        return made

    @property
    def entry(self) -> LabEntry | None:
        """What was noted, or None if its maker was killed before it could."""
        try:
            return LabEntry.model_validate_json((self.path / ENTRY).read_text())
        except (FileNotFoundError, ValueError):
            return None

    def _write(self, entry: LabEntry) -> None:
        aside = self.path / (ENTRY + ".new")
        aside.touch(mode=0o600)
        aside.write_text(entry.model_dump_json())
        aside.rename(self.path / ENTRY)

    def register(self, keeper_pid: int) -> None:
        """Note the process that holds the lab together."""
        self._write(LabEntry(harness=identity(os.getpid()), keeper=identity(keeper_pid)))

    def mark_kept(self, keys: LabKeys) -> None:
        """Note that the lab is to outlive its maker."""
        entry = self.entry
        if entry is None:
            raise RigError(f"lab entry lost: {self.path}")
        pairs = (keys.user.private, keys.user.public, keys.host.private, keys.host.public)
        self._write(entry.model_copy(update={"kept": True, "keys": pairs}))

    def remove(self) -> None:
        """Remove it with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)


def all_labs() -> list[LabDirectory]:
    """Return every lab of this user, running or left behind."""
    return [LabDirectory(path) for path in sorted(labs_directory().iterdir()) if path.is_dir()]
