"""The directories of running labs, and the removal of what killed runs left in them."""

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
from raidproof.core.topology import LONGEST_SERIAL, Topology
from raidproof.core.waiting import Deadline, wait_until, wall_clock
from raidproof.disk.daemon import LONGEST_SOCKET_PATH
from raidproof.image import cache
from raidproof.image.kernel.catalogue import PROBE_DEADLINE_S, SCRATCH_PREFIX
from raidproof.machine.login import KeyPair, LabKeys

ENTRY = "lab.json"
LOCK = ".lock"
LONGEST_PATH = LONGEST_SOCKET_PATH - len("/vhost-.sock") - LONGEST_SERIAL
"""Longest path of a lab directory, in bytes, with which the longest socket name in it still fits."""
KILL_DEADLINE_S = 10.0


_STATE, _STARTED = 0, 19
"""Fields 3 and 22 of /proc/PID/stat, counted from the first after the name."""


def _stat(pid: int) -> list[str]:
    try:
        # The name, in parentheses, may contain any character.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessLookupError(pid) from None


class ProcessIdentity(BaseModel):
    """Identifies one process, even if its number is reused. Independent of the wall clock."""

    model_config = ConfigDict(frozen=True)

    pid: int
    started: int
    """In clock ticks since the machine was booted."""
    boot_id: str

    @classmethod
    def of(cls, pid: int) -> Self:
        """Return the identity of the process that has this number now.

        Raises:
            ProcessLookupError: there is none.
        """
        started = int(_stat(pid)[_STARTED])
        return cls(pid=pid, started=started, boot_id=Path("/proc/sys/kernel/random/boot_id").read_text().strip())

    @property
    def alive(self) -> bool:
        """Whether this process still runs."""
        try:
            return self.of(self.pid) == self and _stat(self.pid)[_STATE] not in {"Z", "X"}
        except ProcessLookupError:
            return False

    def kill(self) -> bool:
        """End this process, but not a later one with the same number; return whether it still ran.

        Raises:
            DeadlineExceeded: it does not end.
        """
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            # The descriptor now refers to one process; if that is the right one, the signal cannot reach another.
            if not self.alive:
                return False
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)
        wait_until(lambda: not self.alive, Deadline.after(KILL_DEADLINE_S), f"the end of process {self.pid}")
        return True


class LabEntry(BaseModel):
    """The entry of a lab in its directory: the process that made it, and the processes to end."""

    harness: ProcessIdentity
    """The process that made the lab."""
    keeper: ProcessIdentity | None = None
    """The parent of the lab's process 1: when it ends, all of the lab ends."""
    topology: Topology | None = None
    kept: bool = False
    keys: tuple[str, str, str, str] | None = None
    """Private and public keys of user and host: only in a kept lab, for `raidproof shell`."""

    @property
    def lab_keys(self) -> LabKeys | None:
        """The keys of a kept lab."""
        if self.keys is None:
            return None
        return LabKeys(user=KeyPair(*self.keys[:2]), host=KeyPair(*self.keys[2:]))

    @property
    def running(self) -> bool:
        """Whether the lab is in use: by the harness that made it or, once kept, by its keeper."""
        return (self.kept and self.keeper is not None and self.keeper.alive) or self.harness.alive


