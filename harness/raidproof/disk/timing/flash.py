"""The timing of a solid-state drive: many channels behind a cache."""

from collections import deque

from raidproof.disk.profile import Profile
from raidproof.disk.timing.request import Calendar, DiskModel, Request


class FlashDisk(DiskModel):
    """One drive. A read goes to the channel that holds its page; writes go to the channels in turn, as a log."""

    def __init__(self, profile: Profile, calendar: Calendar) -> None:
        flash = profile.flash
        assert flash is not None  # noqa: S101  the caller's choice of class
        super().__init__(profile, calendar)
        self._page = flash.page
        self._read_ns = round(flash.read_us * 1e3)
        # Each program operation includes its share of the erasure that made room for it.
        self._program_ns = round((flash.program_us + flash.erase_us * flash.page / flash.erase_block) * 1e3)
        self._flush_ns = round(flash.flush_us * 1e3)
        self._channels = [0] * flash.channels
        self._turn = 0
        """The channel of the next write."""
        self._dirty = 0
        self._for_room: deque[Request] = deque()
        self._programmed_ns = 0
        """When all accepted writes are on flash."""
        self._stream_end = -1
        """The end of the last read: the drive has read ahead from there."""

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
        elif self._for_room or (self._dirty and self._dirty + request.length > self._cache.size):
            self._for_room.append(request)
        else:
            self._accept(request, now)

    def _accept(self, request: Request, now: int) -> None:
        length = request.length
        self._dirty += length
        self._calendar.at(self._program(length, now), lambda at: self._programmed(length, at))
        self._answer(request, now)

    def _programmed(self, length: int, now: int) -> None:
        self._dirty -= length
        while self._for_room and (not self._dirty or self._dirty + self._for_room[0].length <= self._cache.size):
            self._accept(self._for_room.popleft(), now)

    def _program(self, length: int, now: int) -> int:
        """Program bytes from ``now`` on; return when they are on flash."""
        done, left = now, length
        while left > 0:
            piece = min(left, self._page)
            left -= piece
            done = max(done, self._occupy(self._turn, self._program_ns * piece // self._page, now))
            self._turn = (self._turn + 1) % len(self._channels)
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
