"""A user that always has so many requests under way, on simulated time."""

from collections.abc import Iterable

from raidproof.disk.timing.hardware import Hardware
from raidproof.disk.timing.request import Request


def drive(hardware: Hardware, requests: Iterable[Request], depth: int, until_ns: int | None = None) -> list[Request]:
    """Give requests to the hardware, ``depth`` at a time from time 0 on, and return them as they were answered.

    Ends when all are answered, or before the first thing that happens after ``until_ns``; in any case when nothing
    happens any more, with fewer answers than requests if the hardware forgot some.
    """
    source, now, under_way = iter(requests), 0, 0
    answered: list[Request] = []
    while True:
        while under_way < depth and (request := next(source, None)) is not None:
            hardware.submit(request, now)
            under_way += 1
        upcoming = hardware.next_ns
        if not under_way or upcoming is None or (until_ns is not None and upcoming > until_ns):
            return answered
        now = upcoming
        done = hardware.advance(now)
        under_way -= len(done)
        answered += done
