"""Delays requests by the simulated service times of their disks: runs the hardware's calendar on the real clock."""

import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass

from raidproof.disk.timing.hardware import Hardware
from raidproof.disk.timing.request import Op, Request

_PR_SET_TIMERSLACK = 29  # prctl(2)
_SLACK_NS = 1_000
_PATH_NS = 150_000
"""Duration of a request's path from the guest to the engine and back, which no real disk has: each request counts as
submitted so much earlier. About the result of benchmarks/members.py on a disk without mechanics, less the guest's
part."""
_LEARNING = 1 / 16
_MOST_EARLY_NS = 300_000


@dataclass
class Ticket:
    """One request that waits for its disk."""

    request: Request
    served: threading.Lock


class Timekeeper:
    """Lets requests wait for simulated disks. All methods are called under the engine's lock, except `Ticket` waits.

    Simulated events have exact times even if this process handles them late. The lateness of answers is counted,
    because an engine that is too slow would otherwise look like a slow disk.
    """

    def __init__(
        self, hardware: Hardware, lock: threading.Lock, clock: Callable[[], int], slow_motion: float = 1.0
    ) -> None:
        self.hardware = hardware
        self.slow_motion = slow_motion
        """Real seconds per simulated second. All counters are in simulated time."""
        self.running = False
        self.served = 0
        self.late_ns = 0
        """Sum over the requests: from the simulated completion to the delivery, without the compensated part."""
        self.service_ns = 0
        """Sum over the requests: from the arrival to the simulated completion."""
        self._clock = clock
        self._path_ns = int(_PATH_NS / slow_motion)
        self._most_early_ns = _MOST_EARLY_NS / slow_motion
        self._changed = threading.Condition(lock)
        self._wakes_at: int | None = None
        self._early_ns = 0.0
        """The learnt duration of a delivery: deliveries begin earlier by it."""
        self._waiting: dict[int, Ticket] = {}
        self._thread: threading.Thread | None = None

    @property
    def now(self) -> int:
        """The simulated time."""
        return int(self._clock() / self.slow_motion)

    def start(self) -> None:
        """Begin to simulate service times, on disks that are idle and whose caches are empty."""
        self.hardware.reset(self.now)
        self.running = True
        if self._thread is None:
            self._thread = threading.Thread(target=self._keep, name="timekeeper", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Answer waiting requests at once, and all later ones."""
        self.running = False
        self.hardware.reset(self.now)
        waiting, self._waiting = self._waiting, {}
        for ticket in waiting.values():
            ticket.served.release()

    def submit(self, member: int, op: Op, span: tuple[int, int], *, fua: bool = False) -> Ticket:
        """Submit a request (offset, length) to its disk; the ticket's lock is released once the request is served."""
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
        """Count a request whose thread continues."""
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

    def _keep(self) -> None:
        # By default the kernel may end a wait 50 us late (prctl(2), PR_SET_TIMERSLACK).
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
