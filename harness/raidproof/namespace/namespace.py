"""The harness's side of a lab's namespace."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from errno import ENOENT
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from raidproof.core.command import remedy_for
from raidproof.core.errors import RequestError, RequirementMissing, RigError
from raidproof.core.waiting import Deadline, wait_until
from raidproof.namespace.keeper import MAX_PACKET, READY

START_DEADLINE_S = 20.0
ANSWER_DEADLINE_S = 20.0
END_DEADLINE_S = 5.0

_UCRED = struct.Struct("3i")
"""struct ucred: process, user and group id."""


def unshare_command(
    directory: Path, lifeline: int, *, root: bool, folders: Mapping[Path, Path] = MappingProxyType({})
) -> list[str]:
    """Return the command that starts a keeper in new namespaces; ``lifeline`` is an open descriptor.

    ``folders`` (place -> folder) replace folders of the host in the lab.
    """
    user = [] if root else ["--user", "--map-root-user"]
    # Then propagation is private, and /proc shows only the lab's processes: daemons look there for running processes.
    mounts = ["--mount-proc"] if folders else []
    return [
        "unshare",
        *user,
        *mounts,
        "--net",
        "--pid",
        "--fork",
        "--kill-child=KILL",
        "--",
        sys.executable,
        "-m",
        "raidproof.namespace.keeper",
        str(directory / "keeper.sock"),
        str(lifeline),
        *(str(path) for pair in folders.items() for path in pair),
    ]


class Refused(RigError):
    """The keeper could not carry out a request."""

    def __init__(self, verb: str, reason: str, number: int) -> None:
        super().__init__(f"the lab's keeper cannot {verb}: {reason}")
        self.reason = reason
        self.errno = number


class Namespace:
    """Network, processes and sockets of one lab. Leaving the context ends them all, unless the lab is kept."""

    def __init__(self, directory: Path, *, folders: Mapping[Path, Path] = MappingProxyType({})) -> None:
        """Prepare; ``folders`` (place -> folder) hides a folder of the host behind one of the lab's."""
        self.directory = directory
        self._folders = folders
        self._connection: socket.socket | None = None
        self._lifeline: socket.socket | None = None
        self._keeper: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    @property
    def pid(self) -> int:
        """The keeper's process id on this host; the keeper is process 1 of the lab, which ends with it."""
        if self._connection is None:
            raise RigError("this namespace is closed")
        credentials = self._connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        pid: int = _UCRED.unpack(credentials)[0]
        return pid

    def __enter__(self) -> Self:
        for place in self._folders:
            if self.directory.resolve().is_relative_to(place.resolve()):
                raise RequestError(
                    f"a lab that has a {place} of its own cannot live in it: {self.directory}",
                    remedy="set TMPDIR to a folder elsewhere, as /tmp",
                )
        # From here on, whenever this process ends, the kernel closes its end of the pair, and the keeper ends.
        self._lifeline, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs, (self.directory / "keeper.log").open("wb") as log:
                self._keeper = subprocess.Popen(
                    unshare_command(self.directory, theirs.fileno(), root=os.geteuid() == 0, folders=self._folders),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=Path(__file__).resolve().parents[2],
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,  # Ctrl-C is for the harness, which then ends the lab in order
                )
            self._await_ready(self._lifeline)
            self.attach()
        except FileNotFoundError as error:
            self.close()
            raise RequirementMissing(
                f"host tool not found: {error.filename}", remedy=remedy_for(str(error.filename))
            ) from error
        except BaseException:
            self.close()
            raise
        return self

    def _await_ready(self, lifeline: socket.socket) -> None:
        lifeline.settimeout(START_DEADLINE_S)
        with suppress(TimeoutError):
            if lifeline.recv(16) == READY:
                return
        said = (self.directory / "keeper.log").read_text(errors="replace").strip().splitlines()
        raise RequirementMissing(
            f"cannot make namespaces for a lab: {said[-1] if said else 'no answer'}",
            remedy="./raidproof doctor says what forbids it",
        )

    def attach(self) -> None:
        """Connect to a running keeper: the one just started, or that of a kept lab.

        Raises:
            RigError: there is none.
        """
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.settimeout(ANSWER_DEADLINE_S)
            connection.connect(str(self.directory / "keeper.sock"))
        except OSError as error:
            connection.close()
            raise RigError(f"the lab in {self.directory} does not answer: {error.strerror}") from error
        self._connection = connection

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything in the namespace, and wait until it is gone; an attached namespace is only disconnected."""
        self._release()
        if self._keeper is not None:
            try:
                self._keeper.wait(timeout=END_DEADLINE_S)
            except subprocess.TimeoutExpired:
                self._keeper.kill()  # --kill-child passes it on to process 1
                self._keeper.wait()
            self._keeper = None

    def _release(self) -> None:
        for one in (self._connection, self._lifeline):
            if one is not None:
                # Closing alone would wait for a thread that reads from it.
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()
        self._connection = self._lifeline = None

    def _ask(self, verb: str, fds: Sequence[int] = (), **arguments: Any) -> tuple[dict[str, Any], list[int]]:
        with self._lock:
            if self._connection is None:
                raise RigError(f"the lab is closed; cannot {verb}")
            try:
                socket.send_fds(self._connection, [json.dumps({"verb": verb, **arguments}).encode()], fds)
                data, received, _, _ = socket.recv_fds(self._connection, MAX_PACKET, 1)
            except OSError as error:
                raise RigError(f"the lab's keeper does not answer ({verb}): {error}") from error
        if not data:
            raise RigError(f"the process that keeps the lab's namespace has ended; request: {verb}")
        reply: dict[str, Any] = json.loads(data)
        if "error" in reply:
            raise Refused(verb, reply["error"], reply["errno"])
        return reply, received

    def spawn(
        self,
        argv: Sequence[str | Path],
        *,
        output: Path,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> "Process":
        """Start a program in the namespace; its standard output and error go to a file.

        Raises:
            RequirementMissing: there is no such program.
        """
        with output.open("ab") as file:
            try:
                reply, _ = self._ask(
                    "spawn",
                    [file.fileno()],
                    argv=[str(word) for word in argv],
                    environment=dict(environment or {}),
                    directory=str(directory or self.directory),
                )
            except Refused as error:
                if error.errno != ENOENT:
                    raise
                raise RequirementMissing(f"host tool not found: {argv[0]}", remedy=remedy_for(str(argv[0]))) from error
        return Process(self, Path(str(argv[0])).name, reply["pid"], output)

    def socket(self) -> socket.socket:
        """Return a TCP socket of the lab's network, not yet bound or connected."""
        _, fds = self._ask("socket")
        return socket.socket(fileno=fds[0])

    def bridge(self, name: str, address: str, prefix: int) -> None:
        """Create a bridge with the harness's own address."""
        self._ask("bridge", name=name, address=address, prefix=prefix)

    def tap(self, name: str, bridge: str) -> None:
        """Create a tap interface and attach it to a bridge.

        Raises:
            RequirementMissing: this host does not permit it.
        """
        try:
            self._ask("tap", name=name, bridge=bridge)
        except Refused as error:
            raise RequirementMissing(
                f"cannot make a machine's network interface: {error.reason}",
                remedy="./raidproof doctor looks at /dev/net/tun",
            ) from error

    def gate(self, interface: str, *, deaf: bool, mute: bool) -> None:
        """Cut off the machine behind a tap: ``deaf`` drops frames to the machine, ``mute`` drops frames from it.

        The interface stays up meanwhile, as if a cable were cut beyond the next switch.

        Raises:
            RequirementMissing: this host's kernel does not support it.
        """
        try:
            reply, _ = self._ask("gate", name=interface, deaf=deaf, mute=mute)
        except Refused as error:
            raise RequirementMissing(
                f"cannot cut {interface}: {error.reason}", remedy="it takes a kernel from 5.18 on"
            ) from error
        if reply["mute"] != mute:
            raise RequirementMissing(
                f"cannot cut what comes from {interface}: its port cannot be locked",
                remedy="it takes a kernel from 5.18 on",
            )

    def traffic(self, interface: str) -> "Traffic":
        """Return the frame counters of an interface since its creation."""
        reply, _ = self._ask("traffic", name=interface)
        return Traffic(reply["to"], reply["from"], reply["dropped"])

    def end(self, pid: int) -> None:
        """Kill a process that a daemon of the namespace started; ``pid`` is its number in the lab's PID namespace.

        Raises:
            RigError: there is none.
        """
        self._ask("end", pid=pid)

    def keep(self) -> None:
        """Let the namespace outlive this process."""
        self._ask("keep")

    def detach(self) -> None:
        """Disconnect from a kept namespace without ending it."""
        self._release()
        self._keeper = None


