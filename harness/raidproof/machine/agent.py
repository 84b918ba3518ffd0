"""The harness's side of the agent, a program that runs commands and accesses files in a machine by one SSH channel."""

import select
import shlex
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import paramiko

from raidproof.core.command import DEFAULT_DEADLINE_S, Completed
from raidproof.core.errors import DeadlineExceeded, RigError
from raidproof.core.waiting import Deadline, LongWait
from raidproof.guest import agent as program

BROKEN = (OSError, EOFError, paramiko.SSHException)
"""What paramiko raises where something is sent on a connection that has ended."""
CHUNK = 1 << 16
"""Greatest number of bytes that one call sends or receives."""
SHOWN = 100
"""Greatest number of characters of a command in the message about a long wait."""

SOURCE = Path(program.__file__).read_bytes()
"""The Python source of the agent, the program that runs in the machine."""
ARGV = ("python3", "-ISc", program.START.format(len(SOURCE)))
"""The command that starts the agent in a machine; options -I and -S of Python halve the time of the start."""
LOOK_S = 0.5
"""Seconds between two checks of a waiting thread whether its deadline has passed."""
STATUS_S = 1.0
"""Greatest number of seconds between the end of the agent's output and the arrival of the agent's exit status."""
SIGNAL = 128
"""Offset between a signal's number and the status that a shell reports for a command ended by the signal."""
KILL_S = 1.0
"""Greatest number of seconds for sending the request to kill a command, since the machine may have no power."""


class RemoteCommand(Protocol):
    """A command that runs in a machine."""

    where: str
    """Name of the machine."""
    argv: tuple[str, ...]

    @property
    def ended(self) -> bool:
        """Whether the command's exit status has arrived, or the connection has ended."""

    def feed(self, data: bytes) -> None:
        """Send data to the command's standard input, which stays open; do nothing if the connection has ended."""

    def close_input(self) -> None:
        """Close the command's standard input."""

    def wait(self, deadline: Deadline, stdin: bytes = b"") -> Completed:
        """Send ``stdin``, close the input, wait for the end of the command, and return its status and output.

        Raises:
            DeadlineExceeded: the command is still running.
            RigError: the connection broke before the command ended.
        """


class ChannelCommand:
    """A command on an SSH channel of its own: the agent, or any command in a machine that cannot run the agent."""

    def __init__(self, where: str, argv: Sequence[str], channel: paramiko.Channel) -> None:
        self.where = where
        self.argv = tuple(argv)
        self.channel = channel

    @property
    def ended(self) -> bool:
        """Whether the command's exit status has arrived, or the connection has ended."""
        return self.channel.exit_status_ready() or self.channel.closed

    def feed(self, data: bytes) -> None:
        """Send data to the command's standard input, which stays open; do nothing if the connection has ended."""
        with suppress(*BROKEN):
            self.channel.sendall(data)

    def close_input(self) -> None:
        """Close the command's standard input; do nothing if the connection has ended."""
        if not self.channel.eof_sent:
            with suppress(*BROKEN):
                self.channel.shutdown_write()

    def wait(self, deadline: Deadline, stdin: bytes = b"") -> Completed:
        """Send ``stdin``, close the input, wait for the end of the command, and return its status and output.

        Raises:
            DeadlineExceeded: the command is still running; its channel is closed.
            RigError: the connection broke before the command ended.
        """
        channel = self.channel
        channel.setblocking(0)
        streams = (bytearray(), bytearray())
        try:
            wait = LongWait(f"{self.where}: {shlex.join(self.argv)[:SHOWN]}")
            while True:
                wait.goes_on()
                stdin = self._feed(stdin)
                # Check for the end before reading: then the buffers contain all output.
                over = channel.exit_status_ready() or channel.closed
                while channel.recv_ready() and (chunk := channel.recv(CHUNK)):
                    streams[0].extend(chunk)
                while channel.recv_stderr_ready() and (chunk := channel.recv_stderr(CHUNK)):
                    streams[1].extend(chunk)
                if over and channel.eof_received:
                    break
                if over and channel.closed:
                    raise RigError(f"{self.where}: the SSH connection broke during: {shlex.join(self.argv)}")
                if deadline.passed:
                    raise DeadlineExceeded(f"{self.where}: still running at its deadline: {shlex.join(self.argv)}")
                # select() does not notice an exit status, and after the end of file it returns at once.
                if channel.eof_received:
                    channel.status_event.wait(min(0.01, deadline.remaining_s))
                else:
                    select.select([channel], [], [], min(0.01, deadline.remaining_s))
            stdout, stderr = (bytes(stream).decode(errors="replace") for stream in streams)
            return Completed(self.argv, channel.recv_exit_status(), stdout, stderr, self.where)
        finally:
            with suppress(*BROKEN):
                channel.close()

    def _feed(self, stdin: bytes) -> bytes:
        """Send as much input as the channel accepts, and return the rest; close the input after the last byte."""
        channel = self.channel
        while stdin and channel.send_ready():
            try:
                stdin = stdin[channel.send(stdin) :]
            except BROKEN:  # the command closed its input without reading the rest, or the connection broke
                return b""
        if not stdin:
            self.close_input()
        return stdin


