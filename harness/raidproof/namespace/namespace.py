"""The harness's side of a lab's namespaces: start the keeper, and send it requests."""

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
"""Seconds to wait until the keeper, process 1 of a lab's namespaces, accepts requests."""
ANSWER_DEADLINE_S = 20.0
"""Seconds to wait for the reply of the keeper, process 1 of a lab's namespaces, to a request."""
END_DEADLINE_S = 5.0
"""Seconds to wait for the end of the keeper, process 1 of a lab's namespaces, after closing the lifeline socket."""

_UCRED = struct.Struct("3i")
"""struct ucred: process, user and group ID (unix(7))."""


def unshare_command(
    directory: Path, lifeline: int, *, root: bool, folders: Mapping[Path, Path] = MappingProxyType({})
) -> list[str]:
    """Return the command that starts a keeper in new namespaces (unshare(1)); closing ``lifeline`` ends it.

    ``folders`` maps a folder of this host to the folder that the processes of the lab see in its place.
    """
    user = [] if root else ["--user", "--map-root-user"]
    # This makes mount propagation private, and /proc show only the lab's processes: daemons search /proc for others.
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
    """The keeper replied to a request with an error."""

    def __init__(self, verb: str, reason: str, number: int) -> None:
        super().__init__(f"request {verb!r} to the process that keeps the lab's namespaces failed: {reason}")
        self.reason = reason
        self.errno = number


class Namespace:
    """The network and processes of one lab. Leaving the context ends all processes, unless the lab is kept."""

    def __init__(self, directory: Path, *, folders: Mapping[Path, Path] = MappingProxyType({})) -> None:
        """Take the lab's directory and ``folders`` of `unshare_command`; entering the context starts the keeper."""
        self.directory = directory
        self._folders = folders
        self._connection: socket.socket | None = None
        self._lifeline: socket.socket | None = None
        self._keeper: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    @property
    def pid(self) -> int:
        """The keeper's PID on this host. In the lab it is process 1: when the keeper ends, the kernel ends the lab."""
        if self._connection is None:
            raise RigError(f"the namespace of the lab in {self.directory} is closed")
        credentials = self._connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        pid: int = _UCRED.unpack(credentials)[0]
        return pid

    def __enter__(self) -> Self:
        for place in self._folders:
            if self.directory.resolve().is_relative_to(place.resolve()):
                raise RequestError(
                    f"the lab mounts a folder over {place}, so its own directory must be elsewhere: {self.directory}",
                    remedy=f"set TMPDIR to a folder outside of {place}, for example /tmp",
                )
        # Whenever this process ends, the kernel closes its end of the socket pair, which ends the keeper.
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
                    start_new_session=True,  # Ctrl-C interrupts only the harness, which then ends the lab
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
        output = (self.directory / "keeper.log").read_text(errors="replace").strip().splitlines()
        cause = output[-1] if output else "the process that keeps them has not started"
        raise RequirementMissing(
            f"cannot create the namespaces of a lab: {cause}",
            remedy="run ./raidproof doctor, which prints the cause",
        )

    def attach(self) -> None:
        """Connect to the running keeper of the lab, which may be a kept lab.

        Raises:
            RigError: no keeper answers in the lab's directory.
        """
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.settimeout(ANSWER_DEADLINE_S)
            connection.connect(str(self.directory / "keeper.sock"))
        except OSError as error:
            connection.close()
            raise RigError(
                f"the process that keeps the lab in {self.directory} running does not answer: {error.strerror}"
            ) from error
        self._connection = connection

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes of the lab, and wait for the end of the keeper; only disconnect from an attached lab."""
        self._release()
        if self._keeper is not None:
            try:
                self._keeper.wait(timeout=END_DEADLINE_S)
            except subprocess.TimeoutExpired:
                self._keeper.kill()  # unshare --kill-child then kills process 1
                self._keeper.wait()
            self._keeper = None

    def _release(self) -> None:
        for one in (self._connection, self._lifeline):
            if one is not None:
                # Without shutdown, a thread that waits in recv() would wait on.
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()
        self._connection = self._lifeline = None

    def _ask(self, verb: str, fds: Sequence[int] = (), **arguments: Any) -> tuple[dict[str, Any], list[int]]:
        with self._lock:
            if self._connection is None:
                raise RigError(f"the namespace of the lab in {self.directory} is closed; request: {verb}")
            try:
                socket.send_fds(self._connection, [json.dumps({"verb": verb, **arguments}).encode()], fds)
                data, received, _, _ = socket.recv_fds(self._connection, MAX_PACKET, 1)
            except OSError as error:
                raise RigError(
                    f"the process that keeps the lab's namespaces does not answer request {verb!r}: {error}"
                ) from error
        if not data:
            raise RigError(f"the process that keeps the lab's namespaces has ended; request: {verb}")
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
        """Start a program in the namespace; append its standard output and error to the file ``output``.

        Raises:
            RequirementMissing: the program is not installed on this host.
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
        """Return a new TCP socket in the lab's network, neither bound nor connected."""
        _, fds = self._ask("socket")
        return socket.socket(fileno=fds[0])

    def bridge(self, name: str, address: str, prefix: int) -> None:
        """Create a bridge with the harness's address; ``prefix`` is the length of the network prefix in bits."""
        self._ask("bridge", name=name, address=address, prefix=prefix)

    def tap(self, name: str, bridge: str) -> None:
        """Create a tap interface and attach it to a bridge.

        Raises:
            RequirementMissing: this host does not permit tap interfaces.
        """
        try:
            self._ask("tap", name=name, bridge=bridge)
        except Refused as error:
            raise RequirementMissing(
                f"cannot create the network interface {name} of a machine: {error.reason}",
                remedy="run ./raidproof doctor, which checks /dev/net/tun",
            ) from error

    def gate(self, interface: str, *, deaf: bool, mute: bool) -> None:
        """Cut off the machine behind a tap: ``deaf`` drops frames to the machine, ``mute`` drops frames from it.

        The interface stays up meanwhile, as if a cable were cut beyond the next switch.

        Raises:
            RequirementMissing: the kernel of this host is older than 5.18, or cannot drop the frames.
        """
        try:
            reply, _ = self._ask("gate", name=interface, deaf=deaf, mute=mute)
        except Refused as error:
            raise RequirementMissing(
                f"cannot drop frames at {interface}: {error.reason}", remedy="boot this host with Linux 5.18 or newer"
            ) from error
        if reply["mute"] != mute:
            raise RequirementMissing(
                f"cannot drop frames from {interface}: its bridge port cannot be locked",
                remedy="boot this host with Linux 5.18 or newer",
            )

    def traffic(self, interface: str) -> "Traffic":
        """Return the numbers of frames of an interface since its creation."""
        reply, _ = self._ask("traffic", name=interface)
        return Traffic(reply["to"], reply["from"], reply["dropped"])

    def end(self, pid: int) -> None:
        """Kill a process that a daemon of the lab started; ``pid`` is the process's PID in the lab's PID namespace.

        Raises:
            RigError: no process of the lab has this PID, or the process does not end.
        """
        self._ask("end", pid=pid)

    def keep(self) -> None:
        """Request that the namespace continues after this process ends."""
        self._ask("keep")

    def detach(self) -> None:
        """Disconnect from a kept namespace without ending it."""
        self._release()
        self._keeper = None


