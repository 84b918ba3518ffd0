"""The timing of a solid-state drive: a cache and many flash channels."""

from collections import deque

from raidproof.disk.profile import Profile
from raidproof.disk.timing.request import Calendar, DiskModel, Request


class FlashDisk(DiskModel):
    """A simulated solid-state drive.

    A read uses the channels that hold its pages. Writes use the channels in turn, as in a log-structured drive.
    """

    def __init__(self, profile: Profile, calendar: Calendar) -> None:
        flash = profile.flash
        assert flash is not None  # noqa: S101  the caller's choice of class
        super().__init__(profile, calendar)
        self._page = flash.page
        self._read_ns = round(flash.read_us * 1e3)
        # The duration of a program operation includes the share of one page in the erasure of its block.
        self._program_ns = round((flash.program_us + flash.erase_us * flash.page / flash.erase_block) * 1e3)
        self._flush_ns = round(flash.flush_us * 1e3)
        self._channels = [0] * flash.channels
        self._next_channel = 0
        """Channel of the next write."""
        self._dirty_bytes = 0
        self._waiting_for_cache: deque[Request] = deque()
        self._programmed_ns = 0
        """Time at which all accepted writes are on flash."""
        self._stream_end = -1
        """Address at which the last read ended, and at which the read-ahead begins."""

    def _read(self, request: Request, now: int) -> None:
        fetched = now
        if request.offset != self._stream_end or not self._cache.read_ahead:
            first, last = request.offset // self._page, (request.offset + request.length - 1) // self._page
            for page in range(first, last + 1):
                fetched = max(fetched, self._occupy(page % len(self._channels), self._read_ns, now))
        self._stream_end = request.offset + request.length
        self._calendar.at(fetched, lambda at: self._answer(request, self._interface.pass_through(request.length, at)))

    def _take_write(self, request: Request, now: int) -> None:
        if request.fua or not self._cache.write_back:
            done = self._program(request.length, now)
            self._answer(request, now if self._cache.protected and request.fua else done)
        elif self._waiting_for_cache or (self._dirty_bytes and self._dirty_bytes + request.length > self._cache.size):
            self._waiting_for_cache.append(request)
        else:
            self._accept(request, now)

    def _accept(self, request: Request, now: int) -> None:
        length = request.length
        self._dirty_bytes += length
        self._calendar.at(self._program(length, now), lambda at: self._programmed(length, at))
        self._answer(request, now)

    def _programmed(self, length: int, now: int) -> None:
        self._dirty_bytes -= length
        while self._waiting_for_cache and (
            not self._dirty_bytes or self._dirty_bytes + self._waiting_for_cache[0].length <= self._cache.size
        ):
            self._accept(self._waiting_for_cache.popleft(), now)

    def _program(self, length: int, now: int) -> int:
        """Program ``length`` bytes from ``now`` on; return the time at which the bytes are on flash."""
        done, left = now, length
        while left > 0:
            piece = min(left, self._page)
            left -= piece
            done = max(done, self._occupy(self._next_channel, self._program_ns * piece // self._page, now))
            self._next_channel = (self._next_channel + 1) % len(self._channels)
        self._programmed_ns = max(self._programmed_ns, done)
        return done

    def _occupy(self, channel: int, duration_ns: int, now: int) -> int:
        begin = max(self._channels[channel], now)
        self._channels[channel] = end = begin + duration_ns
        self.usage.work(begin, end)
        return end

    def _flush(self, request: Request, now: int) -> None:
        kept = self._cache.protected or not self._cache.write_back
        self._answer(request, now if kept else max(now, self._programmed_ns) + self._flush_ns)
