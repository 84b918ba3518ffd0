"""Agent in a machine: it carries out requests from its standard input, which run commands, read and write files.

The source of the agent arrives on standard input (see ``START``), so nothing is written to a disk. Between requests
the agent blocks in one ``read``. The agent ends when its input ends; commands that still run then continue, as they do
after an SSH session ends. Standard library only, Python 3.9 or newer.

A frame, in both directions, is a header with two lengths (4 bytes each, network byte order), a JSON object of the
first length, and a payload of the second:

* ``{"id": 1, "steps": [STEP, ...]}``: carry out the steps in order, up to the first that fails. The payload is the
  concatenated input of the steps. The answer is ``{"id": 1, "done": [RESULT, ...]}``; its payload is the concatenated
  output of the steps.
* ``{"id": 1, "feed": true}``: the payload is input for the command; ``{"id": 1, "close": true}``: its input ends;
  ``{"id": 1, "kill": true}``: kill the command with its process group, and skip the remaining steps.

The agent carries out requests concurrently, each in a thread. The steps and their results:

* ``{"run": [WORD, ...], "given": BYTES}`` gives ``{"status": N, "found": [OUTPUT BYTES, ERROR BYTES]}``. The status is
  the exit status of the process, or minus the number of the signal that ended it; a status other than 0 is a failure.
  ``given`` is the length of the command's input in the payload. Without ``given``, ``feed`` frames contain the input
  of the command, and the agent sends ``{"id": 1, "began": PID}`` when the command runs. If the output is large, the
  agent sends parts of it before the answer, in ``{"id": 1, "more": 0}`` (output) and ``{"id": 1, "more": 1}`` (errors)
  frames, which the byte counts of the result do not include.
* ``{"read": [PATH, ...]}`` gives ``{"found": [BYTES or ERROR TEXT, ...]}``. This step cannot fail.
* ``{"write": [[PATH, BYTES], ...], "given": BYTES}`` gives ``{"errors": [ERROR TEXT or null, ...]}``. The agent writes
  every file, even if an earlier one failed; any error is a failure.
* ``{"resolve": [PATH, ...]}`` gives ``{"paths": [PATH, ...]}``, without symbolic links; null where no file exists.
"""

from __future__ import annotations

import _thread
import io
import json
import os
import queue
import select
import signal
import struct
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:  # the module is slow to load
    from typing import Any

HEAD = struct.Struct("!II")
CHUNK = 1 << 16
MORE = 1 << 20
"""Maximum number of bytes of output that the agent keeps until a command ends; longer output is sent in parts."""
START = "import os\nsource = b''\nwhile len(source) < {0}: source += os.read(0, {0} - len(source))\nexec(source)"
"""Python source that reads the text of this file, {0} bytes, from standard input and executes it."""


def frame(header: dict[str, Any], payload: bytes = b"") -> bytes:
    """Return the frame of a JSON object and its payload."""
    text = json.dumps(header).encode()
    return HEAD.pack(len(text), len(payload)) + text + payload


class Frames:
    """Splits a stream of bytes into frames."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def add(self, data: bytes) -> list[tuple[dict[str, Any], bytes]]:
        """Add bytes of the stream; return the object and the payload of each frame that is now complete."""
        self._rest += data
        whole = []
        while len(self._rest) >= HEAD.size:
            first, second = HEAD.unpack_from(self._rest)
            middle = HEAD.size + first
            if len(self._rest) < middle + second:
                break
            header = json.loads(self._rest[HEAD.size : middle].decode())
            whole.append((header, bytes(self._rest[middle : middle + second])))
            del self._rest[: middle + second]
        return whole


def write_all(fd: int, data: bytes) -> None:
    """Write all of the data to a descriptor: one write(2) may write less than requested."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def encoded(word: str) -> bytes:
    """Return a text as UTF-8 bytes, independent of the locale."""
    return word.encode("utf-8", "surrogateescape")


def environment() -> dict[bytes, bytes]:
    """Return this process's environment as execve(2) passed it: Python adds LC_CTYPE if no locale is set."""
    with open("/proc/self/environ", "rb") as file:
        pairs = [line.partition(b"=") for line in file.read().split(b"\0") if b"=" in line]
    return {name: value for name, _, value in pairs}


