"""A process of a client that holds files open and locked, to test that faults preserve or report lost locks."""

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
START_DEADLINE_S = 20.0
ANSWER_DEADLINE_S = 60.0
CHUNK = 1 << 16


@dataclass(frozen=True)
class Answer:
    """What a system call returned in the client."""

    value: Any
    error: str | None = None
    """Name of its errno, as ``EAGAIN``; None if it succeeded."""

    @property
    def ok(self) -> bool:
        """Whether the call succeeded."""
        return self.error is None

    def require(self, what: str) -> Any:
        """Return the value.

        Raises:
            RigError: the call failed.
        """
        if self.error is not None:
            raise RigError(f"{what}: {self.error}")
        return self.value


class LockHolder:
    """One process in a client, which is one owner of locks. It carries out one order at a time.

    ``begin`` and ``ended`` are for orders that may wait for the server: the harness can do something else in between.
    """

    def __init__(self, client: Machine, connection: socket.socket) -> None:
        self.client = client
        self._connection = connection
        self._heard = b""
        self._under_way: str | None = None

    def begin(self, order: str, *arguments: Any) -> None:
        """Send an order and return at once; `raidproof.guest.lock_agent` lists the orders.

        Raises:
            RigError: an earlier order has not returned, or the agent is gone.
        """
        if self._under_way is not None:
            raise RigError(f"{self.client.name} has not yet returned from {self._under_way}")
        self._under_way = f"{order} {arguments}"
        try:
            self._connection.sendall(json.dumps({"do": order, "with": arguments}).encode() + b"\n")
        except OSError as error:
            raise RigError(f"{self.client.name}: the lock agent is gone: {error}") from error

    def ended(self, deadline_s: float = ANSWER_DEADLINE_S) -> Answer:
        """Wait until the order has returned.

        Raises:
            DeadlineExceeded: the order has not returned; call again.
            RigError: the agent is gone, or no order was sent.
        """
        if self._under_way is None:
            raise RigError(f"{self.client.name}: nothing was begun")
        deadline = Deadline.after(deadline_s)
        while b"\n" not in self._heard:
            self._connection.settimeout(max(0.001, deadline.remaining_s))
            try:
                data = self._connection.recv(CHUNK)
            except TimeoutError as error:
                raise DeadlineExceeded(
                    f"{self.client.name}: {self._under_way} has not returned in {deadline_s:g} s"
                ) from error
            except OSError as error:
                raise RigError(f"{self.client.name}: the lock agent is gone: {error}") from error
            if not data:
                raise RigError(f"{self.client.name}: the lock agent has ended")
            self._heard += data
        line, _, self._heard = self._heard.partition(b"\n")
        self._under_way = None
        return read_answer(line)

    def do(self, order: str, *arguments: Any, deadline_s: float = ANSWER_DEADLINE_S) -> Answer:
        """Send an order, and wait for the answer. Raises as `begin` and `ended`."""
        self.begin(order, *arguments)
        return self.ended(deadline_s)

    def open(self, path: str, how: str = "write") -> int:
        """Open a file, and return its descriptor in that process.

        Raises:
            RigError: the file cannot be opened.
        """
        return int(self.do("open", path, how).require(f"{self.client.name}: open {path}"))


def read_answer(line: bytes) -> Answer:
    """Parse the agent's answer to one order.

    Raises:
        RigError: the line is not an answer.
    """
    try:
        said = json.loads(line)
        number, value = int(said["errno"]), said["value"]
    except (ValueError, KeyError, TypeError) as error:
        raise RigError(f"not an answer of the lock agent: {line[:200]!r}") from error
    return Answer(value, errorcode.get(number, str(number)) if number else None)


@contextmanager
def lock_holder(client: Machine, ear: AckListener) -> Iterator[LockHolder]:
    """Run such a process in a client while the body runs; at the end its files and locks are released.

    Raises:
        RigError: the process does not start.
    """
    client.put(Path(lock_agent.__file__).read_bytes(), AGENT)
    with ear.listen() as listener:
        host, port = ear.callback_address(listener, client)
        command = client.start_command(["python3", AGENT, host, str(port)])
        listener.settimeout(START_DEADLINE_S)
        try:
            connection, _ = listener.accept()
        except TimeoutError as error:
            said = command.wait(Deadline.after(1)).stderr if command.ended else "no output"
            raise RigError(f"{client.name}: the lock agent did not start: {said}") from error
    with connection:
        yield LockHolder(client, connection)
