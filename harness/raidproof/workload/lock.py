"""A process in a client that holds files open and locked, so that a test can check its locks after a fault."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from errno import errorcode
from pathlib import Path
from typing import Any

from raidproof.core.errors import DeadlineExceeded, RigError
from raidproof.core.waiting import Deadline
from raidproof.guest import lock_agent
from raidproof.machine.machine import Machine
from raidproof.workload.ledger import AckListener

AGENT = "/run/raidproof/lock_agent.py"
"""Path of the lock agent (guest/lock_agent.py) in the client."""
START_DEADLINE_S = 120.0
"""Seconds within which the lock agent must connect to the host."""
ANSWER_DEADLINE_S = 300.0
"""Default time limit in seconds for the answer to a request."""
CHUNK = 1 << 16


@dataclass(frozen=True)
class Answer:
    """The result of a system call in the client."""

    value: Any
    """Return value; None if the call failed."""
    error: str | None = None
    """Name of the errno, for example ``EAGAIN``; None if the call succeeded."""

    @property
    def ok(self) -> bool:
        """Whether the call succeeded."""
        return self.error is None

    def require(self, what: str) -> Any:
        """Return the value of a call that succeeded.

        Raises:
            RigError: the call failed; the message begins with ``what``.
        """
        if self.error is not None:
            raise RigError(f"{what}: {self.error}")
        return self.value


class LockHolder:
    """One process in a client: one owner of POSIX locks, which carries out one request at a time.

    `do` sends a request and waits for the answer. `begin` and `ended` do this in two steps, for a request that blocks
    until the server answers, while the harness does something else.
    """

    def __init__(self, client: Machine, connection: socket.socket) -> None:
        self.client = client
        self._connection = connection
        self._received = b""
        self._under_way: str | None = None

    def begin(self, call: str, *arguments: Any) -> None:
        """Send a request, and return at once; `raidproof.guest.lock_agent` lists the calls.

        Raises:
            RigError: the earlier request has no answer yet, or the connection to the agent is broken.
        """
        if self._under_way is not None:
            raise RigError(f"{self.client.name}: the earlier lock request {self._under_way} has no answer yet")
        self._under_way = f"{call} {arguments}"
        try:
            self._connection.sendall(json.dumps({"do": call, "with": arguments}).encode() + b"\n")
        except OSError as error:
            raise RigError(f"{self.client.name}: the connection to the lock agent is broken: {error}") from error

    def ended(self, deadline_s: float = ANSWER_DEADLINE_S) -> Answer:
        """Wait for the answer to the request that `begin` sent.

        Raises:
            DeadlineExceeded: there is no answer yet; `ended` may be called again.
            RigError: the connection to the agent is broken, or `begin` was not called.
        """
        if self._under_way is None:
            raise RigError(f"{self.client.name}: the lock agent has no request to answer")
        deadline = Deadline.after(deadline_s)
        while b"\n" not in self._received:
            self._connection.settimeout(max(0.001, deadline.remaining_s))
            try:
                data = self._connection.recv(CHUNK)
            except TimeoutError as error:
                raise DeadlineExceeded(
                    f"{self.client.name}: the lock request {self._under_way} has no answer after {deadline_s:g} s"
                ) from error
            except OSError as error:
                raise RigError(f"{self.client.name}: the connection to the lock agent is broken: {error}") from error
            if not data:
                raise RigError(f"{self.client.name}: the lock agent has ended without an answer to {self._under_way}")
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        self._under_way = None
        return read_answer(line)

    def do(self, call: str, *arguments: Any, deadline_s: float = ANSWER_DEADLINE_S) -> Answer:
        """Send a request, and wait for the answer; this raises the errors of `begin` and `ended`."""
        self.begin(call, *arguments)
        return self.ended(deadline_s)

    def open(self, path: str, how: str = "write") -> int:
        """Open a file in the client, and return its descriptor in the agent's process.

        Raises:
            RigError: the file cannot be opened.
        """
        return int(self.do("open", path, how).require(f"{self.client.name}: open {path}"))


def read_answer(line: bytes) -> Answer:
    """Return the agent's answer to one request.

    Raises:
        RigError: the line is not JSON with ``errno`` and ``value``.
    """
    try:
        reply = json.loads(line)
        number, value = int(reply["errno"]), reply["value"]
    except (ValueError, KeyError, TypeError) as error:
        raise RigError(f"the lock agent sent a malformed answer: {line[:200]!r}") from error
    return Answer(value, errorcode.get(number, str(number)) if number else None)


@contextmanager
def lock_holder(client: Machine, ack_listener: AckListener) -> Iterator[LockHolder]:
    """Run a lock agent in a client during the ``with`` body; then end the agent, which releases its files and locks.

    Raises:
        RigError: the agent does not connect within `START_DEADLINE_S`.
    """
    client.put(Path(lock_agent.__file__).read_bytes(), AGENT)
    with ack_listener.listen() as listener:
        host, port = ack_listener.callback_address(listener, client)
        command = client.start_command(["python3", AGENT, host, str(port)])
        listener.settimeout(START_DEADLINE_S)
        try:
            connection, _ = listener.accept()
        except TimeoutError as error:
            output = command.wait(Deadline.after(1)).stderr if command.ended else "it runs and prints nothing"
            raise RigError(
                f"{client.name}: the lock agent did not connect within {START_DEADLINE_S:g} s: {output}"
            ) from error
    with connection:
        yield LockHolder(client, connection)
