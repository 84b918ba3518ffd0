"""The connection to the agent in a machine, and the commands that run through it."""

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

CHUNK = 1 << 16
SHOWN = 100
"""Characters of a command that are shown if it takes long."""

SOURCE = Path(program.__file__).read_bytes()
ARGV = ("python3", "-ISc", program.START.format(len(SOURCE)))
"""Isolated mode, without the search for installed packages, which halves the start time."""
LOOK_S = 0.5
"""Seconds between two checks of a waiting thread for its deadline."""
STATUS_S = 1.0
"""Seconds that the exit status of an agent may arrive after the end of its output."""
SIGNAL = 128
"""Offset between a signal's number and the status that a shell reports for a command ended by the signal."""
KILL_S = 1.0
"""Seconds for the request to kill a command; the machine may be gone."""


class RemoteCommand(Protocol):
    """A command that runs in a machine."""

    where: str
    argv: tuple[str, ...]

    @property
    def ended(self) -> bool:
        """Whether its exit status has arrived, or the connection has ended."""

    def feed(self, data: bytes) -> None:
        """Send input, and keep the input open; do nothing if the machine is gone."""

    def close_input(self) -> None:
        """Close the command's input."""

    def wait(self, deadline: Deadline, stdin: bytes = b"") -> Completed:
        """Send the rest of the input, collect both output streams, and return the result.

        Raises:
            DeadlineExceeded: the command still runs.
            RigError: the connection broke before the command ended.
        """


class ChannelCommand:
    """A command on its own SSH channel."""

    def __init__(self, where: str, argv: Sequence[str], channel: paramiko.Channel) -> None:
        self.where = where
        self.argv = tuple(argv)
        self.channel = channel

    @property
    def ended(self) -> bool:
        """Whether its exit status has arrived, or the connection has ended."""
        return self.channel.exit_status_ready() or self.channel.closed

    def feed(self, data: bytes) -> None:
        """Send input, and keep the input open; do nothing if the machine is gone."""
        with suppress(OSError):
            self.channel.sendall(data)

    def close_input(self) -> None:
        """Close the command's input."""
        if not self.channel.eof_sent:
            self.channel.shutdown_write()

    def wait(self, deadline: Deadline, stdin: bytes = b"") -> Completed:
        """Send the input, collect both output streams, and return the result.

        Raises:
            DeadlineExceeded: the command still runs; its channel is closed.
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
                    raise RigError(f"{self.where}: the connection broke during: {shlex.join(self.argv)}")
                if deadline.passed:
                    raise DeadlineExceeded(f"{self.where}: still running at its deadline: {shlex.join(self.argv)}")
                # The channel's descriptor does not signal an exit status; at the end of file it stays ready.
                if channel.eof_received:
                    channel.status_event.wait(min(0.01, deadline.remaining_s))
                else:
                    select.select([channel], [], [], min(0.01, deadline.remaining_s))
            stdout, stderr = (bytes(stream).decode(errors="replace") for stream in streams)
            return Completed(self.argv, channel.recv_exit_status(), stdout, stderr, self.where)
        finally:
            channel.close()

    def _feed(self, stdin: bytes) -> bytes:
        channel = self.channel
        while stdin and channel.send_ready():
            try:
                stdin = stdin[channel.send(stdin) :]
            except OSError:  # the command closed its input without reading the rest
                return b""
        if not stdin:
            self.close_input()
        return stdin


class NoAgent(Exception):
    """The machine answers, but cannot run the agent."""


class Request:
    """Steps that the agent carries out."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.began, self.over = threading.Event(), threading.Event()
        """Whether its command runs; whether the answer has arrived, or will never arrive."""
        self.done: list[dict[str, Any]] | None = None
        """The results of its steps; None if there is no answer."""
        self.failed: str | None = None
        """The error in the agent itself."""
        self._found = b""
        self._more = (bytearray(), bytearray())

    def take(self, said: dict[str, Any], payload: bytes) -> None:
        """Process a frame of the agent for this request."""
        if "more" in said:
            self._more[said["more"]].extend(payload)
        elif "began" in said:
            self.began.set()
        else:
            self.done, self._found, self.failed = said["done"], payload, said.get("failed")
            self.end()

    def end(self) -> None:
        """Mark the request as ended: no frame follows."""
        self.over.set()
        self.began.set()

    def found(self, size: int) -> bytes:
        """Return the next ``size`` bytes of its steps' output, in their order."""
        part, self._found = self._found[:size], self._found[size:]
        return part

    def streams(self, result: dict[str, Any]) -> tuple[str, str]:
        """Return standard output and standard error of its command."""
        out, err = (
            (bytes(more) + self.found(size)).decode(errors="replace")
            for more, size in zip(self._more, result["found"], strict=True)
        )
        return out, err


