"""The directories of labs, and the removal of labs and folders that killed runs left behind."""

import fcntl
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from raidproof.core.errors import RequestError, RigError
from raidproof.core.scratch import remove_abandoned
from raidproof.core.topology import LONGEST_SERIAL, Topology
from raidproof.core.waiting import Deadline, wait_until
from raidproof.disk.daemon import LONGEST_SOCKET_PATH
from raidproof.image import cache
from raidproof.machine.login import KeyPair, LabKeys

ENTRY = "lab.json"
"""Name of the file with the `LabEntry`, in the directory of each lab."""
LOCK = ".lock"
LONGEST_PATH = LONGEST_SOCKET_PATH - len("/vhost-.sock") - LONGEST_SERIAL
"""Greatest length of the path of a lab's directory in bytes: the lab's socket paths must fit in sun_path (unix(7))."""
KILL_DEADLINE_S = 10.0
"""Seconds to wait for the end of a process after SIGKILL."""


_STATE, _STARTED = 0, 19
"""Indices of state and start time (fields 3 and 22 of /proc/PID/stat) after the program's name (proc(5))."""


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the program's name; raise ProcessLookupError if no process has it."""
    try:
        # The name, in parentheses, may contain spaces and parentheses.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessLookupError(pid) from None


class ProcessIdentity(BaseModel):
    """The identity of one process of this host; a later process with the same PID has another identity."""

    model_config = ConfigDict(frozen=True)

    pid: int
    started: int
    """Start time in clock ticks since the boot of this host (proc(5))."""
    boot_id: str
    """The kernel's ID of the boot of this host, from /proc/sys/kernel/random/boot_id."""

    @classmethod
    def of(cls, pid: int) -> Self:
        """Return the identity of the process that has this PID now.

        Raises:
            ProcessLookupError: no process has this PID.
        """
        started = int(_stat(pid)[_STARTED])
        return cls(pid=pid, started=started, boot_id=Path("/proc/sys/kernel/random/boot_id").read_text().strip())

    @property
    def alive(self) -> bool:
        """Whether the process is running; a zombie is not."""
        try:
            return self.of(self.pid) == self and _stat(self.pid)[_STATE] not in {"Z", "X"}
        except ProcessLookupError:
            return False

    def kill(self) -> bool:
        """Kill the process, unless a later process has its PID; return whether the process was running.

        Raises:
            DeadlineExceeded: the process did not end after SIGKILL.
        """
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            # The descriptor refers to one process even if the PID is reused; check that this is the right process.
            if not self.alive:
                return False
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)
        wait_until(lambda: not self.alive, Deadline.after(KILL_DEADLINE_S), f"the end of process {self.pid}")
        return True


class LabEntry(BaseModel):
    """The description of a lab in the lab's directory: the topology, and the processes whose end ends the lab."""

    harness: ProcessIdentity
    """The process that created the lab."""
    keeper: ProcessIdentity | None = None
    """Process 1 of the lab's PID namespace: when it ends, the kernel ends every process of the lab."""
    topology: Topology | None = None
    kept: bool = False
    """Whether the lab continues after the end of the process that created it."""
    keys: tuple[str, str, str, str] | None = None
    """SSH keys of a kept lab for `raidproof shell`: the user's private and public key, then those of the machines."""

    @property
    def lab_keys(self) -> LabKeys | None:
        """The SSH keys of a kept lab; None if the lab is not kept."""
        if self.keys is None:
            return None
        return LabKeys(user=KeyPair(*self.keys[:2]), host=KeyPair(*self.keys[2:]))

    @property
    def running(self) -> bool:
        """Whether the process that created the lab is running or, for a kept lab, process 1 of its PID namespace."""
        return (self.kept and self.keeper is not None and self.keeper.alive) or self.harness.alive