def read_file(path: str) -> bytes | str:
    """Return the content of a file, or the text of the error if the file cannot be read."""
    try:
        with open(encoded(path), "rb", buffering=0) as file:
            parts = []
            while part := file.read(CHUNK):
                parts.append(part)
            return b"".join(parts)
    except OSError as error:
        return error.strerror or str(error)


def write_file(path: str, content: bytes) -> str | None:
    """Write a file in one write(2), as /proc and /sys require; return the text of the error, or None for success."""
    try:
        with open(encoded(path), "wb", buffering=0) as file:
            write_all(file.fileno(), content)
    except OSError as error:
        return error.strerror or str(error)
    return None


def resolve(path: str) -> str | None:
    """Return a path with its symbolic links resolved; None if no file has this path."""
    real = os.path.realpath(encoded(path))
    return real.decode("utf-8", "surrogateescape") if os.path.lexists(real) else None


class Process:
    """A running command in its own session (setsid(2))."""

    def __init__(self, words: list[str], given: bytes | None, surroundings: dict[bytes, bytes]) -> None:
        """Start a command with the environment ``surroundings`` and the input ``given`` (None: input from `feed`)."""
        self._lock = _thread.allocate_lock()
        self._input: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.out, out = os.pipe()
        self.err, err = os.pipe()
        source, sink = os.pipe() if given is None or given else (os.open(os.devnull, os.O_RDONLY), None)
        try:
            self.pid = spawn(words, (source, out, err), surroundings)
        except OSError:
            for fd in (self.out, self.err, *([] if sink is None else [sink])):
                os.close(fd)
            raise
        finally:
            for fd in (source, out, err):
                os.close(fd)
        self._reaped = False
        if sink is not None:
            if given is not None:
                self.feed(given)
                self.feed(None)
            _thread.start_new_thread(self._pass_on, (sink,))

    def feed(self, data: bytes | None) -> None:
        """Append data to the command's input; None ends the input."""
        self._input.put(data)

    def _pass_on(self, sink: int) -> None:
        with suppress(OSError):  # the command has closed its input before it read all data
            while (data := self._input.get()) is not None:
                write_all(sink, data)
        os.close(sink)

    def kill(self) -> None:
        """Kill the command and its process group."""
        with self._lock:
            if not self._reaped:
                with suppress(OSError):  # the process has ended, and waits to be reaped
                    os.killpg(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Wait until the command ends; return its exit status, or minus the number of the signal that ended it."""
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            self._reaped = True
            _, status = os.waitpid(self.pid, 0)
        self.feed(None)
        return os.waitstatus_to_exitcode(status)


def spawn(words: list[str], streams: tuple[int, int, int], surroundings: dict[bytes, bytes]) -> int:
    """Start a command by posix_spawn(3), and return its process id.

    If posix_spawn cannot start the file, for example a script without ``#!``, a shell starts it.
    """
    argv = [encoded(word) for word in words]
    options: dict[str, Any] = {
        "file_actions": [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(streams)],
        "setsid": True,
        "setsigmask": (),
        # Python ignores these signals, and the command would inherit this.
        "setsigdef": (signal.SIGPIPE, signal.SIGXFSZ),
    }
    try:
        return os.posix_spawnp(argv[0], argv, surroundings, **options)
    except OSError:
        quoted = b" ".join(b"'" + word.replace(b"'", b"'\"'\"'") + b"'" for word in argv)
        return os.posix_spawn("/bin/sh", [b"sh", b"-c", quoted], surroundings, **options)


class Request:
    """One request: a list of steps, which the agent carries out in order."""

    def __init__(self, agent: Agent, number: int, steps: list[dict[str, Any]], payload: bytes) -> None:
        self._agent = agent
        self._number = number
        self._steps = steps
        self._payload = payload
        self._lock = _thread.allocate_lock()
        self._killed = False
        self._process: Process | None = None
        self._early: list[bytes | None] = []

    def feed(self, data: bytes | None) -> None:
        """Append data to the input of the request's command; None ends the input."""
        with self._lock:
            if self._process is None:
                self._early.append(data)
            else:
                self._process.feed(data)

    def kill(self) -> None:
        """Kill the request's command, and skip the remaining steps."""
        with self._lock:
            self._killed = True
            if self._process is not None:
                self._process.kill()

    def carry_out(self) -> None:
        """Carry out the steps and send the answer."""
        done: list[dict[str, Any]] = []
        found: list[bytes] = []
        answer: dict[str, Any] = {"id": self._number, "done": done}
        try:
            start = 0
            for step in self._steps:
                end = start + (step.get("given") or 0)
                done.append(self._step(step, self._payload[start:end], found))
                start = end
                if done[-1].get("status") or any(done[-1].get("errors", ())):
                    break
        except Exception as error:  # noqa: BLE001  the harness waits for an answer
            answer["failed"] = f"{type(error).__name__}: {error}"
        self._agent.forget(self._number)
        self._agent.send(answer, b"".join(found))

    def _step(self, step: dict[str, Any], given: bytes, found: list[bytes]) -> dict[str, Any]:
        if "run" in step:
            return self._run(step["run"], given if "given" in step else None, found)
        if "read" in step:
            contents = [read_file(path) for path in step["read"]]
            found.extend(one for one in contents if isinstance(one, bytes))
            return {"found": [len(one) if isinstance(one, bytes) else one for one in contents]}
        if "write" in step:
            parts = io.BytesIO(given)
            return {"errors": [write_file(path, parts.read(size)) for path, size in step["write"]]}
        return {"paths": [resolve(path) for path in step["resolve"]]}

    def _run(self, words: list[str], given: bytes | None, found: list[bytes]) -> dict[str, Any]:
        with self._lock:
            if self._killed:
                return {"status": -signal.SIGKILL, "found": [0, 0]}
            self._process = process = Process(words, given, self._agent.environment)
            for data in self._early:
                process.feed(data)
        if given is None:
            self._agent.send({"id": self._number, "began": process.pid})
        output = self._drain(process)
        status = process.wait()
        found.extend(map(bytes, output))
        return {"status": status, "found": [len(part) for part in output]}

    def _drain(self, process: Process) -> tuple[bytearray, bytearray]:
        kept = (bytearray(), bytearray())
        streams = {process.out: 0, process.err: 1}
        poll = select.poll()
        for fd in streams:
            poll.register(fd, select.POLLIN)
        while streams:
            for fd, _ in poll.poll():
                number = streams[fd]
                kept[number].extend(part := os.read(fd, CHUNK))
                if not part:
                    poll.unregister(fd)
                    os.close(fd)
                    del streams[fd]
                elif len(kept[number]) > MORE:
                    self._agent.send({"id": self._number, "more": number}, bytes(kept[number]))
                    kept[number].clear()
        return kept


class Agent:
    """Reads requests from the descriptor ``source``, and writes answers to the descriptor ``sink``."""

    def __init__(self, source: int, sink: int) -> None:
        self._source, self._sink = source, sink
        self._sending = _thread.allocate_lock()
        self._requests: dict[int, Request] = {}
        self.environment = environment()

    def send(self, header: dict[str, Any], payload: bytes = b"") -> None:
        """Send a frame with this object and payload to the harness."""
        with self._sending:
            write_all(self._sink, frame(header, payload))

    def forget(self, number: int) -> None:
        """Remove a request from the table of running requests, before its answer is sent."""
        self._requests.pop(number, None)

    def serve(self) -> None:
        """Carry out requests until the input ends."""
        self.send({"id": 0, "ready": os.getpid()})
        frames = Frames()
        while data := os.read(self._source, CHUNK):
            for header, payload in frames.add(data):
                self._receive(header, payload)

    def _receive(self, header: dict[str, Any], payload: bytes) -> None:
        number = header["id"]
        if "steps" in header:
            self._requests[number] = request = Request(self, number, header["steps"], payload)
            _thread.start_new_thread(request.carry_out, ())
        elif (known := self._requests.get(number)) is None:
            return  # the agent has already answered this request
        elif "kill" in header:
            known.kill()
        else:
            known.feed(payload if "feed" in header else None)


if __name__ == "__main__":
    try:
        Agent(0, 1).serve()
    finally:
        os._exit(0)  # at once: the commands that still run continue without the agent
