"""The state that all member disks of a lab share: lock, clock, power, simulated time and write log."""

import threading
from collections.abc import Callable

from raidproof.core.waiting import now_ns
from raidproof.disk.messages import Power
from raidproof.disk.sparse_image import Buffer
from raidproof.disk.timekeeper import Timekeeper
from raidproof.disk.writelog import ALL_MEMBERS, Kind, LogWriter


class Shelf:
    """The shared state; a connection to a disk needs no more of the engine than this."""

    def __init__(self, clock: Callable[[], int] = now_ns) -> None:
        self.clock = clock
        self.lock = threading.Lock()
        self.log: LogWriter | None = None
        self.epoch = 0
        """Number of power cuts so far; a connection belongs to the epoch in which it was made."""
        self.serving: int | None = 0
        """The epoch that is served; ``None`` without power."""
        self.power = Power.ON
        self.waiting = 0
        """Number of requests that wait for the end of a cut."""
        self.timekeeper: Timekeeper | None = None
        """Simulates service times; None where no disk has a timing profile."""
        self._released = threading.Condition(self.lock)
        self._log_error: str | None = None

    def note(self, kind: Kind, member: int = ALL_MEMBERS, *, data: bytes = b"", at_ns: int | None = None) -> int:
        """Log an event that is no request, under the lock; return its instant."""
        at = self.clock() if at_ns is None else at_ns
        self.record(kind, 0, member, (0, 0), (at, at), data=data)
        return at

    def record(
        self,
        kind: Kind,
        flags: int,
        member: int,
        span: tuple[int, int],
        times: tuple[int, int],
        *,
        data: Buffer = b"",
    ) -> None:
        """Append a record to the log, if one is open, under the lock; on a write error give up the log only.

        ``span``: offset, length; ``times``: issued, completed.
        """
        log = self.log
        if log is None:
            return
        try:
            if kind is Kind.WRITE:
                log.write(flags, member, span[0], times, data)
            else:
                log.note(kind, flags, member, span, times, data=bytes(data))
        except OSError as error:
            self._log_error = f"writing {log.path} failed: {error.strerror}"
            self.log = None
            log.abandon()

    def wait_for_the_cut(self, epoch: int) -> None:
        """Hold a request, under the lock, while its guest may be alive to see an error."""
        self.waiting += 1
        while self.power is Power.FROZEN and epoch == self.epoch:
            self._released.wait()
        self.waiting -= 1
