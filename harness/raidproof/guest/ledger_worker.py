"""Base class of the ledger's workers: it reports each operation and each step of a worker to the harness.

The harness copies this file into machines: standard library only. The workers are in `ledger_writer`
and `ledger_holders`.
"""

import errno
import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from time import monotonic_ns
from typing import Any

# In a machine both files are in one folder, in the harness in a package.
ledger = import_module("raidproof.guest.ledger_format" if __package__ else "ledger_format")

PAUSE_S = 0.05  # pause in seconds after a tolerated error, which may recur at once
POLL_S = 0.2  # seconds after which a pausing worker looks for a request to stop


def end_of(worker: int, sequence: int, status: int) -> bytes:
    """Return the frame that reports the end of a worker; ``status``: minus the signal that killed it, or 0."""
    return bytes(ledger.FRAME.pack(ledger.END, 0, worker, sequence, 0, 0, status, monotonic_ns()))


class Disconnected(Exception):
    """The connection of a worker to the harness is lost: the worker cannot report any more."""


class Worker:
    """Base class of the workers: a worker carries out one operation after another, and reports each to the harness."""

    marks_rpcs = True  # whether the group id in the RPCs of the worker's thread is that of the worker

    def __init__(self, config: dict[str, Any], worker: dict[str, Any], stop: threading.Event) -> None:
        self.config = config
        self.worker = worker
        self.number = worker["number"]
        self.file = worker["file"]
        self.kind = worker["kind"]
        self.seed = config["seed"]
        self.path = os.path.join(config["root"], worker["path"])
        self.limit = worker.get("operations") or 1 << 62
        self.stop = stop
        self.quiet_s = config.get("quiet_s", 0.0)
        self.tolerated_errnos = config.get("tolerated_errnos", ())
        self.failed = False
        self.pending = b""
        self.sequence = 0
        self.steps = 0
        self.open: dict[str, int] = {}
        self.paused = False
        self.connection = socket.create_connection((config["host"], config["port"]))
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def run(self) -> Iterator[None]:
        """Carry out the operations, and yield after each; then report the end of the worker."""
        try:
            yield from self.work()
            self.pending += end_of(self.number, self.sequence, 0)
            self.send()
        finally:
            self.connection.close()

    def work(self) -> Iterator[None]:
        """Carry out the operations, and yield after each."""
        raise NotImplementedError

    def take_turn(self) -> None:
        """Pause before the next operation if the harness has requested it, until it requests to continue."""
        if self.paused or self.requested(0):
            self.step(ledger.PAUSE_STEP, self.wait)

    def wait(self) -> None:
        """Wait for a request of the harness to carry out one operation, or to continue; or to stop."""
        self.paused = False
        while not self.stop.is_set():
            if self.requested(POLL_S) and (request := self.request()) != ledger.PAUSE:
                self.paused = request == ledger.ONE
                break

    def requested(self, wait_s: float) -> bool:
        """Return whether a request of the harness has arrived; ``wait_s``: greatest time to wait, in seconds."""
        return bool(select.select([self.connection], [], [], wait_s)[0])

    def request(self) -> bytes:
        """Return the next request of the harness.

        Raises:
            Disconnected: the connection to the harness is lost.
        """
        with suppress(OSError):
            if request := self.connection.recv(1):
                return request
        raise Disconnected("worker %d: the harness has closed the connection" % self.number)

    def more(self) -> bool:
        """Return whether to continue: not after the limit, a request to stop, or an error that is not tolerated."""
        return self.sequence < self.limit and not self.failed and not self.stop.is_set()

    def send(self) -> None:
        """Send the queued reports.

        Raises:
            Disconnected: the connection to the harness is lost.
        """
        try:
            self.connection.sendall(self.pending)
        except OSError as error:
            raise Disconnected("worker %d: %s" % (self.number, error)) from error
        self.pending = b""

    def do(self, kind: str, index: int, generation: int, action: Callable[[], object]) -> bool:
        """Report that an operation begins, call ``action``, and queue the report of the end; return its success."""
        fields = (ledger.KINDS.index(kind), self.number, self.sequence, index, generation)
        failure, _ = self.call(ledger.ISSUE, ledger.ACKNOWLEDGE, fields, action)
        self.sequence += 1
        if self.quiet_s:
            # The next operation may be another worker's, which would not send this worker's queued report.
            self.send()
            self.stop.wait(self.quiet_s)
        return not failure

    def step(self, kind: str, action: Callable[[], object], index: int = 0, generation: int = 0) -> bool:
        """Report a step as `do` reports an operation; return whether it succeeded, and did not return False."""
        fields = (ledger.STEPS.index(kind), self.number, self.steps, index, generation)
        failure, result = self.call(ledger.STEP, ledger.STEPPED, fields, action)
        self.steps += 1
        if self.quiet_s:
            self.send()
        return not failure and result is not False

    def call(self, begin: int, end: int, fields: tuple[int, ...], action: Callable[[], object]) -> tuple[int, object]:
        """Send the report ``begin``, call ``action``, and queue the report ``end``; return errno and result.

        ``fields``: the fields of both frames after the type. The errno is 0 if the call succeeded.
        """
        self.pending += ledger.FRAME.pack(begin, *fields, 0, monotonic_ns())
        self.send()
        failure, result = 0, None
        try:
            result = action()
        except OSError as error:
            failure = (self.is_refusal(begin, fields[0], error) and error.errno) or self.fail(error)
        self.pending = ledger.FRAME.pack(end, *fields, failure, monotonic_ns())
        return failure, result

    @staticmethod
    def is_refusal(begin: int, code: int, error: OSError) -> bool:
        """Return whether an error is the usual result of a claim: another client holds the lock."""
        return begin == ledger.STEP and ledger.STEPS[code] == "claim" and error.errno in ledger.REFUSED

    def fail(self, error: OSError) -> int:
        """Return the errno of a failed call, after a pause; an error that is not tolerated ends the worker."""
        failure = error.errno or errno.EIO
        self.failed = self.failed or failure not in self.tolerated_errnos
        self.stop.wait(PAUSE_S)
        return failure

    def set_up(self, call: Callable[[], object]) -> None:
        """Create the worker's own file or directory; repeat the call after an error that is tolerated."""
        while self.more() and not self.step("set-up", call):
            pass

    def close_files(self) -> None:
        """Close the files that the worker has kept open."""
        for fd in self.open.values():
            self.step("last close", lambda: os.close(fd))  # noqa: B023  called at once
