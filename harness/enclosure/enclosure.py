"""The harness's side of a lab's enclosure."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from harness.enclosure.keeper import MAX_PACKET
from harness.errors import RequirementMissing, RigError
from harness.waiting import Deadline, wait_until

START_DEADLINE_S = 20.0
ANSWER_DEADLINE_S = 20.0


def unshare_command(directory: Path, *, root: bool) -> list[str]:
    """Return the command that starts a keeper in namespaces of its own."""
    user = [] if root else ["--user", "--map-root-user"]
    return [
        "unshare",
        *user,
        "--net",
        "--pid",
        "--fork",
        "--kill-child=KILL",
        "--",
        sys.executable,
        "-m",
        "harness.enclosure.keeper",
        str(directory / "keeper.sock"),
    ]


class Enclosure:
    """Network, processes and sockets of one lab. Leaving the context ends all of it, unless it is kept."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._connection: socket.socket | None = None
        self._keeper: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    @property
    def pid(self) -> int:
        """The keeper's parent on this host: ending it ends the lab."""
        if self._keeper is None:
            raise RigError("this enclosure was not started here")
        return self._keeper.pid

    def __enter__(self) -> Self:
        argv = unshare_command(self.directory, root=os.geteuid() == 0)
        package_root = Path(__file__).resolve().parents[2]
        with (self.directory / "keeper.log").open("wb") as log:
            self._keeper = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=package_root,
                start_new_session=True,  # Ctrl-C is for the harness, which then ends the lab in order
            )
        try:
            self._await_ready(self._keeper)
            self.attach()
        except BaseException:
            self.close()
            raise
        return self

    def _await_ready(self, keeper: subprocess.Popen[bytes]) -> None:
        assert keeper.stdout is not None  # noqa: S101  asked for above
        readable, _, _ = select.select([keeper.stdout], [], [], START_DEADLINE_S)
        if readable and keeper.stdout.readline() == b"ready\n":
            return
        said = (self.directory / "keeper.log").read_text(errors="replace").strip().splitlines()
        raise RequirementMissing(
            f"cannot make namespaces for a lab: {said[-1] if said else 'no answer'}",
            remedy="./raidproof doctor says what forbids it",
        )

    def attach(self) -> None:
        """Connect to a keeper that runs: the one just started, or that of a kept lab."""
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection.settimeout(ANSWER_DEADLINE_S)
        self._connection.connect(str(self.directory / "keeper.sock"))

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything in the enclosure, and wait until it is gone."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._keeper is not None:
            keeper = self._keeper
            try:
                keeper.wait(timeout=5)
            except subprocess.TimeoutExpired:
                keeper.kill()  # --kill-child passes it on to process 1
                keeper.wait()
            if keeper.stdout is not None:
                keeper.stdout.close()

    def _ask(self, verb: str, fds: Sequence[int] = (), **arguments: Any) -> tuple[dict[str, Any], list[int]]:
        if self._connection is None:
            raise RigError(f"the lab is closed; cannot {verb}")
        with self._lock:
            try:
                socket.send_fds(self._connection, [json.dumps({"verb": verb, **arguments}).encode()], fds)
                data, received, _, _ = socket.recv_fds(self._connection, MAX_PACKET, 1)
            except OSError as error:
                raise RigError(f"the lab's keeper does not answer ({verb}): {error}") from error
        if not data:
            raise RigError(f"the lab's keeper has gone ({verb})")
        reply: dict[str, Any] = json.loads(data)
        if "error" in reply:
            raise RigError(f"the lab's keeper: {reply['error']}")
        return reply, received

    def spawn(
        self,
        argv: Sequence[str | Path],
        *,
        output: Path,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> "Process":
        """Start a program in the enclosure; its standard output and error go to a file."""
        with output.open("ab") as file:
            reply, _ = self._ask(
                "spawn",
                [file.fileno()],
                argv=[str(word) for word in argv],
                environment=dict(environment or {}),
                directory=str(directory or self.directory),
            )
        return Process(self, Path(str(argv[0])).name, reply["pid"], output)

    def socket(self) -> socket.socket:
        """Return a TCP socket of the lab's network, not yet bound or connected."""
        _, fds = self._ask("socket")
        return socket.socket(fileno=fds[0])

    def bridge(self, name: str, address: str, prefix: int) -> None:
        """Make a bridge that carries the harness's own address."""
        self._ask("bridge", name=name, address=address, prefix=prefix)

    def tap(self, name: str, bridge: str) -> None:
        """Make a tap interface and plug it into a bridge."""
        self._ask("tap", name=name, bridge=bridge)

    def keep(self) -> None:
        """Let the enclosure outlive this process."""
        self._ask("keep")

    def detach(self) -> None:
        """Let go of a kept enclosure without ending it."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None
        self._keeper = None


@dataclass(frozen=True)
class Process:
    """A program that runs in an enclosure, with everything that it started."""

    enclosure: Enclosure
    name: str
    pid: int
    output: Path

    @property
    def status(self) -> int | None:
        """How it ended (negative: by that signal), or None while it runs."""
        reply, _ = self.enclosure._ask("poll", pid=self.pid)
        status: int | None = reply["status"]
        return status

    def kill(self) -> None:
        """End it and all that it started at once; return when it is gone."""
        self.enclosure._ask("kill", pid=self.pid, number=int(signal.SIGKILL))

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
