"""The harness's client for the control socket of a disk engine."""

import os
import socket
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from raidproof.core.errors import DeadlineExceeded, RigError
from raidproof.core.waiting import Deadline, pause
from raidproof.disk.cache import CacheMode, CutPolicy, CutResult
from raidproof.disk.disk_fault import DiskFault
from raidproof.disk.messages import Counters, Description, LogClosed, Use, build, decode, encode

R = TypeVar("R")
_Nothing = type(None)

DEADLINE_S = 10.0
SLOW = 12
"""Factor on the deadline for requests that move whole images (resolving, resetting, saving)."""


class EngineClient:
    """Controls the disk engine of one lab. Every method raises RigError with the engine's reason if it refuses.

    ``deadline_s`` applies to connecting and to each answer.

    Raises:
        DeadlineExceeded: no engine listens on the socket in time.
    """

    def __init__(self, path: Path, *, deadline_s: float = DEADLINE_S) -> None:
        self._deadline_s = deadline_s
        self._rest = b""
        self._socket: socket.socket | None = _connect(path, Deadline.after(deadline_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the engine keeps running."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    zeroed = True

    def require(self, mode: CacheMode, policy: CutPolicy) -> None:
        """Accept any mode and policy: simulated disks support all."""

    def freeze(self) -> int:
        """Stop serving all members at one instant; return it (CLOCK_MONOTONIC, ns). The guest must be killed next."""
        return self._ask(int, "freeze")

    def resolve(self, policy: CutPolicy = CutPolicy.DROP, seed: int = 0) -> tuple[CutResult, ...]:
        """Apply the power cut to the caches; the guest must be dead. Return the result for each member's cache."""
        return self._ask(tuple[CutResult, ...], "resolve", SLOW, policy=policy, seed=seed)

    def power_on(self) -> int:
        """Serve connections made since `resolve`; return the instant of the power-on (CLOCK_MONOTONIC, ns)."""
        return self._ask(int, "power_on")

    def set_mode(self, mode: CacheMode, serials: Iterable[str] | None = None) -> None:
        """Change the cache mode of some members, or of all."""
        self._ask(_Nothing, "set_mode", serials=_listed(serials), mode=mode)

    def set_timing(self, on: bool) -> None:
        """Simulate the disks' service times, beginning idle with empty caches; or answer requests at once."""
        self._ask(_Nothing, "set_timing", on=on)

    def use(self) -> Use:
        """Return the utilization counters of disks, controllers and engine since the engine began."""
        return self._ask(Use, "use")

    def counters(self) -> dict[str, Counters]:
        """Return the request counters of each member, by serial."""
        return {member.serial: member for member in self._ask(tuple[Counters, ...], "counters")}

    def describe(self) -> Description:
        """Return what the engine serves, and its state."""
        return self._ask(Description, "describe")

    def log_start(self, path: Path, *, data: bool = True) -> None:
        """Begin a write log at a path that the engine's process can write."""
        self._ask(_Nothing, "start_log", path=path.absolute(), data=data)

    def log_stop(self) -> LogClosed:
        """End the write log.

        Raises:
            RigError: the engine refuses, or writing the log failed: then the log is unusable.
        """
        closed = self._ask(LogClosed, "stop_log")
        if closed.error is not None:
            raise RigError(closed.error)
        return closed

    def mark(self, text: str) -> int:
        """Write a text to the write log, if one is open; return the instant (CLOCK_MONOTONIC, ns)."""
        return self._ask(int, "mark", text=text)

    def reset(self, old: Iterable[str] = ()) -> None:
        """Make all members blank, with their initial modes and counters.

        ``old``: serials of members whose unwritten parts read as old data (`sparse_image.OLD_DATA`), not as zeroes.
        """
        self._ask(_Nothing, "reset", SLOW, old=tuple(old))

    def image(self, serial: str, path: Path, *, durable: bool = True) -> None:
        """Write a member's durable content, or all that a read returns, to a sparse file; old data becomes a hole."""
        self._ask(_Nothing, "save", SLOW, serial=serial, path=path.absolute(), durable=durable)

    def show(self, path: Path, keep: bool = False) -> None:
        """Undo what was written since the last kept state, then apply the write log at ``path``.

        With ``keep`` the result becomes the kept state. All members must be LYING, so that flushes of a guest make
        nothing durable; the power may be on or off.

        Raises:
            RigError: another mode, frozen disks, an open log, or a log of other members; nothing was changed.
        """
        self._ask(_Nothing, "show", SLOW, path=path.absolute(), keep=keep)

    def set_disk_fault(self, serial: str, disk_fault: DiskFault) -> None:
        """Set a disk fault of a drive; see `raidproof.disk.disk_fault`. `counters` count its effects."""
        self._ask(_Nothing, "set_disk_fault", serial=serial, disk_fault=disk_fault)

    def clear_disk_faults(self, serials: Iterable[str] | None = None) -> None:
        """Remove the disk faults of some drives, or of all; damaged data stays damaged."""
        self._ask(_Nothing, "clear_disk_faults", serials=_listed(serials))

    def corrupt(self, serial: str, offset: int, length: int, seed: int = 0) -> None:
        """Change every byte of a region of a drive, durably and silently."""
        self._ask(_Nothing, "corrupt", serial=serial, offset=offset, length=length, seed=seed)

    def swap(self, one: str, other: str) -> None:
        """Exchange the content of two drives; the power must be off, or no client connected to them."""
        self._ask(_Nothing, "swap", one=one, other=other)

    def _ask(self, expected: type[R], verb: str, patience: int = 1, /, **arguments: object) -> R:
        if self._socket is None:
            raise RigError("the connection to the disk engine is closed")
        request, deadline_s = encode({"verb": verb, **arguments}), self._deadline_s * patience
        try:
            reply = decode(self._exchange(self._socket, request, Deadline.after(deadline_s)))
        except TimeoutError as error:
            self.close()
            raise DeadlineExceeded(f"the disk engine did not answer {verb} in {deadline_s:g} s") from error
        except OSError as error:
            self.close()
            raise RigError(f"the disk engine is gone: {verb}: {error}") from error
        if "refused" in reply:
            raise RigError(f"disk engine: {reply['refused']}")
        return build(expected, reply.get("result"))

    def _exchange(self, connection: socket.socket, line: bytes, deadline: Deadline) -> bytes:
        connection.settimeout(max(deadline.remaining_s, 0.001))
        connection.sendall(line)
        while b"\n" not in self._rest:
            connection.settimeout(max(deadline.remaining_s, 0.001))
            received = connection.recv(1 << 16)
            if not received:
                raise ConnectionResetError("it hung up")
            self._rest += received
        reply, _, self._rest = self._rest.partition(b"\n")
        return reply


def _listed(serials: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if serials is None else tuple(serials)


def _connect(path: Path, deadline: Deadline) -> socket.socket:
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(os.fspath(path))
        except OSError as error:
            connection.close()
            if deadline.passed:
                raise DeadlineExceeded(f"no disk engine listens at {path}: {error.strerror}") from error
            pause(0.01)
        else:
            return connection