class NoAgent(Exception):
    """The machine accepts SSH connections, but cannot run the agent."""


class Request:
    """A request to the agent: steps to execute in order, and their results."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.began, self.over = threading.Event(), threading.Event()
        """``began``: the request's command has started. ``over``: the answer has arrived, or the agent has ended."""
        self.done: list[dict[str, Any]] | None = None
        """The result of each step; None if no answer has arrived."""
        self.failed: str | None = None
        """The exception that the agent's own code raised, as text; None if there was no exception."""
        self._payload = b""
        """The part of the answer's payload that `found` has not returned yet."""
        self._early = (bytearray(), bytearray())
        """Standard output and standard error that arrived before the answer."""

    def take(self, frame: dict[str, Any], payload: bytes) -> None:
        """Process a frame that the agent sent about this request."""
        if "more" in frame:
            self._early[frame["more"]].extend(payload)
        elif "began" in frame:
            self.began.set()
        else:
            self.done, self._payload, self.failed = frame["done"], payload, frame.get("failed")
            self.end()

    def end(self) -> None:
        """Mark the request as ended: the agent sends no further frame about the request."""
        self.over.set()
        self.began.set()

    def found(self, size: int) -> bytes:
        """Return the next ``size`` bytes of the answer's payload, which is the output of the steps in their order."""
        part, self._payload = self._payload[:size], self._payload[size:]
        return part

    def streams(self, result: dict[str, Any]) -> tuple[str, str]:
        """Return standard output and standard error of the request's command; ``result`` is the result of its step."""
        out, err = (
            (bytes(early) + self.found(size)).decode(errors="replace")
            for early, size in zip(self._early, result["found"], strict=True)
        )
        return out, err


