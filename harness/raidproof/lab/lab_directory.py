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
"""Bytes of a lab directory's path, so that the longest name of a socket in it still fits."""
KILL_DEADLINE_S = 10.0


_STATE, _STARTED = 0, 19
"""Fields 3 and 22 of /proc/PID/stat, counted from the first after the name."""


def _stat(pid: int) -> list[str]:
    try:
        # The name, in parentheses, may contain anything.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessLookupError(pid) from None


class ProcessIdentity(BaseModel):
    """One process, told from a later one with the same number. No part depends on the wall clock."""

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
        """Whether that very process still runs."""
        try:
            return self.of(self.pid) == self and _stat(self.pid)[_STATE] not in {"Z", "X"}
        except ProcessLookupError:
            return False

    def kill(self) -> bool:
        """End that very process, and none that has got its number since; return whether there was anything to end.

        Raises:
            DeadlineExceeded: it does not end.
        """
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            # From here on the descriptor is of one process; if it is the one that we mean, no other will be hit.
            if not self.alive:
                return False
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)
        wait_until(lambda: not self.alive, Deadline.after(KILL_DEADLINE_S), f"the end of process {self.pid}")
        return True


class LabEntry(BaseModel):
    """What is written about a lab in its directory: who made it, and what would have to be ended."""

    harness: ProcessIdentity
    """The process that made it."""
    keeper: ProcessIdentity | None = None
    """The parent of the process that holds it together: with it, all of the lab ends."""
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
        """Whether anybody holds on to the lab: the harness that made it or, once it is kept, its keeper."""
        return (self.kept and self.keeper is not None and self.keeper.alive) or self.harness.alive


def labs_directory() -> Path:
    """Return the directory of this user's labs.

    Raises:
        RequestError: its path is too long for the sockets of a lab.
        RigError: somebody else owns it.
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
        raise RigError(f"{path} belongs to somebody else", remedy="set TMPDIR to a directory of your own")
    return path


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Let nobody else create or list labs meanwhile; the kernel gives the lock back if its holder is killed."""
    with (directory / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@dataclass
class LabDirectory:
    """The directory of one lab."""

    path: Path

    @classmethod
    def create(cls) -> Self:
        """Make the directory of a new lab and note who made it.

        Raises:
            RequestError, RigError: there is no place for it.
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
        """What tells this lab from others."""
        return self.path.name

    @property
    def entry(self) -> LabEntry | None:
        """What was noted, or None if its maker was killed before it could, or if the lab has gone.

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
        """Note the process that holds the lab together, and what the lab consists of."""
        self._update(keeper=ProcessIdentity.of(keeper_pid), topology=topology)

    def mark_kept(self, keys: LabKeys) -> None:
        """Note that the lab is to outlive its maker."""
        self._update(kept=True, keys=(keys.user.private, keys.user.public, keys.host.private, keys.host.public))

    def remove(self) -> None:
        """Remove it with all that is in it."""
        # The entry goes last and together with the directory: one without the other would look like a half-made lab.
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

    One without an entry was left by a process that was killed while it made it: nobody is making one meanwhile.
    """
    directory = labs_directory()
    with _locked(directory):
        return [LabDirectory(path) for path in sorted(directory.iterdir()) if path.is_dir()]


def collect(*, kept: bool = False) -> Iterator[str]:
    """Remove everything that no living run needs, and say of each thing what was done.

    What is running is left alone; a lab that was kept is ended only with ``kept``.
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
        yield f"removed lab {lab.name}: whoever began to make it was killed"
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
    """Remove the folders of kernels' trials that were killed: those which are older than any trial can be."""
    now = wall_clock().timestamp()
    for path in sorted(Path(tempfile.gettempdir()).glob(f"{SCRATCH_PREFIX}*")):
        status = path.lstat()
        if status.st_uid == os.getuid() and now - status.st_mtime > 2 * PROBE_DEADLINE_S:
            shutil.rmtree(path)
            yield path
