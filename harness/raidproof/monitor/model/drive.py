"""What a single drive gives: time of a random request, rate of a sequential stream, time of a flush."""

from math import ceil, inf, sqrt

from raidproof.disk.profile import Flash, Profile, Rotational

RANDOM_SOURCE = (
    "random access = seek + half a turn + transfer + overhead (Ruemmler and Wilkes, IEEE Computer 27(3), 1994)"
)
_MEAN_DISTANCE = 1 / 3
"""Of the stroke, between two random tracks: what a data sheet's average seek is measured over."""


def turn_ms(mechanics: Rotational) -> float:
    """Return the time of one revolution."""
    return 60_000 / mechanics.rpm


def seek_ms(mechanics: Rotational, distance: float) -> float:
    """Return the time to move the heads over a share of the full stroke.

    It grows with the root of the distance up to the mean distance, then evenly up to the full stroke (Ruemmler and
    Wilkes 1994: acceleration, then coasting), through the three values that a data sheet gives.
    """
    near, mean, far = mechanics.track_to_track_ms, mechanics.average_seek_ms, mechanics.full_stroke_ms
    if distance <= _MEAN_DISTANCE:
        return near + (mean - near) * sqrt(distance / _MEAN_DISTANCE)
    return mean + (far - mean) * (distance - _MEAN_DISTANCE) / (1 - _MEAN_DISTANCE)


def elevator_distance(depth: float) -> float:
    """Return the mean way to the next of so many waiting requests, as a share of the stroke.

    SCAN serves them in the order of their tracks, and N random ones part the stroke into N + 1 (Denning, "Effects of
    scheduling on file memory operations", AFIPS 1967). Up to two this is the mean distance: nothing is gained. What
    a drive gains by choosing also by angle (Worthington, Ganger, Patt, SIGMETRICS 1994) is left out.
    """
    return min(_MEAN_DISTANCE, 1 / (depth + 1))


def media_rate(mechanics: Rotational, begin: float, end: float) -> float:
    """Return the mean MB/s between two places, as shares of the drive from its rim: the rate falls evenly."""
    fall = mechanics.media_rate_rim_mb_s - mechanics.media_rate_hub_mb_s
    return mechanics.media_rate_rim_mb_s - fall * (begin + end) / 2


def random_ms(profile: Profile, size: int, *, write: bool, depth: float = 1, span: float = 1.0) -> float:
    """Return the milliseconds that a drive needs for one random request, with ``depth`` waiting in it.

    ``span`` is the share of the drive over which the requests lie. A drive sorts no more than its queue holds.
    """
    waiting = max(1.0, min(depth, profile.queue_depth))
    fixed = profile.command_overhead_us / 1e3
    if profile.rotational is not None:
        mechanics = profile.rotational
        seek = seek_ms(mechanics, span * elevator_distance(waiting)) + (mechanics.write_seek_extra_ms if write else 0)
        transfer = size / 1e3 / min(media_rate(mechanics, 0, span), profile.interface_mb_s or inf)
        return seek + turn_ms(mechanics) / 2 + transfer + fixed
    bus = size / 1e3 / profile.interface_mb_s if profile.interface_mb_s else 0.0
    if profile.flash is not None:
        flash = profile.flash
        # Latency of one request, overlapped with the others; the channels and the bus are shared by all.
        pages = ceil(size / flash.page)
        page_ms = page_us(flash, write=write) / 1e3
        latency = ceil(pages / flash.channels) * page_ms + bus + fixed
        return max(latency / waiting, pages / flash.channels * page_ms, bus)
    return bus + fixed


def page_us(flash: Flash, *, write: bool) -> float:
    """Return the microseconds of one page: a write also bears its share of the erasure of its block."""
    if not write:
        return flash.read_us
    return flash.program_us + flash.erase_us * flash.page / flash.erase_block


def sequential_mb_s(profile: Profile, size: int, *, write: bool, stream: bool, begin: float, end: float) -> float:
    """Return the MB/s of requests of ``size`` bytes in the order of their addresses.

    ``stream``: the next request is there before the last one is done (read-ahead, a write-back cache, a queue), so
    the media set the pace. Otherwise the next sector has passed when a write asks for it, and each request costs a
    turn; a read still finds the drive's own read-ahead.
    """
    fixed_ms = profile.command_overhead_us / 1e3
    bus = profile.interface_mb_s or inf
    if profile.rotational is not None:
        media = media_rate(profile.rotational, begin, end)
        if stream or (not write and profile.cache.read_ahead > 0):
            return min(media, size / 1e3 / (fixed_ms + size / 1e3 / bus))
        turns = 0.0 if size == 0 else turn_ms(profile.rotational)
        return size / 1e3 / (max(fixed_ms, turns) + size / 1e3 / min(media, bus))
    if profile.flash is not None:
        media = profile.flash.channels * profile.flash.page / page_us(profile.flash, write=write)
        if stream:
            return min(media, bus)
        return min(media, size / 1e3 / random_ms(profile, size, write=write))
    if stream or not fixed_ms:
        return bus
    return size / 1e3 / (fixed_ms + size / 1e3 / bus)


def flush_ms(profile: Profile) -> float:
    """Return the time of a flush over and above the writes that it waits for."""
    if profile.cache.protected:
        return profile.command_overhead_us / 1e3
    flash = profile.flash.flush_us if profile.flash is not None and profile.flash.flush_us else 0.0
    return (flash + profile.command_overhead_us) / 1e3