@dataclass(frozen=True)
class Traffic:
    """Numbers of frames that a machine's interface on the bridge has counted."""

    to: int
    """Frames sent to the machine."""
    come: int
    """Frames received from the machine, including frames that the bridge then dropped."""
    dropped: int
    """Frames to the machine that were dropped since `Namespace.gate` was last called with ``deaf``."""


@dataclass(frozen=True)
class Process:
    """A program that `Namespace.spawn` started, with its process group."""

    namespace: Namespace
    name: str
    """File name of the program, for messages."""
    pid: int
    """PID in the lab's PID namespace."""
    output: Path
    """File with the program's standard output and error."""

    @property
    def status(self) -> int | None:
        """The program's exit status, or -N if signal N ended the program; None while the program is running."""
        reply, _ = self.namespace._ask("poll", pid=self.pid)
        status: int | None = reply["status"]
        return status

    def kill(self) -> None:
        """Send SIGKILL to the program's process group, and return when the program has ended."""
        self.namespace._ask("kill", pid=self.pid, number=int(signal.SIGKILL))

    def terminate(self, deadline: Deadline) -> int:
        """Send SIGTERM to the program's process group, wait for the program, and return its exit status.

        Raises:
            DeadlineExceeded: the program is still running.
        """
        self.namespace._ask("kill", pid=self.pid, number=int(signal.SIGTERM))
        return self.wait(deadline)

    def wait(self, deadline: Deadline) -> int:
        """Wait for the end of the program, and return its exit status.

        Raises:
            DeadlineExceeded: the program is still running.
        """
        return (
            wait_until(lambda: (self.status,) if self.status is not None else None, deadline, f"{self.name} to end")[0]
            or 0
        )

    def require_running(self) -> None:
        """Raise RigError, with the last lines of the program's output, if the program has ended."""
        if (status := self.status) is not None:
            tail = self.output.read_text(errors="replace").strip().splitlines()[-5:]
            raise RigError(f"{self.name} ended with status {status}: " + " | ".join(tail))