class Agent:
    """The connection to an agent in a machine. A thread receives the agent's messages until the connection ends."""

    def __init__(self, where: str, channel: paramiko.Channel) -> None:
        """Take ``channel``, on which `ARGV` has been started in the machine ``where``."""
        self.where = where
        self._channel = channel
        # The receiving and the sending threads share the channel's timeout, and each checks its own deadline.
        channel.settimeout(LOOK_S)
        self._sending, self._lock = threading.Lock(), threading.Lock()
        self._numbers = count(1)
        self.ready = Request(0)
        """A request that stands for the agent's start: it is over when the agent accepts requests or has ended."""
        self._requests = {0: self.ready}
        self.end: str | None = None
        """The reason why the agent accepts no more requests; None while the agent accepts requests."""
        threading.Thread(target=self._listen, name=f"agent of {where}", daemon=True).start()

    @property
    def alive(self) -> bool:
        """Whether the agent accepts requests; a broken connection may not have been noticed yet."""
        return self.end is None

    def request(self, steps: Sequence[dict[str, Any]], payload: bytes, deadline: Deadline) -> Request:
        """Send the agent a request of steps, whose form `raidproof.guest.agent` defines; ``payload`` is their input.

        Raises:
            RigError: the connection broke, or accepted no data until the deadline.
        """
        with self._lock:
            request = Request(next(self._numbers))
            if self.end is not None:
                raise RigError(f"{self.where}: {self.end}")
            self._requests[request.number] = request
        try:
            self.send(program.frame({"id": request.number, "steps": list(steps)}, payload), deadline)
        except BaseException:
            self.forget(request)
            raise
        return request

    def tell(self, request: Request, word: str, deadline: Deadline, payload: bytes = b"") -> None:
        """Send the agent a frame about a request; ``word`` is feed (more input), close (end of input) or kill.

        Raises:
            RigError: the connection broke, or accepted no data until the deadline.
        """
        self.send(program.frame({"id": request.number, word: True}, payload), deadline)

    def forget(self, request: Request) -> None:
        """Ignore further frames about a request."""
        with self._lock:
            self._requests.pop(request.number, None)

    def results(self, request: Request, deadline: Deadline, what: str) -> list[dict[str, Any]]:
        """Wait for the answer to a request, and return the results of its steps.

        At the deadline, the request's command is killed. ``what`` describes the request in messages.

        Raises:
            DeadlineExceeded: the agent is still executing the request.
            RigError: the connection broke.
        """
        wait = LongWait(f"{self.where}: {what[:SHOWN]}")
        try:
            wait.goes_on()
            while not request.over.wait(min(LOOK_S, deadline.remaining_s)) and not deadline.passed:
                wait.goes_on()
        finally:
            self.forget(request)
            if not request.over.is_set():
                with suppress(RigError):
                    self.tell(request, "kill", Deadline.after(KILL_S))
        if not request.over.is_set():
            raise DeadlineExceeded(f"{self.where}: still running at its deadline: {what}")
        if request.done is None:
            raise RigError(f"{self.where}: {self.end} during: {what}")
        if request.failed is not None:
            raise RigError(f"{self.where}: the agent failed ({request.failed}) during: {what}")
        return request.done

    def close(self) -> None:
        """Close the channel, which ends the agent. Open requests get no answer."""
        self._channel.close()

    def send(self, data: bytes, deadline: Deadline) -> None:
        """Send bytes to the agent: its source first, then frames.

        Raises:
            RigError: the connection broke, or accepted no data until the deadline.
        """
        view = memoryview(data)
        if not self._sending.acquire(timeout=deadline.remaining_s):
            raise DeadlineExceeded(f"{self.where}: another request occupied the agent's channel until the deadline")
        try:
            while view:
                with suppress(TimeoutError):
                    view = view[self._channel.send(bytes(view[:CHUNK])) :]
                if view and deadline.passed:
                    self.close()  # the agent could not find the begin of the next frame
                    raise DeadlineExceeded(f"{self.where}: the agent's channel accepted no data until the deadline")
        except BROKEN as error:
            raise RigError(f"{self.where}: the SSH connection broke: {error}") from error
        finally:
            self._sending.release()

    def _listen(self) -> None:
        """Receive frames until the channel ends; then end all open requests."""
        frames = program.Frames()
        end = "the SSH connection broke"
        try:
            while True:
                with suppress(TimeoutError):
                    if not (data := self._channel.recv(CHUNK)):
                        break
                    for frame, payload in frames.add(data):
                        self._take(frame, payload)
            end = self._cause()
        except ValueError as error:
            end = f"the agent sent a malformed frame: {error}"
        finally:
            with self._lock:
                self.end = end
                left, self._requests = self._requests, {}
            for request in left.values():
                request.end()
            self._channel.close()

    def _take(self, frame: dict[str, Any], payload: bytes) -> None:
        with self._lock:
            request = self._requests.get(frame["id"])
        if request is self.ready:
            self.forget(request)
            request.end()
        elif request is not None:
            request.take(frame, payload)

    def _cause(self) -> str:
        """Return the reason why the channel has ended: the agent ended, or the connection broke."""
        # The event is also set when the connection breaks; the exit status is then -1.
        self._channel.status_event.wait(STATUS_S)
        if self._channel.exit_status == -1:
            return "the SSH connection broke"
        errors = b""
        while self._channel.recv_stderr_ready() and (part := self._channel.recv_stderr(CHUNK)):
            errors += part
        last = errors.decode(errors="replace").strip().splitlines()[-1:]
        return f"the agent ended with status {self._channel.exit_status}{''.join(f' ({line})' for line in last)}"


