"""Connections to the agents of checkers: programs in the machines that execute the steps of a check."""

import json
import select
import socket
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, Self

from raidproof.core.errors import DeadlineExceeded, RigError
from raidproof.core.waiting import Deadline
from raidproof.guest import (
    application,
    assembled,
    check_agent,
    kernel_messages,
    ledger_format,
    ledger_pieces,
    ledger_reader,
    member_disks,
    storage_calls,
)
from raidproof.lab.lab import Lab
from raidproof.machine.agent import RemoteCommand
from raidproof.machine.kernel_log import cause_of_death
from raidproof.machine.machine import Machine
from raidproof.workload.ledger_programs import FOLDER, install_modules

PROGRAMS = (
    application,
    assembled,
    kernel_messages,
    ledger_format,
    ledger_pieces,
    ledger_reader,
    check_agent,
    member_disks,
    storage_calls,
)
"""The agent, and the modules that it imports in the machine with each kind of server."""
KEEPS_MEMORY = ("env", "PYTHONMALLOC=malloc", "MALLOC_MMAP_MAX_=0", "MALLOC_TRIM_THRESHOLD_=1000000000")
"""Start of the agent's command: its process keeps memory that it has freed (mallopt(3)).

On User-mode Linux each page fault is a stop of ptrace: to fetch memory again costs more than to use it."""
START_DEADLINE_S = 20.0
_POLL_S = 0.5
"""Interval in seconds of the test whether a machine still runs: a machine whose kernel dies closes no connection."""


class Lost(Exception):
    """The checker machine gave no answer: its kernel died, or the deadline passed. The crash state may be why."""


class Silent(Lost):
    """The checker machine gave no answer before the deadline, and is still running."""


class AgentConnection:
    """A TCP connection to the agent (`raidproof.guest.check_agent`) in a checker machine."""

    def __init__(self, machine: Machine, command: RemoteCommand, connection: socket.socket) -> None:
        self._machine = machine
        self._command = command
        self._connection = connection
        self._received = b""

    @classmethod
    def start(
        cls, machine: Machine, listener: socket.socket, lab: Lab, config: dict[str, Any], *others: ModuleType
    ) -> Self:
        """Copy the agent to a machine, start the agent, and wait until it connects.

        ``others``: modules that the agent imports in addition to `PROGRAMS`.

        Raises:
            RigError: the agent ended, or did not connect within `START_DEADLINE_S`.
        """
        host, port = lab.callback_address(listener, machine)
        install_modules(machine, (*PROGRAMS, *others))
        machine.put(json.dumps({**config, "host": host, "port": port}), f"{FOLDER}/config.json")
        command = machine.start_command(
            [*KEEPS_MEMORY, "python3", f"{FOLDER}/check_agent.py", f"{FOLDER}/config.json"]
        )
        deadline = Deadline.after(START_DEADLINE_S)
        while not select.select([listener], [], [], min(_POLL_S, deadline.remaining_s))[0]:
            if command.ended:
                said = command.wait(Deadline.after(2)).stderr
                raise RigError(f"{machine.name}: the check agent ended before it connected: {said}")
            if deadline.passed:
                raise DeadlineExceeded(
                    f"{machine.name}: the check agent did not connect to {host}:{port} within {START_DEADLINE_S:g} s"
                )
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(machine, command, connection)

    def ask(
        self, request: Mapping[str, Any], deadline_s: float, begun: Callable[[str], None], data: Sequence[bytes] = ()
    ) -> dict[str, Any]:
        """Send a request to the agent, followed by raw bytes, and return the answer.

        ``begun`` is called with the name of each stage that the agent begins.

        Raises:
            Lost: the machine's kernel died, a signal killed the agent, or no answer came within ``deadline_s``.
            RigError: the agent ended with an error, and the machine is still running.
        """
        deadline = Deadline.after(deadline_s)
        try:
            self._connection.settimeout(deadline_s)
            for part in (json.dumps(request).encode() + b"\n", *data):
                self._connection.sendall(part)
            self._connection.settimeout(None)
            while True:
                reply: dict[str, Any] = json.loads(self._line(deadline))
                if "answer" in reply:
                    answer: dict[str, Any] = reply["answer"]
                    return answer
                begun(reply["stage"])
        except TimeoutError as error:
            self._require_machine()
            raise Silent("the request was not received in time") from error
        except ConnectionError as error:
            self._require_machine()
            ended = self._command.wait(Deadline.after(2))
            if ended.status < 0 or ended.status > 128:
                raise Lost(f"the check agent was killed, exit status {ended.status}") from error
            raise RigError(f"{self._machine.name}: the check agent failed: {ended.stderr}") from error

    def _line(self, deadline: Deadline) -> bytes:
        while b"\n" not in self._received:
            if not select.select([self._connection], [], [], min(_POLL_S, deadline.remaining_s))[0]:
                self._require_machine()
                if deadline.passed:
                    raise Silent("no answer in time")
                continue
            received = self._connection.recv(1 << 20)
            if not received:
                raise ConnectionResetError("the check agent closed the connection")
            self._received += received
        line, _, self._received = self._received.partition(b"\n")
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
        """Close the connection, which ends the agent."""
        self._connection.close()
