"""The delay of requests by simulated service times: runs the event simulation of the disks on the real clock."""

import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass

from raidproof.disk.timing.hardware import Hardware
from raidproof.disk.timing.request import Op, Request

_PR_SET_TIMERSLACK = 29  # prctl(2)
_SLACK_NS = 1_000
_PATH_NS = 150_000
"""Duration in ns of the path of a request from the guest to the engine and back, which a real disk does not have.

The timekeeper submits each request to the simulated disk as if the request had arrived earlier by this duration. The
value is about the latency that benchmarks/members.py measures on a disk without mechanics, without the guest's share.
"""
_LEARNING = 1 / 16
"""Weight of the last answer in the moving average of the duration of an answer."""
_MOST_EARLY_NS = 300_000
"""Limit in ns by which the timekeeper begins an answer early, to compensate for the lateness of answers."""


@dataclass
class Ticket:
    """A request that waits for its simulated completion."""

    request: Request
    served: threading.Lock
    """Lock that the timekeeper releases at the simulated completion of the request."""


class Timekeeper:
    """Makes requests wait for their simulated completion. The caller of each method holds the engine's lock.

    Simulated events have exact times even if the engine's process handles them late. The timekeeper measures the
    lateness of answers, because an engine that is too slow would otherwise look like a slow disk.
    """

    def __init__(
        self, hardware: Hardware, lock: threading.Lock, clock: Callable[[], int], slow_motion: float = 1.0
    ) -> None:
        self.hardware = hardware
        self.slow_motion = slow_motion
        """Real seconds for each simulated second. All counters are in simulated time."""
        self.running = False
        """Whether requests wait for simulated service times; otherwise the engine answers at once."""
        self.served = 0
        """Number of requests with a simulated service time."""
        self.late_ns = 0
        """Simulated ns from the simulated completion to the real answer, summed over the requests in ``served``."""
        self.service_ns = 0
        """Simulated ns from the arrival to the simulated completion, summed over the requests in ``served``."""
        self._clock = clock
        self._path_ns = int(_PATH_NS / slow_motion)
        self._most_early_ns = _MOST_EARLY_NS / slow_motion
        self._changed = threading.Condition(lock)
        self._wakes_at: int | None = None
        self._early_ns = 0.0
        """Moving average of the duration of an answer in simulated ns; answers begin earlier by this time."""
        self._waiting: dict[int, Ticket] = {}
        self._thread: threading.Thread | None = None

    @property
    def now(self) -> int:
        """The simulated time in ns."""
        return int(self._clock() / self.slow_motion)

    def start(self) -> None:
        """Switch service times on; the simulated disks are idle at first, and their caches are empty."""
        self.hardware.reset(self.now)
        self.running = True
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="timekeeper", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Switch service times off: answer the waiting requests and all later requests at once."""
        self.running = False
        self.hardware.reset(self.now)
        waiting, self._waiting = self._waiting, {}
        for ticket in waiting.values():
            ticket.served.release()

    def submit(self, member: int, op: Op, span: tuple[int, int], *, fua: bool = False) -> Ticket:
        """Submit a request for the bytes ``span`` (offset, length) to a simulated disk.

        The timekeeper releases the lock of the returned ticket at the simulated completion.
        """
        now = self.now
        served = threading.Lock()
        served.acquire()
        request = Request(op=op, offset=span[0], length=span[1], fua=fua, member=member)
        ticket = request.tag = Ticket(request, served)
        self._waiting[id(ticket)] = ticket
        self.hardware.submit(request, now - self._path_ns)
        self._deliver(now)
        upcoming = self.hardware.next_ns
        if upcoming is not None and (self._wakes_at is None or upcoming < self._wakes_at):
            self._changed.notify()
        return ticket

    def account(self, ticket: Ticket) -> None:
        """Add a completed request to the counters; called by the thread that waited for the request."""
        request = ticket.request
        if request.done_ns is None:
            return
        self.served += 1
        self.service_ns += request.done_ns - request.submitted_ns
        late_ns = self.now - request.done_ns
        self.late_ns += max(0, late_ns)
        early_ns = self._early_ns + late_ns * _LEARNING
        self._early_ns = min(max(0.0, early_ns), self._most_early_ns)

    def _deliver(self, now: int) -> None:
        for request in self.hardware.advance(now + int(self._early_ns)):
            ticket = request.tag
            if isinstance(ticket, Ticket) and self._waiting.pop(id(ticket), None) is not None:
                ticket.served.release()

    def _run(self) -> None:
        # By default the kernel may end a wait 50 us too late (PR_SET_TIMERSLACK in prctl(2)).
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, _SLACK_NS, 0, 0, 0)
        with self._changed:
            while True:
                now = self.now
                self._deliver(now)
                self._wakes_at = self.hardware.next_ns
                if self._wakes_at is None:
                    self._changed.wait()
                else:
                    left_ns = max(0.0, self._wakes_at - self._early_ns - now)
                    self._changed.wait(left_ns * self.slow_motion / 1e9)