def labs_directory() -> Path:
    """Return the directory that contains the directories of this user's labs; create it if it does not exist.

    Raises:
        RequestError: the path of the directory is too long for the sockets of a lab.
        RigError: another user owns the directory, or it is a symbolic link.
    """
    path = Path(tempfile.gettempdir()) / f"raidproof-{os.getuid()}"
    excess = len(os.fsencode(path)) + len("/12345678") - LONGEST_PATH
    if excess > 0:
        raise RequestError(
            f"the path of the folder for temporary files is {excess} bytes too long for the sockets of a lab: {path}",
            remedy="set TMPDIR to a shorter path, for example /tmp",
        )
    path.mkdir(mode=0o700, exist_ok=True)
    if path.is_symlink() or path.lstat().st_uid != os.getuid():
        raise RigError(
            f"{path} is owned by another user or is a symbolic link", remedy="set TMPDIR to a directory of your own"
        )
    return path


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """During the ``with`` block, hold a lock that prevents other processes from creating, reading or listing labs."""
    with (directory / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@dataclass
class LabDirectory:
    """The directory of one lab; the file `ENTRY` in it describes the lab."""

    path: Path

    @classmethod
    def create(cls) -> Self:
        """Create the directory of a new lab, with a `LabEntry` that names this process as creator.

        Raises:
            RequestError, RigError: as for `labs_directory`.
        """
        directory = labs_directory()
        made = cls(directory / secrets.token_hex(4))
        with _locked(directory):
            try:
                made.path.mkdir(mode=0o700)
                made._write(LabEntry(harness=ProcessIdentity.of(os.getpid())))
            except BaseException:
                shutil.rmtree(made.path, ignore_errors=True)
                raise
        return made

    @property
    def name(self) -> str:
        """The name of the lab: the last component of the directory's path."""
        return self.path.name

    @property
    def entry(self) -> LabEntry | None:
        """The lab's `LabEntry`, read from the directory, or None.

        None: the lab was removed, or the process that created the lab was killed before it wrote the entry.

        Raises:
            RigError: another version of raidproof wrote the entry.
        """
        path = self.path / ENTRY
        try:
            with _locked(self.path.parent):
                return LabEntry.model_validate_json(path.read_text())
        except FileNotFoundError:
            return None
        except ValidationError as error:
            raise RigError(f"another version of raidproof wrote {path}") from error

    def _write(self, entry: LabEntry) -> None:
        aside = self.path / (ENTRY + ".new")
        aside.touch(mode=0o600)
        aside.write_text(entry.model_dump_json())
        aside.rename(self.path / ENTRY)

    def _update(self, **changes: object) -> None:
        entry = self.entry
        if entry is None:
            raise RigError(f"the lab was removed: {self.path / ENTRY} does not exist")
        self._write(entry.model_copy(update=changes))

    def register(self, keeper_pid: int, topology: Topology) -> None:
        """Store the lab's topology, and the identity of the keeper: process 1 of the lab's PID namespace."""
        self._update(keeper=ProcessIdentity.of(keeper_pid), topology=topology)

    def mark_kept(self, keys: LabKeys) -> None:
        """Store that the lab continues after the process that created it, and the lab's SSH keys."""
        self._update(kept=True, keys=(keys.user.private, keys.user.public, keys.host.private, keys.host.public))

    def remove(self) -> None:
        """Remove the directory with its content."""
        # The entry is removed last, with the directory: a directory without an entry counts as a partly created lab.
        with suppress(FileNotFoundError):
            for path in self.path.iterdir():
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                elif path.name != ENTRY:
                    path.unlink(missing_ok=True)
        with suppress(FileNotFoundError), _locked(self.path.parent):
            shutil.rmtree(self.path, ignore_errors=True)


def all_labs() -> list[LabDirectory]:
    """Return every lab of this user, running or left behind.

    A lab without a `LabEntry` was left by a process that was killed while creating it: `LabDirectory.create` holds the
    lock until the entry is written.
    """
    directory = labs_directory()
    with _locked(directory):
        return [LabDirectory(path) for path in sorted(directory.iterdir()) if path.is_dir()]


def collect(*, kept: bool = False) -> Iterator[str]:
    """Remove labs, folders and files that killed runs left behind, and yield a line about each action.

    A running lab is not touched; a kept lab that is running is ended only if ``kept`` is set.
    """
    for lab in all_labs():
        yield from _lab(lab, kept=kept)
    yield from (f"removed {what}" for what in cache.sweep())
    yield from (f"removed {path}, the folder of a process that was killed" for path in remove_abandoned())


def _lab(lab: LabDirectory, *, kept: bool) -> Iterator[str]:
    try:
        entry = lab.entry
    except RigError as error:
        yield f"did not touch lab {lab.name}: {error}"
        return
    if entry is None:
        if not lab.path.exists():
            return  # its harness has removed the directory meanwhile
        yield f"removed lab {lab.name}: the process that was creating it was killed"
    elif not entry.running:
        ended = entry.keeper is not None and entry.keeper.kill()
        yield f"{'ended and ' * ended}removed lab {lab.name}: {_why(entry)}"
    elif entry.kept and kept:
        assert entry.keeper is not None  # noqa: S101  a running kept lab has a keeper
        entry.keeper.kill()
        yield f"ended and removed lab {lab.name}, which was kept"
    elif entry.kept:
        yield f"did not touch lab {lab.name}, which was kept (./raidproof gc --kept ends the lab)"
        return
    else:
        return
    lab.remove()
    if lab.path.exists():
        raise RigError(f"cannot remove {lab.path}", remedy="remove the folder by hand")


def _why(entry: LabEntry) -> str:
    """Return why a lab that is not running is removed."""
    if entry.kept:
        return "the lab was kept, but the process that keeps its namespaces has ended"
    return f"process {entry.harness.pid}, which created the lab, was killed"