class Agent:
    """A running agent. A thread receives its answers until its channel is closed."""

    def __init__(self, where: str, channel: paramiko.Channel) -> None:
        """Take ``channel``, on which the agent's program has been started."""
        self.where = where
        self._channel = channel
        # Receiver and sender share the channel, and each checks its own deadline.
        channel.settimeout(LOOK_S)
        self._sending, self._lock = threading.Lock(), threading.Lock()
        self._numbers = count(1)
        self.ready = Request(0)
        """The start of the agent: over when the agent accepts requests."""
        self._requests = {0: self.ready}
        self.end: str | None = None
        """The reason why the agent accepts no more requests."""
        threading.Thread(target=self._listen, name=f"agent of {where}", daemon=True).start()

    @property
    def alive(self) -> bool:
        """Whether the agent accepts requests, as far as this side knows."""
        return self.end is None

    def request(self, steps: Sequence[dict[str, Any]], payload: bytes, deadline: Deadline) -> Request:
        """Request the execution of steps, which `raidproof.guest.agent` defines.

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
        """Send the agent a frame about a request: feed, close, or kill.

        Raises:
            RigError: the connection broke, or accepted no data until the deadline.
        """
        self.send(program.frame({"id": request.number, word: True}, payload), deadline)

    def forget(self, request: Request) -> None:
        """Ignore further frames about a request."""
        with self._lock:
            self._requests.pop(request.number, None)

    def results(self, request: Request, deadline: Deadline, what: str) -> list[dict[str, Any]]:
        """Wait for the answer to a request, and return the results of its steps; kill the request at the deadline.

        Raises:
            DeadlineExceeded: the request is still being carried out; the message contains ``what``.
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
            raise RigError(f"{self.where}: the agent failed, {request.failed}, during: {what}")
        return request.done

    def close(self) -> None:
        """Close the channel, which ends the agent. Open requests get no answer."""
        self._channel.close()

    def send(self, data: bytes, deadline: Deadline) -> None:
        """Send bytes: the agent's source, then frames.

        Raises:
            RigError: the connection broke, or accepted no data until the deadline.
        """
        view = memoryview(data)
        if not self._sending.acquire(timeout=deadline.remaining_s):
            raise DeadlineExceeded(f"{self.where}: the connection was busy until the deadline")
        try:
            while view:
                with suppress(TimeoutError):
                    view = view[self._channel.send(bytes(view[:CHUNK])) :]
                if view and deadline.passed:
                    self.close()  # in the middle of a frame
                    raise DeadlineExceeded(f"{self.where}: the connection took nothing until the deadline")
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise RigError(f"{self.where}: the connection broke: {error}") from error
        finally:
            self._sending.release()

    def _listen(self) -> None:
        frames = program.Frames()
        end = "the connection broke"
        try:
            while True:
                with suppress(TimeoutError):
                    if not (data := self._channel.recv(CHUNK)):
                        break
                    for said, payload in frames.add(data):
                        self._take(said, payload)
            end = self._cause()
        except ValueError as error:
            end = f"the agent's answer cannot be read: {error}"
        finally:
            with self._lock:
                self.end = end
                left, self._requests = self._requests, {}
            for request in left.values():
                request.end()
            self._channel.close()

    def _take(self, said: dict[str, Any], payload: bytes) -> None:
        with self._lock:
            request = self._requests.get(said["id"])
        if request is self.ready:
            self.forget(request)
            request.end()
        elif request is not None:
            request.take(said, payload)

    def _cause(self) -> str:
        """Return why the agent sends nothing more."""
        # The event is also set if the channel broke; then there is no status.
        self._channel.status_event.wait(STATUS_S)
        if self._channel.exit_status == -1:
            return "the connection broke"
        errors = b""
        while self._channel.recv_stderr_ready() and (part := self._channel.recv_stderr(CHUNK)):
            errors += part
        last = errors.decode(errors="replace").strip().splitlines()[-1:]
        return f"the agent ended with status {self._channel.exit_status}{''.join(f' ({line})' for line in last)}"


