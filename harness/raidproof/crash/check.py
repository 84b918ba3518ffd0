"""One check of a crash state by the agent of a checker: requests, answers, and what is the same each time."""

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
"""A machine that dies closes no connection; look after it so often while it is silent."""
_BROKEN = {"oops", "panic", "hung task"}
"""Signs of a kernel of which nothing more can be expected."""
_STAMP = re.compile(r"^(?:<\d+>)?\[ *\d+\.\d+\](?:\[ *[TC]\d+\])? *")
_NUMBERS = re.compile(r"(?<=\bPID: )\d+|(?<=\btask )(\S+):\d+")


class End(StrEnum):
    """How far a checker got."""

    READ = check_agent.READ
    NOT_ASSEMBLED = check_agent.NOT_ASSEMBLED
    NOT_MOUNTED = check_agent.NOT_MOUNTED
    WEDGED = "wedged"
    """Its kernel died, complained of a bug of its own, or did not come to an end in time."""


class ThroughNfsd(StrEnum):
    """Whether nfsd gives what a scan of the mounted file system gives."""

    SAME = check_agent.SAME
    DIFFERENT = check_agent.DIFFERENT
    """Or it gives nothing at all: `Observation.said` tells."""
    NOT_TRIED = "not tried"


class Rows(BaseModel):
    """What the members' contents say of the array's redundancy in one state. Numbers are rows of 4 KiB a member."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    differ: int = 0
    """Whose copies or parity do not agree."""
    unmarked: int = 0
    """Of these, what md would leave so: no bitmap has it marked, or the superblock says that all is in sync."""
    uneven: int = 0
    """Of these, what is marked on some members only: resynced or not, as the member goes whose bitmap md reads."""
    changed: int = 0
    """Copies that differ where md wrote what a page held at two moments: it changed under write-back, as md allows."""
    all_marked: bool = False
    """Every region of the bitmap was marked, as on a new array: nothing could be unmarked."""
    first: str = ""
    """The first of those that md would leave so."""
    unchecked: str | None = None
    """Why nothing is said of it."""


class Observation(BaseModel):
    """What was seen of one crash state. Seen twice, it is the same in all but ``ms``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    end: End
    said: str = ""
    """What failed, in the words of the tool; of a wedged checker, in which stage."""
    found: Found | None = None
    """What the scan of the ledger found; None if it came to none."""
    console: tuple[str, ...] = ()
    """Alarming lines of the kernel, each with what it is a sign of, without the kernel's time stamps."""
    silent: bool = False
    """Wedged, and nothing tells why: the time was up, or something stayed, and the kernel complained of nothing."""
    hung: str = ""
    """What an earlier look at the same state said, which was silent: this one was taken in its place."""
    degraded: dict[str, int] = Field(default_factory=dict)
    """How many members each array went on without; arrays that are whole are left out."""
    through_nfsd: ThroughNfsd = ThroughNfsd.NOT_TRIED
    filesystem: FilesystemCheck | None = None
    """What the file system's own checker said once it was unmounted; None where it was not run."""
    rows: Rows | None = None
    """Computed from what the members hold, not seen by the machine; None where nobody has."""
    ms: dict[str, float] = Field(default_factory=dict)
    """How long each stage took: switch, assemble, mount, verify; where it was asked nfsd (mount), look (read
    there), leave (unmount) and forget (nfsd lets go); unmount, stop."""

    def same_as(self, other: "Observation") -> bool:
        """Return whether two checks have seen the same; what only one of them tried is no difference.

        What a tool says is none either: it may name the device, which each way of serving the disks calls otherwise.
        """
        tried = {self.through_nfsd, other.through_nfsd} - {ThroughNfsd.NOT_TRIED}
        checked = {one.filesystem.outcome for one in (self, other) if one.filesystem is not None}
        seen = [(one.end, one.found, one.console, one.degraded) for one in (self, other)]
        return seen[0] == seen[1] and len(tried) < 2 and len(checked) < 2


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
        """Hang up: the agent ends."""
        self._connection.close()


class Look:
    """Begins with the switch of the disks. ``deadline_s`` holds for each request to the agent."""

    def __init__(self, machine: Machine, deadline_s: float) -> None:
        self.ms: dict[str, float] = {}
        self.at = "switch"
        self.wedged = False
        """Whether the machine is of no more use."""
        self._machine = machine
        self._deadline_s = deadline_s
        self._begun = moment(machine)
        self._since = now_ns()

    def ask(self, agent: AgentLine, verb: str, *words: str) -> dict[str, Any]:
        """Send a request, and time the stages that the answer tells of.

        Raises:
            Lost: there is no answer.
            RigError: the agent failed, and its machine goes on.
        """
        answer = agent.ask([verb, *words], self._deadline_s, self.stage)
        self.stage("")
        return answer

    def stage(self, name: str) -> None:
        """Begin a stage, which ends the one before."""
        now = now_ns()
        if self.at:
            self.ms[self.at] = self.ms.get(self.at, 0.0) + (now - self._since) / 1e6
        self.at, self._since = name, now

    def seen(self, answer: dict[str, Any]) -> Observation:
        """Return what was seen, with what the kernel has said meanwhile."""
        signs = self._signs()
        left = answer.pop("left")
        broken = any(sign in _BROKEN for sign, _ in signs)
        if left or broken:
            # Whatever it says next would be said by a machine that is not as booted.
            self.wedged = True
            said = "; ".join(filter(None, (answer["said"], left)))
            answer = {**answer, "end": End.WEDGED, "said": said, "silent": not broken}
        return Observation(**answer, console=alarming(signs), ms=self.ms)

    def lost(self, lost: Lost) -> Observation:
        """Return what was seen of a machine that no longer answers."""
        self.wedged = True
        said, signs = f"{self.at}: {lost}", self._signs()
        goes_on = isinstance(lost, Silent)
        if goes_on:
            # For whoever wants to know why.
            keep_tasks(self._machine)
        silent = goes_on and not signs
        return Observation(end=End.WEDGED, said=said, console=alarming(signs), silent=silent, ms=self.ms)

    def _signs(self) -> list[tuple[str, str]]:
        return findings(said_since(self._machine, self._begun))


def alarming(signs: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return each alarming line once, without what differs from boot to boot."""
    lines = (f"{sign}: {_NUMBERS.sub('*', _STAMP.sub('', line))}" for sign, line in signs)
    return tuple(dict.fromkeys(lines))
