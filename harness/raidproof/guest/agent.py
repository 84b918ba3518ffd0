"""Carries out requests in a machine: runs commands, reads and writes files, over standard input and output.

Its source arrives on standard input (see ``START``), so nothing is written to a disk. Between requests it waits in
one ``read``. It ends when its input ends; commands that still run then go on, as after the end of an SSH session.
Standard library only, Python 3.9 or newer.

A frame, either way, is a head of two lengths (4 bytes each, network order), a JSON object, and a payload:

* ``{"id": 1, "steps": [STEP, ...]}``: carry out the steps in their order, up to the first that fails. The payload is
  what they are given, one after the other. The answer is ``{"id": 1, "done": [RESULT, ...]}``; its payload is what
  they have found, one after the other.
* ``{"id": 1, "feed": true}``: the payload is input for the command; ``{"id": 1, "close": true}``: its input ends;
  ``{"id": 1, "kill": true}``: kill the command with its process group, and take no further step.

Requests are carried out side by side, each in a thread of its own. The steps, and their results:

* ``{"run": [WORD, ...], "given": BYTES}`` gives ``{"status": N, "found": [OUTPUT BYTES, ERROR BYTES]}``. The status
  is that of the process, or minus the signal that ended it; any but 0 is a failure. Without ``given``, the command's
  input is fed, and ``{"id": 1, "began": PID}`` is sent when it runs. Of much output, what comes first is sent ahead
  in ``{"id": 1, "more": 0}`` (output) and ``{"id": 1, "more": 1}`` (errors) frames, and not counted in the result.
* ``{"read": [PATH, ...]}`` gives ``{"found": [BYTES or ERROR TEXT, ...]}``. It cannot fail.
* ``{"write": [[PATH, BYTES], ...], "given": BYTES}`` gives ``{"errors": [ERROR TEXT or null, ...]}``. Each file is
  written, whatever became of those before; any error is a failure.
* ``{"resolve": [PATH, ...]}`` gives ``{"paths": [PATH, ...]}``, without symbolic links; null where nothing is.
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
"""Bytes of a command's output that are kept until it ends."""
START = "import os\nsource = b''\nwhile len(source) < {0}: source += os.read(0, {0} - len(source))\nexec(source)"
"""Python source that reads the text of this file, {0} bytes, from standard input and executes it."""


def frame(said: dict[str, Any], payload: bytes = b"") -> bytes:
    """Return an object and its payload as bytes."""
    text = json.dumps(said).encode()
    return HEAD.pack(len(text), len(payload)) + text + payload


class Frames:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def add(self, data: bytes) -> list[tuple[dict[str, Any], bytes]]:
        """Take more of the stream, and return object and payload of each frame that is whole now."""
        self._rest += data
        whole = []
        while len(self._rest) >= HEAD.size:
            first, second = HEAD.unpack_from(self._rest)
            middle = HEAD.size + first
            if len(self._rest) < middle + second:
                break
            said = json.loads(self._rest[HEAD.size : middle].decode())
            whole.append((said, bytes(self._rest[middle : middle + second])))
            del self._rest[: middle + second]
        return whole


def write_all(fd: int, data: bytes) -> None:
    """Write all of it: a write may do less than it was given."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def encoded(word: str) -> bytes:
    """Return a word as bytes, whatever the locale is."""
    return word.encode("utf-8", "surrogateescape")


def environment() -> dict[bytes, bytes]:
    """Return the environment as this program got it: Python itself adds LC_CTYPE where there is no locale."""
    with open("/proc/self/environ", "rb") as file:
        pairs = [line.partition(b"=") for line in file.read().split(b"\0") if b"=" in line]
    return {name: value for name, _, value in pairs}


def read_file(path: str) -> bytes | str:
    """Return a file's content, or why it cannot be read."""
    try:
        with open(encoded(path), "rb", buffering=0) as file:
            parts = []
            while part := file.read(CHUNK):
                parts.append(part)
            return b"".join(parts)
    except OSError as error:
        return error.strerror or str(error)


def write_file(path: str, content: bytes) -> str | None:
    """Write a file, in one write: files of /proc and /sys take a value whole. Return what went wrong."""
    try:
        with open(encoded(path), "wb", buffering=0) as file:
            write_all(file.fileno(), content)
    except OSError as error:
        return error.strerror or str(error)
    return None


def resolve(path: str) -> str | None:
    """Return the path without symbolic links; None if nothing is there."""
    real = os.path.realpath(encoded(path))
    return real.decode("utf-8", "surrogateescape") if os.path.lexists(real) else None


