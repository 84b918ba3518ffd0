"""The harness's client of the disk engine: sends requests over the engine's control socket."""

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
"""Factor by which the deadline of resolve, reset, save and show is longer: they copy whole disk images."""


class EngineClient:
    """Controls the disk engine of one lab.

    ``deadline_s`` limits the time for connecting, and the time for each answer. Every method raises RigError with the
    engine's reason if the engine refuses the request.

    Raises:
        DeadlineExceeded: no engine listens on the socket ``path`` within ``deadline_s``.
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
        """Accept every cache mode and cut policy: the disk engine supports all of them."""

    def fence(self, machine: str) -> int:
        """Fail all requests over the connections that a machine has; return the instant (CLOCK_MONOTONIC, ns).

        The caller must have killed the machine, which would see errors otherwise.
        """
        return self._ask(int, "fence", machine=machine)

    def freeze(self) -> int:
        """Stop serving all members at one instant; return the instant (CLOCK_MONOTONIC, ns).

        The caller must kill the guest next.
        """
        return self._ask(int, "freeze")

    def resolve(self, policy: CutPolicy = CutPolicy.DROP, seed: int = 0) -> tuple[CutResult, ...]:
        """Apply the power cut to the caches; return the result for each member.

        The caller must have killed the guest.
        """
        return self._ask(tuple[CutResult, ...], "resolve", SLOW, policy=policy, seed=seed)

    def power_on(self) -> int:
        """Switch the disks' power on; return the instant (CLOCK_MONOTONIC, ns).

        The engine serves only connections that were made after `resolve`.
        """
        return self._ask(int, "power_on")

    def set_mode(self, mode: CacheMode, serials: Iterable[str] | None = None) -> None:
        """Change the cache mode of the members with these serial numbers; None: of all members."""
        self._ask(_Nothing, "set_mode", serials=_listed(serials), mode=mode)

    def set_timing(self, on: bool) -> None:
        """Switch the simulation of the disks' service times on or off.

        Switched on, the simulated disks are idle at first and their caches empty. Switched off, the engine answers
        each request at once.
        """
        self._ask(_Nothing, "set_timing", on=on)

    def use(self) -> Use:
        """Return the utilization counters of disks, controllers and engine since the start of the engine."""
        return self._ask(Use, "use")

    def counters(self) -> dict[str, Counters]:
        """Return the request counters of each member, by serial number."""
        return {member.serial: member for member in self._ask(tuple[Counters, ...], "counters")}

    def describe(self) -> Description:
        """Return the engine's members, power state and write log."""
        return self._ask(Description, "describe")

    def log_start(self, path: Path, *, data: bool = True) -> None:
        """Begin a write log in the file ``path``; ``data``: include the written data, not only sizes and times."""
        self._ask(_Nothing, "start_log", path=path.absolute(), data=data)

    def log_stop(self) -> LogClosed:
        """End the write log.

        Raises:
            RigError: no write log is open, or a write to the log failed, so that the log is unusable.
        """
        closed = self._ask(LogClosed, "stop_log")
        if closed.error is not None:
            raise RigError(closed.error)
        return closed

    def mark(self, text: str) -> int:
        """Write a text to the write log, if a log is open; return the instant (CLOCK_MONOTONIC, ns)."""
        return self._ask(int, "mark", text=text)

    def reset(self, old: Iterable[str] = ()) -> None:
        """Discard the content of all members, restore their initial cache modes, and set their counters to 0.

        ``old``: serial numbers of the members that read as old data (`sparse_image.OLD_DATA`) afterwards, not as
        zeroes.
        """
        self._ask(_Nothing, "reset", SLOW, old=tuple(old))

    def image(self, serial: str, path: Path, *, durable: bool = True) -> None:
        """Write a member's content to the sparse file ``path``; regions that were never written become holes.

        ``durable``: write only the durable content; otherwise the content that a read returns.
        """
        self._ask(_Nothing, "save", SLOW, serial=serial, path=path.absolute(), durable=durable)

    def show(self, path: Path, keep: bool = False) -> None:
        """Undo all requests that are not durable, then apply the write log ``path`` to the members.

        ``keep``: make the result durable, so that later calls do not undo it. All members must have cache mode LYING,
        so that the flushes of a guest make no data durable. The power may be on or off.

        Raises:
            RigError: a member has another cache mode, the disks are frozen, a write log is open, or the log ``path``
                is of other members; no content was changed.
        """
        self._ask(_Nothing, "show", SLOW, path=path.absolute(), keep=keep)

    def set_disk_fault(self, serial: str, disk_fault: DiskFault) -> None:
        """Add a disk fault to a drive; `counters` returns the number of requests that the disk fault has affected."""
        self._ask(_Nothing, "set_disk_fault", serial=serial, disk_fault=disk_fault)

    def clear_disk_faults(self, serials: Iterable[str] | None = None) -> None:
        """Remove the disk faults of the drives with these serial numbers (None: all); damaged data stays damaged."""
        self._ask(_Nothing, "clear_disk_faults", serials=_listed(serials))

    def corrupt(self, serial: str, offset: int, length: int, seed: int = 0) -> None:
        """Change every byte of a region of a drive durably; no request reports an error."""
        self._ask(_Nothing, "corrupt", serial=serial, offset=offset, length=length, seed=seed)

    def swap(self, one: str, other: str) -> None:
        """Exchange the content of two drives; the power must be off, or no client may be connected to the drives."""
        self._ask(_Nothing, "swap", one=one, other=other)

    def _ask(self, expected: type[R], verb: str, patience: int = 1, /, **arguments: object) -> R:
        if self._socket is None:
            raise RigError(f"cannot send {verb!r} to the disk engine: the connection is closed")
        request, deadline_s = encode({"verb": verb, **arguments}), self._deadline_s * patience
        try:
            reply = decode(self._exchange(self._socket, request, Deadline.after(deadline_s)))
        except TimeoutError as error:
            self.close()
            raise DeadlineExceeded(f"the disk engine did not answer {verb!r} within {deadline_s:g} s") from error
        except OSError as error:
            self.close()
            raise RigError(f"the connection to the disk engine broke during {verb!r}: {error}") from error
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
                raise ConnectionResetError("the disk engine closed the connection")
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
                raise DeadlineExceeded(f"no disk engine listens on the socket {path}: {error.strerror}") from error
            pause(0.01)
        else:
            return connection
