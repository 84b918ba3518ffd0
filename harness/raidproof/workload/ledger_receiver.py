"""The receiver of the ledger: it records the reports of the clients, and when they arrive."""

import selectors
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

from raidproof.core.waiting import now_ns, realtime_ahead_ns
from raidproof.guest import application, ledger_format
from raidproof.workload.application import ApplicationError, Reports
from raidproof.workload.history import Recorder

SO_TIMESTAMPNS = 35
"""Socket option by which the kernel stamps received data (asm-generic/socket.h); Python's socket lacks it."""
COUNTED = frozenset({"claim", "use removed", "list names"})
"""The kinds of step that count as operations of a worker that has only steps."""
SET_NS = 50_000
"""Change in ns of the distance of the clocks from which on the real-time clock was set. Both are slewed alike."""
_TIMESPEC = struct.Struct("@qq")


class Receiver(threading.Thread):
    """Thread that records the reports of the clients.

    The kernel stamps the arrival of a report, because this thread may run much later.
    """

    def __init__(self, listener: socket.socket, recorder: Recorder) -> None:
        super().__init__(name="ledger-receiver", daemon=True)
        self.connections = 0
        """Connections accepted so far; each worker has its own."""
        self.open_connections = 0
        self.ended: Counter[str] = Counter()
        """Number of operations that were reported to have ended, by kind."""
        self.ended_of: Counter[int] = Counter()
        """Number of operations, or of steps in `COUNTED`, that were reported to have ended, by worker."""
        self.last_ended: dict[int, tuple[str, int]] = {}
        """Kind and `Operation.place` of the last operation that was reported to have ended, by worker."""
        self.begun_ns: dict[int, int] = {}
        """Arrival in ns of the last report that an operation begins, by worker."""
        self.done: set[int] = set()
        """Numbers of the workers that have reported their end."""
        self.last_ns = 0
        """Arrival of the last report of any worker in ns; 0 if there is none."""
        self.failure: OSError | None = None
        """The first error of a write to the history file; the run cannot be judged after it."""
        self.refused: ApplicationError | None = None
        """The first line of an application that is no report; later reports may be missing."""
        self.pausing: set[int] = set()
        """Numbers of the workers that have reported that they pause, as requested by `request`."""
        self.pauses: Counter[int] = Counter()
        """Number of pauses that have begun, by worker."""
        self.statuses: dict[int, int] = {}
        """Statuses of the workers that have reported their end, by number; see `history.WorkerEnd`."""
        self._reports: dict[int, Reports | None] = {}
        """By file descriptor, the translator of an application's lines; None for the connection of another worker."""
        self._connections: dict[int, socket.socket] = {}
        """By number of the worker."""
        self._heard = threading.Condition()
        self._listener = listener
        # Accepted connections inherit this option.
        listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._recorder = recorder
        self._arrivals = Arrivals()
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = socket.socketpair()

    def run(self) -> None:
        """Receive reports until `stop` is called."""
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                source = key.fileobj
                if source is self._wake_read:
                    return
                if source is self._listener:
                    connection, _ = self._listener.accept()
                    self._selector.register(connection, selectors.EVENT_READ)
                    self.connections += 1
                    self.open_connections += 1
                else:
                    self._receive(source)  # type: ignore[arg-type]

    def _receive(self, source: socket.socket) -> None:
        try:
            data, ancillary, _, _ = source.recvmsg(1 << 16, socket.CMSG_SPACE(_TIMESPEC.size))
        except OSError:
            data, ancillary = b"", []
        if data:
            arrived_ns = self._arrivals.date(ancillary)
            self.last_ns = max(self.last_ns, arrived_ns)
            try:
                data = self._framed(source.fileno(), data, arrived_ns)
                with self._heard:
                    self._count(self._recorder.add(source.fileno(), arrived_ns, data), arrived_ns, source)
                    self._heard.notify_all()
            except ApplicationError as error:
                self.refused = self.refused or error
            except OSError as error:
                self.failure = self.failure or error
        else:
            self._recorder.forget(source.fileno())
            self._reports.pop(source.fileno(), None)
            self._selector.unregister(source)
            with self._heard:
                self._connections = {number: one for number, one in self._connections.items() if one is not source}
                source.close()
                self._heard.notify_all()
            self.open_connections -= 1

    def request(self, worker: int, request: bytes) -> bool:
        """Send a request such as `ledger_format.PAUSE` to a worker; return whether the worker is connected.

        An application gets no request.
        """
        with self._heard:
            source = self._connections.get(worker)
            if source is None or self._reports.get(source.fileno()) is not None:
                return False
            with suppress(OSError):
                return source.send(request) == len(request)
            return False

    def wait_until(self, met: Callable[[], bool], seconds: float) -> bool:
        """Wait for a condition, which is evaluated after each report; return whether it was met in time."""
        with self._heard:
            return self._heard.wait_for(met, seconds)

    def _framed(self, connection: int, data: bytes, arrived_ns: int) -> bytes:
        """Return the frames in received data; the first bytes of an application are text, those of others a frame."""
        if connection not in self._reports:
            self._reports[connection] = Reports() if data.startswith(application.WORKER.encode()) else None
        reports = self._reports[connection]
        return data if reports is None else reports.take(data, arrived_ns)

    def _count(self, data: bytes, arrived_ns: int, source: socket.socket) -> None:
        for what, code, worker, _, place, _, status, _ in ledger_format.FRAME.iter_unpack(data):
            if what != ledger_format.END:
                self._connections[worker] = source
            pausing = (
                what in (ledger_format.STEP, ledger_format.STEPPED)
                and ledger_format.STEPS[code] == ledger_format.PAUSE_STEP
            )
            if pausing and what == ledger_format.STEP:
                self.pauses[worker] += 1
                self.pausing.add(worker)
            elif pausing:
                self.pausing.discard(worker)
            if what == ledger_format.ACKNOWLEDGE:
                self.ended[ledger_format.KINDS[code]] += 1
                self.last_ended[worker] = ledger_format.KINDS[code], place
                self.ended_of[worker] += 1
            elif what == ledger_format.STEPPED and ledger_format.STEPS[code] in COUNTED:
                self.ended_of[worker] += 1
            elif what == ledger_format.ISSUE:
                self.begun_ns[worker] = arrived_ns
            elif what == ledger_format.END:
                self.statuses[worker] = status
                self.done.add(worker)
                self.pausing.discard(worker)

    def stop(self) -> None:
        """End the thread, and close the connections and the history file."""
        self._wake_write.send(b"!")
        self.join()
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket) and key.fileobj is not self._listener:
                key.fileobj.close()
        self._wake_write.close()
        self._selector.close()
        self._recorder.close()


class Arrivals:
    """Dates received data by the kernel's stamps, which are of the real-time clock.

    If that clock is set, data that arrived before, and are read afterwards, would get a wrong date: a host set its
    clock by 16.5 ms. Such data get the time at which they are read.
    """

    def __init__(self) -> None:
        self._ahead_ns = realtime_ahead_ns()
        self._reliable_ns = 0
        """The instant from which on all data arrived after the real-time clock was set for the last time."""

    def date(self, ancillary: Sequence[tuple[int, int, bytes]]) -> int:
        """Return when data arrived (CLOCK_MONOTONIC, ns); ``ancillary``: what recvmsg(2) returned with the data."""
        now, ahead_ns = now_ns(), realtime_ahead_ns()
        if abs(ahead_ns - self._ahead_ns) > SET_NS:
            self._reliable_ns = now
        self._ahead_ns = ahead_ns
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS) and len(data) >= _TIMESPEC.size:
                seconds, ns = _TIMESPEC.unpack_from(data)
                stamp: int = seconds * 1_000_000_000 + ns - ahead_ns
                return stamp if self._reliable_ns <= stamp <= now else now
        return now
