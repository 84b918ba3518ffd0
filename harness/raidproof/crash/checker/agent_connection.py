"""The connection to the agent in a checker's machine: requests, and answers with the instants of their stages."""

import json
import select
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from raidproof.core.errors import DeadlineExceeded, RigError
from raidproof.core.waiting import Deadline
from raidproof.guest import check_agent, ledger_reader, ledger_writer
from raidproof.machine.console import cause_of_death
from raidproof.machine.machine import Machine
from raidproof.machine.remote_command import RemoteCommand
from raidproof.provider.registry import Lab

FOLDER = "/run/raidproof"
START_DEADLINE_S = 20.0
_LOOK_S = 0.5
"""A machine that dies closes no connection; look after it so often while it is silent."""


class Lost(Exception):
    """The machine gave no answer: its kernel died, or the time is up. A finding about what it looked at."""


class Silent(Lost):
    """The time is up, and as far as is known the machine goes on."""


class AgentLine:
    """A connected agent."""

    def __init__(self, machine: Machine, command: RemoteCommand, connection: socket.socket) -> None:
        self._machine = machine
        self._command = command
        self._connection = connection
        self._rest = b""

    @classmethod
    def start(cls, machine: Machine, listener: socket.socket, lab: Lab, orders: dict[str, Any]) -> Self:
        """Put the agent into a machine, start it, and wait until it calls.

        Raises:
            RigError: it does not.
        """
        host, port = lab.callback_address(listener, machine)
        machine.put(Path(ledger_writer.__file__).read_bytes(), f"{FOLDER}/ledger_writer.py")
        machine.put(Path(ledger_reader.__file__).read_bytes(), f"{FOLDER}/ledger_reader.py")
        machine.put(Path(check_agent.__file__).read_bytes(), f"{FOLDER}/check_agent.py")
        machine.put(json.dumps({**orders, "host": host, "port": port}), f"{FOLDER}/orders.json")
        command = machine.start_command(["python3", f"{FOLDER}/check_agent.py", f"{FOLDER}/orders.json"])
        deadline = Deadline.after(START_DEADLINE_S)
        while not select.select([listener], [], [], min(_LOOK_S, deadline.remaining_s))[0]:
            if command.ended:
                raise RigError(f"{machine.name}: the agent ended: {command.wait(Deadline.after(2)).stderr}")
            if deadline.passed:
                raise DeadlineExceeded(f"{machine.name}: the agent did not call")
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(machine, command, connection)

    def ask(self, request: Sequence[str], deadline_s: float, begun: Callable[[str], None]) -> dict[str, Any]:
        """Send a request and return the answer; ``begun`` is told of each stage as it begins.

        Raises:
            Lost: there is no answer.
            RigError: the agent ended, and its machine goes on.
        """
        deadline = Deadline.after(deadline_s)
        try:
            self._connection.sendall(json.dumps(request).encode() + b"\n")
            while True:
                said: dict[str, Any] = json.loads(self._line(deadline))
                if "answer" in said:
                    answer: dict[str, Any] = said["answer"]
                    return answer
                begun(said["stage"])
        except ConnectionError as error:
            self._require_machine()
            ended = self._command.wait(Deadline.after(2))
            if ended.status < 0 or ended.status > 128:
                raise Lost(f"the agent was killed, status {ended.status}") from error
            raise RigError(f"{self._machine.name}: the agent failed: {ended.stderr}") from error

    def _line(self, deadline: Deadline) -> bytes:
        while b"\n" not in self._rest:
            if not select.select([self._connection], [], [], min(_LOOK_S, deadline.remaining_s))[0]:
                self._require_machine()
                if deadline.passed:
                    raise Silent("no answer in time")
                continue
            received = self._connection.recv(1 << 20)
            if not received:
                raise ConnectionResetError("it hung up")
            self._rest += received
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _require_machine(self) -> None:
        try:
            self._machine.power.require_on()
        except RigError as error:
            raise Lost(cause_of_death(self._machine.console.read_text(errors="replace"))) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up: the agent ends."""
        self._connection.close()