@dataclass(frozen=True)
class Traffic:
    """Frames of an interface."""

    to: int
    """Sent to the machine behind the interface."""
    come: int
    """Received from that machine, including frames that were dropped later."""
    dropped: int
    """Dropped on the way to that machine, since the gate was shut."""


@dataclass(frozen=True)
class Process:
    """A program that runs in a namespace, with all processes that it started."""

    namespace: Namespace
    name: str
    pid: int
    output: Path

    @property
    def status(self) -> int | None:
        """Its exit status (negative: the signal), or None while it runs."""
        reply, _ = self.namespace._ask("poll", pid=self.pid)
        status: int | None = reply["status"]
        return status

    def kill(self) -> None:
        """Send SIGKILL to the program's process group, and return when the program has ended."""
        self.namespace._ask("kill", pid=self.pid, number=int(signal.SIGKILL))

    def terminate(self, deadline: Deadline) -> int:
        """Ask it to end in good order (SIGTERM), and return its exit status.

        Raises:
            DeadlineExceeded: it still runs.
        """
        self.namespace._ask("kill", pid=self.pid, number=int(signal.SIGTERM))
        return self.wait(deadline)

    def wait(self, deadline: Deadline) -> int:
        """Return its exit status.

        Raises:
            DeadlineExceeded: it still runs.
        """
        return (
            wait_until(lambda: (self.status,) if self.status is not None else None, deadline, f"{self.name} to end")[0]
            or 0
        )

    def require_running(self) -> None:
        """Raise RigError, with the last lines of its output, if it has ended."""
        if (status := self.status) is not None:
            tail = self.output.read_text(errors="replace").strip().splitlines()[-5:]
            raise RigError(f"{self.name} ended with status {status}: " + " | ".join(tail))