class AgentCommand:
    """A command that an agent runs."""

    def __init__(self, agent: Agent, argv: Sequence[str], request: Request) -> None:
        self.where = agent.where
        self.argv = tuple(argv)
        self._agent = agent
        self._request = request
        self._open = True

    @property
    def ended(self) -> bool:
        """Whether its exit status has arrived, or the connection has ended."""
        return self._request.over.is_set()

    def feed(self, data: bytes) -> None:
        """Send input, and keep the input open; do nothing if the machine is gone."""
        with suppress(RigError):
            self._agent.tell(self._request, "feed", Deadline.after(DEFAULT_DEADLINE_S), data)

    def close_input(self) -> None:
        """Close the command's input."""
        if self._open:
            self._open = False
            with suppress(RigError):
                self._agent.tell(self._request, "close", Deadline.after(KILL_S))

    def wait(self, deadline: Deadline, stdin: bytes = b"") -> Completed:
        """Send the rest of the input, collect both output streams, and return the result.

        Raises:
            DeadlineExceeded: the command still ran, and was killed.
            RigError: the connection broke before the command ended.
        """
        if stdin:
            with suppress(RigError):
                self._agent.tell(self._request, "feed", deadline, stdin)
        self.close_input()
        return completed(self._agent, self._request, self.argv, deadline)


def begin(where: str, channel: paramiko.Channel, deadline: Deadline) -> Agent:
    """Send the agent its source on a channel on which `ARGV` has been started, and wait until it is ready.

    Raises:
        NoAgent: the machine cannot run the agent; with the reason.
        RigError: the connection broke.
        DeadlineExceeded: the agent did not start in time.
    """
    agent = Agent(where, channel)
    with suppress(RigError):  # the agent has ended; the reason is determined below
        agent.send(SOURCE, deadline)
    if not agent.ready.over.wait(deadline.remaining_s):
        agent.close()
        raise DeadlineExceeded(f"{where}: the agent did not start in time")
    if agent.end is None:
        return agent
    raise NoAgent(agent.end) if channel.exit_status != -1 else RigError(f"{where}: {agent.end}")


def run(agent: Agent, argv: Sequence[str], deadline: Deadline, stdin: bytes = b"") -> Completed:
    """Run a command to its end, in one exchange. Raises as `AgentCommand.wait`."""
    step = {"run": list(argv), "given": len(stdin)}
    return completed(agent, agent.request([step], stdin, deadline), argv, deadline)


def start(agent: Agent, argv: Sequence[str], deadline: Deadline) -> AgentCommand:
    """Start a command whose input comes later; return when it runs, or when it has taken its machine down.

    Raises:
        RigError: the command did not start by the deadline.
    """
    request = agent.request([{"run": list(argv)}], b"", deadline)
    if not request.began.wait(deadline.remaining_s):
        agent.forget(request)
        raise RigError(f"{agent.where}: cannot start: {shlex.join(argv)}")
    return AgentCommand(agent, argv, request)


def completed(agent: Agent, request: Request, argv: Sequence[str], deadline: Deadline) -> Completed:
    """Wait for the end of a command. Raises as `AgentCommand.wait`."""
    (result,) = agent.results(request, deadline, shlex.join(argv))
    out, err = request.streams(result)
    status = result["status"]
    # As shells and `timeout` report it; callers know the statuses of both.
    return Completed(tuple(argv), status if status >= 0 else SIGNAL - status, out, err, agent.where)


def read(agent: Agent, paths: Sequence[str], deadline: Deadline) -> list[bytes | str]:
    """Return the content of files, each read whole; for an unreadable file, the reason as text.

    Raises:
        DeadlineExceeded: a file system does not answer.
        RigError: the connection broke.
    """
    request = agent.request([{"read": list(paths)}], b"", deadline)
    (result,) = agent.results(request, deadline, f"read {shlex.join(paths)}")
    return [request.found(one) if isinstance(one, int) else str(one) for one in result["found"]]


def write(agent: Agent, files: Mapping[str, bytes], deadline: Deadline) -> dict[str, str]:
    """Write files, each in one write, and return the reason for each failure. Raises as `read`."""
    payload = b"".join(files.values())
    step = {"write": [[path, len(content)] for path, content in files.items()], "given": len(payload)}
    (result,) = agent.results(agent.request([step], payload, deadline), deadline, f"write {shlex.join(files)}")
    return {path: error for path, error in zip(files, result["errors"], strict=True) if error is not None}


def resolve(agent: Agent, paths: Sequence[str], deadline: Deadline) -> list[str | None]:
    """Return paths without symbolic links; None for paths that do not exist. Raises as `read`."""
    request = agent.request([{"resolve": list(paths)}], b"", deadline)
    (result,) = agent.results(request, deadline, f"resolve {shlex.join(paths)}")
    return list(result["paths"])
