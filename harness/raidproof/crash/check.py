"""One check of a crash state: the protocol with the agent in the checker machine, and the resulting observation."""

import json
import re
import select
import socket
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from raidproof.core.errors import DeadlineExceeded, RigError
from raidproof.core.waiting import Deadline, now_ns
from raidproof.guest import check_agent, ledger_reader, ledger_writer
from raidproof.lab.lab import Lab
from raidproof.machine.agent import RemoteCommand
from raidproof.machine.kernel_log import cause_of_death, keep_tasks, moment, said_since
from raidproof.machine.machine import Machine
from raidproof.storage.filesystem.state import FilesystemCheck
from raidproof.verdict.kernel_log import findings
from raidproof.workload.ledger import Found

FOLDER = "/run/raidproof"
START_DEADLINE_S = 20.0
_LOOK_S = 0.5
"""Poll interval for the machine's power while it is silent: a machine that dies closes no connection."""
_BROKEN = {"oops", "panic", "hung task"}
"""Signs in the kernel log after which the kernel is unusable."""
_STAMP = re.compile(r"^(?:<\d+>)?\[ *\d+\.\d+\](?:\[ *[TC]\d+\])? *")
_NUMBERS = re.compile(r"(?<=\bPID: )\d+|(?<=\btask )(\S+):\d+")


class End(StrEnum):
    """The last stage that a check of a crash state reached."""

    READ = check_agent.READ
    NOT_ASSEMBLED = check_agent.NOT_ASSEMBLED
    NOT_MOUNTED = check_agent.NOT_MOUNTED
    WEDGED = "wedged"
    """The kernel died, logged a bug, or did not answer in time."""


class ThroughNfsd(StrEnum):
    """Whether nfsd serves the same content as a scan of the mounted file system."""

    SAME = check_agent.SAME
    DIFFERENT = check_agent.DIFFERENT
    """The content differs, or nfsd served none: see `Observation.said`."""
    NOT_TRIED = "not tried"


class Rows(BaseModel):
    """The array's redundancy in one crash state, computed from the members' contents, in rows of 4 KiB per member."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    differ: int = 0
    """Rows whose copies or parity do not agree."""
    unmarked: int = 0
    """Differing rows that md would not resync: no bitmap marks them, or the superblock marks all as in sync."""
    uneven: int = 0
    """Differing rows that only some members' bitmaps mark: the resync depends on the member whose bitmap md reads."""
    changed: int = 0
    """Rows whose copies differ because their page changed while md wrote it (under write-back), which md allows."""
    all_marked: bool = False
    """Whether every region of the bitmap was marked, as on a new array: then no row can be unmarked."""
    first: str = ""
    """The first row that md would not resync."""
    unchecked: str | None = None
    """Why redundancy was not checked; None if it was."""


class Observation(BaseModel):
    """The result of a check of one crash state. A second check of the same state differs in ``ms`` only."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    end: End
    said: str = ""
    """The failing tool's message; for a wedged checker, the stage."""
    found: Found | None = None
    """The result of the ledger scan; None if no scan completed."""
    console: tuple[str, ...] = ()
    """Alarming kernel log lines, each with the sign that it is of, without time stamps."""
    silent: bool = False
    """Whether the checker wedged without a known cause: a timeout or a leftover, and no sign in the kernel log."""
    hung: str = ""
    """The message of an earlier, silent check of the same state, which this one replaces."""
    degraded: dict[str, int] = Field(default_factory=dict)
    """The number of missing members of each degraded array; complete arrays are left out."""
    through_nfsd: ThroughNfsd = ThroughNfsd.NOT_TRIED
    filesystem: FilesystemCheck | None = None
    """The result of the file system's checker, run after the unmount; None where it was not run."""
    rows: Rows | None = None
    """Computed from the members' contents, not by the checker machine; None where it was not computed."""
    ms: dict[str, float] = Field(default_factory=dict)
    """Duration of each stage in ms: switch, assemble, mount, verify; of the check through nfsd mount (nfsd), look
    (read there), leave (unmount) and forget (nfsd releases the file system); unmount, stop."""

    def same_as(self, other: "Observation") -> bool:
        """Return whether two checks observed the same; a check that only one of them made is no difference.

        Messages of tools are not compared: they may name the device, whose name depends on how the disks are served.
        """
        tried = {self.through_nfsd, other.through_nfsd} - {ThroughNfsd.NOT_TRIED}
        checked = {one.filesystem.outcome for one in (self, other) if one.filesystem is not None}
        seen = [(one.end, one.found, one.console, one.degraded) for one in (self, other)]
        return seen[0] == seen[1] and len(tried) < 2 and len(checked) < 2