class AgentCommand:
    """A command that the agent of a machine runs."""

    def __init__(self, agent: Agent, argv: Sequence[str], request: Request) -> None:
        self.where = agent.where
        self.argv = tuple(argv)
        self._agent = agent
        self._request = request
        self._open = True

    @property
    def ended(self) -> bool:
        """Whether the command's exit status has arrived, or the connection has ended."""
        return self._request.over.is_set()

    def feed(self, data: bytes) -> None:
        """Send data to the command's standard input, which stays open; do nothing if the connection has ended."""
        with suppress(RigError):
            self._agent.tell(self._request, "feed", Deadline.after(DEFAULT_DEADLINE_S), data)

    def close_input(self) -> None:
        """Close the command's standard input."""
        if self._open:
            self._open = False
            with suppress(RigError):
                self._agent.tell(self._request, "close", Deadline.after(KILL_S))

    def wait(self, deadline: Deadline, stdin: bytes = b"") -> Completed:
        """Send ``stdin``, close the input, wait for the end of the command, and return its status and output.

        Raises:
            DeadlineExceeded: the command was still running, and was killed.
            RigError: the connection broke before the command ended.
        """
        if stdin:
            with suppress(RigError):
                self._agent.tell(self._request, "feed", deadline, stdin)
        self.close_input()
        return completed(self._agent, self._request, self.argv, deadline)


def begin(where: str, channel: paramiko.Channel, deadline: Deadline) -> Agent:
    """Send the agent its source on a channel on which `ARGV` has been started, and wait until the agent is ready.

    Raises:
        NoAgent: the machine cannot run the agent; the message is the reason.
        RigError: the connection broke.
        DeadlineExceeded: the agent did not start before the deadline.
    """
    agent = Agent(where, channel)
    with suppress(RigError):  # the agent has ended; the reason is determined below
        agent.send(SOURCE, deadline)
    if not agent.ready.over.wait(deadline.remaining_s):
        agent.close()
        raise DeadlineExceeded(f"{where}: the agent did not start before the deadline")
    if agent.end is None:
        return agent
    raise NoAgent(agent.end) if channel.exit_status != -1 else RigError(f"{where}: {agent.end}")


def run(agent: Agent, argv: Sequence[str], deadline: Deadline, stdin: bytes = b"") -> Completed:
    """Run a command in the agent's machine, and return its result. Raises the errors of `AgentCommand.wait`."""
    step = {"run": list(argv), "given": len(stdin)}
    return completed(agent, agent.request([step], stdin, deadline), argv, deadline)


def start(agent: Agent, argv: Sequence[str], deadline: Deadline) -> AgentCommand:
    """Start a command that receives its input later, and return when it is running.

    If the connection ends meanwhile, as by a command that powers the machine off, no error is raised.

    Raises:
        RigError: the command did not start before the deadline.
    """
    request = agent.request([{"run": list(argv)}], b"", deadline)
    if not request.began.wait(deadline.remaining_s):
        agent.forget(request)
        raise RigError(f"{agent.where}: not started before the deadline: {shlex.join(argv)}")
    return AgentCommand(agent, argv, request)


def completed(agent: Agent, request: Request, argv: Sequence[str], deadline: Deadline) -> Completed:
    """Wait for the end of a command, and return its result. Raises the errors of `AgentCommand.wait`."""
    (result,) = agent.results(request, deadline, shlex.join(argv))
    out, err = request.streams(result)
    status = result["status"]
    # Shells and timeout(1) report a signal as 128 plus its number, and callers expect these statuses.
    return Completed(tuple(argv), status if status >= 0 else SIGNAL - status, out, err, agent.where)


def read(agent: Agent, paths: Sequence[str], deadline: Deadline) -> list[bytes | str]:
    """Return the content of each file; for an unreadable file, the reason as text.

    Raises:
        DeadlineExceeded: the files were not read before the deadline, for example because a file system hangs.
        RigError: the connection broke.
    """
    request = agent.request([{"read": list(paths)}], b"", deadline)
    (result,) = agent.results(request, deadline, f"read {shlex.join(paths)}")
    return [request.found(one) if isinstance(one, int) else str(one) for one in result["found"]]


def write(agent: Agent, files: Mapping[str, bytes], deadline: Deadline) -> dict[str, str]:
    """Write each file in one write(2), and return the reason of each failure by path. Raises the errors of `read`."""
    payload = b"".join(files.values())
    step = {"write": [[path, len(content)] for path, content in files.items()], "given": len(payload)}
    (result,) = agent.results(agent.request([step], payload, deadline), deadline, f"write {shlex.join(files)}")
    return {path: error for path, error in zip(files, result["errors"], strict=True) if error is not None}


def resolve(agent: Agent, paths: Sequence[str], deadline: Deadline) -> list[str | None]:
    """Return each path with symbolic links resolved, or None if it does not exist. Raises the errors of `read`."""
    request = agent.request([{"resolve": list(paths)}], b"", deadline)
    (result,) = agent.results(request, deadline, f"resolve {shlex.join(paths)}")
    return list(result["paths"])