class Process:
    """A command that runs, in a session of its own."""

    def __init__(self, words: list[str], given: bytes | None, surroundings: dict[bytes, bytes]) -> None:
        """Start it. Without ``given``, `feed` says what its input is."""
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
        """Give it input; None ends it."""
        self._input.put(data)

    def _pass_on(self, sink: int) -> None:
        with suppress(OSError):  # it closed its input without reading the rest
            while (data := self._input.get()) is not None:
                write_all(sink, data)
        os.close(sink)

    def kill(self) -> None:
        """Kill it and what it has started."""
        with self._lock:
            if not self._reaped:
                with suppress(OSError):  # it has ended just now
                    os.killpg(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Wait for its end; return its exit status, or minus the signal that ended it."""
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            self._reaped = True
            _, status = os.waitpid(self.pid, 0)
        self.feed(None)
        return os.waitstatus_to_exitcode(status)


def spawn(words: list[str], streams: tuple[int, int, int], surroundings: dict[bytes, bytes]) -> int:
    """Start a command without a fork, and return its process. What is no program is the shell's to judge."""
    argv = [encoded(word) for word in words]
    options: dict[str, Any] = {
        "file_actions": [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(streams)],
        "setsid": True,
        "setsigmask": (),
        # Python ignores them.
        "setsigdef": (signal.SIGPIPE, signal.SIGXFSZ),
    }
    try:
        return os.posix_spawnp(argv[0], argv, surroundings, **options)
    except OSError:
        quoted = b" ".join(b"'" + word.replace(b"'", b"'\"'\"'") + b"'" for word in argv)
        return os.posix_spawn("/bin/sh", [b"sh", b"-c", quoted], surroundings, **options)


class Request:
    """Steps that are carried out."""

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
        """Give its command input; None ends it."""
        with self._lock:
            if self._process is None:
                self._early.append(data)
            else:
                self._process.feed(data)

    def kill(self) -> None:
        """Kill its command, and let no other step follow."""
        with self._lock:
            self._killed = True
            if self._process is not None:
                self._process.kill()

    def carry_out(self) -> None:
        """Take its steps and answer."""
        done: list[dict[str, Any]] = []
        found: list[bytes] = []
        said: dict[str, Any] = {"id": self._number, "done": done}
        try:
            start = 0
            for step in self._steps:
                end = start + (step.get("given") or 0)
                done.append(self._take(step, self._payload[start:end], found))
                start = end
                if done[-1].get("status") or any(done[-1].get("errors", ())):
                    break
        except Exception as error:  # noqa: BLE001  the other side waits for an answer
            said["failed"] = f"{type(error).__name__}: {error}"
        self._agent.forget(self._number)
        self._agent.say(said, b"".join(found))

    def _take(self, step: dict[str, Any], given: bytes, found: list[bytes]) -> dict[str, Any]:
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
            self._agent.say({"id": self._number, "began": process.pid})
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
                    self._agent.say({"id": self._number, "more": number}, bytes(kept[number]))
                    kept[number].clear()
        return kept


class Agent:
    """Takes requests from one descriptor and answers on another."""

    def __init__(self, source: int, sink: int) -> None:
        self._source, self._sink = source, sink
        self._saying = _thread.allocate_lock()
        self._requests: dict[int, Request] = {}
        self.environment = environment()

    def say(self, said: dict[str, Any], payload: bytes = b"") -> None:
        """Send a frame."""
        with self._saying:
            write_all(self._sink, frame(said, payload))

    def forget(self, number: int) -> None:
        """Note that a request is being answered."""
        self._requests.pop(number, None)

    def serve(self) -> None:
        """Take requests until there are no more."""
        self.say({"id": 0, "ready": os.getpid()})
        frames = Frames()
        while data := os.read(self._source, CHUNK):
            for said, payload in frames.add(data):
                self._take(said, payload)

    def _take(self, said: dict[str, Any], payload: bytes) -> None:
        number = said["id"]
        if "steps" in said:
            self._requests[number] = request = Request(self, number, said["steps"], payload)
            _thread.start_new_thread(request.carry_out, ())
        elif (known := self._requests.get(number)) is None:
            return  # it has been answered meanwhile
        elif "kill" in said:
            known.kill()
        else:
            known.feed(payload if "feed" in said else None)


if __name__ == "__main__":
    try:
        Agent(0, 1).serve()
    finally:
        os._exit(0)  # without waiting for the commands that still run