def labs_directory() -> Path:
    """Return the directory of this user's labs.

    Raises:
        RequestError: its path is too long for the sockets of a lab.
        RigError: another user owns it.
    """
    path = Path(tempfile.gettempdir()) / f"raidproof-{os.getuid()}"
    excess = len(os.fsencode(path)) + len("/12345678") - LONGEST_PATH
    if excess > 0:
        raise RequestError(
            f"the path of the folder for temporary files is {excess} bytes too long for the sockets of a lab: {path}",
            remedy="set TMPDIR to a shorter one, as /tmp",
        )
    path.mkdir(mode=0o700, exist_ok=True)
    if path.is_symlink() or path.lstat().st_uid != os.getuid():
        raise RigError(f"{path} belongs to another user", remedy="set TMPDIR to a directory of your own")
    return path


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Lock out other processes that create or list labs; the kernel releases the lock if its holder is killed."""
    with (directory / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@dataclass
class LabDirectory:
    """The directory of one lab."""

    path: Path

    @classmethod
    def create(cls) -> Self:
        """Create the directory of a new lab, with an entry about the process that made it.

        Raises:
            RequestError, RigError: the directory cannot be created.
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
        """The identifier of this lab."""
        return self.path.name

    @property
    def entry(self) -> LabEntry | None:
        """The lab's entry; None if its maker was killed before writing it, or if the lab is gone.

        Raises:
            RigError: another version of raidproof wrote it.
        """
        path = self.path / ENTRY
        try:
            with _locked(self.path.parent):
                return LabEntry.model_validate_json(path.read_text())
        except FileNotFoundError:
            return None
        except ValidationError as error:
            raise RigError(f"written by another version of raidproof: {path}") from error

    def _write(self, entry: LabEntry) -> None:
        aside = self.path / (ENTRY + ".new")
        aside.touch(mode=0o600)
        aside.write_text(entry.model_dump_json())
        aside.rename(self.path / ENTRY)

    def _update(self, **changes: object) -> None:
        entry = self.entry
        if entry is None:
            raise RigError(f"lab entry lost: {self.path}")
        self._write(entry.model_copy(update=changes))

    def register(self, keeper_pid: int, topology: Topology) -> None:
        """Record the process whose end ends the lab, and the lab's topology."""
        self._update(keeper=ProcessIdentity.of(keeper_pid), topology=topology)

    def mark_kept(self, keys: LabKeys) -> None:
        """Record that the lab shall outlive its maker."""
        self._update(kept=True, keys=(keys.user.private, keys.user.public, keys.host.private, keys.host.public))

    def remove(self) -> None:
        """Remove the directory with its content."""
        # The entry goes last and together with the directory: otherwise the rest would look like a half-made lab.
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

    A lab without an entry was left by a process that was killed while making it: the lock excludes concurrent makers.
    """
    directory = labs_directory()
    with _locked(directory):
        return [LabDirectory(path) for path in sorted(directory.iterdir()) if path.is_dir()]


def collect(*, kept: bool = False) -> Iterator[str]:
    """Remove everything that no running process needs, and yield a line about each action.

    Running labs are left alone; a kept lab is ended only with ``kept``.
    """
    for lab in all_labs():
        yield from _lab(lab, kept=kept)
    yield from (f"removed {what}" for what in cache.sweep())
    yield from (f"removed {path}, of a kernel's trial" for path in _trials())


def _lab(lab: LabDirectory, *, kept: bool) -> Iterator[str]:
    try:
        entry = lab.entry
    except RigError as error:
        yield f"left alone lab {lab.name}: {error}"
        return
    if entry is None:
        if not lab.path.exists():
            return  # its harness has removed it meanwhile
        yield f"removed lab {lab.name}: the process that was making it was killed"
    elif not entry.running:
        ended = entry.keeper is not None and entry.keeper.kill()
        yield f"{'ended and ' * ended}removed lab {lab.name}: {_why(entry)}"
    elif entry.kept and kept:
        assert entry.keeper is not None  # noqa: S101  it runs
        entry.keeper.kill()
        yield f"ended and removed lab {lab.name}, which was kept"
    elif entry.kept:
        yield f"left alone lab {lab.name}, which was kept (./raidproof gc --kept ends it)"
        return
    else:
        return
    lab.remove()
    if lab.path.exists():
        raise RigError(f"cannot remove {lab.path}", remedy="remove it by hand")


def _why(entry: LabEntry) -> str:
    return "it was kept, and has ended" if entry.kept else f"process {entry.harness.pid}, which made it, was killed"


def _trials() -> Iterator[Path]:
    """Remove the folders of killed trials of kernels: those that are older than any trial can be."""
    now = wall_clock().timestamp()
    for path in sorted(Path(tempfile.gettempdir()).glob(f"{SCRATCH_PREFIX}*")):
        status = path.lstat()
        if status.st_uid == os.getuid() and now - status.st_mtime > 2 * PROBE_DEADLINE_S:
            shutil.rmtree(path)
            yield path