class Lost(Exception):
    """The checker machine gave no answer: its kernel died, or the time is up. A finding about the crash state."""


class Silent(Lost):
    """The time is up, and the machine still runs as far as is known."""


class AgentLine:
    """A connection to the agent of a checker machine."""

    def __init__(self, machine: Machine, command: RemoteCommand, connection: socket.socket) -> None:
        self._machine = machine
        self._command = command
        self._connection = connection
        self._rest = b""

    @classmethod
    def start(cls, machine: Machine, listener: socket.socket, lab: Lab, orders: dict[str, Any]) -> Self:
        """Copy the agent to a machine, start it, and wait until it connects.

        Raises:
            RigError: the agent ended, or did not connect in time.
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
        """Send a request and return the answer; call ``begun`` with the name of each stage when it begins.

        Raises:
            Lost: there is no answer.
            RigError: the agent ended, and its machine still runs.
        """
        deadline = Deadline.after(deadline_s)
        try:
            self._connection.sendall(json.dumps(request).encode() + b"\n")
            while True:
                reply: dict[str, Any] = json.loads(self._line(deadline))
                if "answer" in reply:
                    answer: dict[str, Any] = reply["answer"]
                    return answer
                begun(reply["stage"])
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
        """Close the connection, which ends the agent."""
        self._connection.close()


class Look:
    """One check in progress; it begins with the switch of the disks. ``deadline_s`` applies to each request."""

    def __init__(self, machine: Machine, deadline_s: float) -> None:
        self.ms: dict[str, float] = {}
        self.at = "switch"
        self.wedged = False
        """Whether the machine can no longer be used."""
        self._machine = machine
        self._deadline_s = deadline_s
        self._begun = moment(machine)
        self._since = now_ns()

    def ask(self, agent: AgentLine, verb: str, *words: str) -> dict[str, Any]:
        """Send a request, and record the durations of the stages that the agent reports.

        Raises:
            Lost: there is no answer.
            RigError: the agent failed, and its machine still runs.
        """
        answer = agent.ask([verb, *words], self._deadline_s, self.stage)
        self.stage("")
        return answer

    def stage(self, name: str) -> None:
        """Begin a stage and end the previous one."""
        now = now_ns()
        if self.at:
            self.ms[self.at] = self.ms.get(self.at, 0.0) + (now - self._since) / 1e6
        self.at, self._since = name, now

    def seen(self, answer: dict[str, Any]) -> Observation:
        """Return the observation, including the kernel messages that were logged since the check began."""
        signs = self._signs()
        left = answer.pop("left")
        broken = any(sign in _BROKEN for sign, _ in signs)
        if left or broken:
            # The machine is no longer as booted: its later answers would not be comparable.
            self.wedged = True
            said = "; ".join(filter(None, (answer["said"], left)))
            answer = {**answer, "end": End.WEDGED, "said": said, "silent": not broken}
        return Observation(**answer, console=alarming(signs), ms=self.ms)

    def lost(self, lost: Lost) -> Observation:
        """Return the observation of a check whose machine no longer answers."""
        self.wedged = True
        said, signs = f"{self.at}: {lost}", self._signs()
        goes_on = isinstance(lost, Silent)
        if goes_on:
            # Kept for diagnosis.
            keep_tasks(self._machine)
        silent = goes_on and not signs
        return Observation(end=End.WEDGED, said=said, console=alarming(signs), silent=silent, ms=self.ms)

    def _signs(self) -> list[tuple[str, str]]:
        return findings(said_since(self._machine, self._begun))


def alarming(signs: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return each alarming line once, without the parts that differ from boot to boot."""
    lines = (f"{sign}: {_NUMBERS.sub('*', _STAMP.sub('', line))}" for sign, line in signs)
    return tuple(dict.fromkeys(lines))
