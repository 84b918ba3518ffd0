"""The fit of a solid-state drive: from samples to the parameters of a profile. All functions are pure."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import log

from raidproof.core.units import KIB, MIB
from raidproof.disk.profile import Profile
from raidproof.drive_measurement.residual import NOTABLE, Residual, of_places
from raidproof.drive_measurement.sample import Facts, Sample, Samples, base_name, numbered
from raidproof.drive_measurement.simulated_drive import SimulatedDrive

PAGES = tuple(size * KIB for size in (4, 8, 16, 32, 64))
_CHANNELS = (1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 91, 128, 181, 256)
_FINE = (0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.15)
"""Factors of the number of channels that the second search tries."""
_READ_AHEAD = MIB
_AHEAD = 0.8
"""A drive reads ahead if a sequential read takes less than this fraction of a random one."""


def fitted(facts: Facts, samples: Samples, assumed: Profile) -> tuple[Profile, list[Residual]]:
    """Return the profile of a drive, and what the fit does not explain.

    ``assumed``: profile for the parameters that reads do not show. ``samples``: one of each probe.
    """
    flash = assumed.flash
    assert flash is not None  # noqa: S101  the caller's choice
    streams, random = _each_us(samples, "stream"), _each_us(samples, "random")
    shortest = min(random)
    first = random[shortest]
    ahead = streams[shortest] < _AHEAD * first
    rate = _interface_mb_s(streams if ahead else random, samples)
    # Without a read-ahead, the latency of a short read does not separate the command from the read of the page.
    overhead = max(0.0, streams[shortest] - shortest / rate) if ahead else 0.1 * first
    profile = Profile(
        name="measured",
        source="",
        capacity=facts.size,
        queue_depth=assumed.queue_depth,
        command_overhead_us=overhead,
        interface_mb_s=rate,
        cache=replace(assumed.cache, read_ahead=_READ_AHEAD if ahead else 0),
        flash=replace(flash, read_us=max(0.1, first - overhead - shortest / rate)),
    )
    profile = _with_channels(profile, samples)
    return profile, list(_unexplained(profile, samples))


def _each_us(samples: Samples, prefix: str) -> dict[int, float]:
    """Return the mean time between two reads of all probes of a kind, by size."""
    return {size: 1e6 / sample.reads_per_s for size, sample in numbered(samples, prefix).items()}


def _interface_mb_s(times_us: dict[int, float], samples: Samples) -> float:
    """Return the rate of the interface: the increase of the time with the size, or the greatest rate found."""
    sizes = sorted(size for size in times_us if size <= 128 * KIB)
    longer = times_us[sizes[-1]] - times_us[sizes[0]]
    slope = (sizes[-1] - sizes[0]) / longer if longer > 0 else 0.0
    return max(slope, *(sample.probe.bytes / sample.duration_s / 1e6 for sample in samples.values()))


def _loads(samples: Samples, kinds: Iterable[str]) -> list[Sample]:
    return [sample for kind in kinds for sample in numbered(samples, kind).values()]


def _distance(profile: Profile, loads: list[Sample]) -> float:
    """Return the sum of the deviations of the simulation from samples; one sample adds at most 1."""
    drive = SimulatedDrive(profile)
    return sum(min(1.0, abs(log(drive(sample.probe).reads_per_s / sample.reads_per_s))) for sample in loads)


def _with_channels(profile: Profile, samples: Samples) -> Profile:
    """Choose the number of channels and the size of a page with which the simulation is nearest to the samples."""
    flash = profile.flash
    assert flash is not None  # noqa: S101  a solid-state drive
    short = _loads(samples, ["depth"])
    long = _loads(samples, ["wide", "random"])

    def made(channels: int, page: int) -> Profile:
        return replace(profile, flash=replace(flash, channels=channels, page=page))

    # Short reads use one page of any size.
    channels = min(_CHANNELS, key=lambda number: _distance(made(number, flash.page), short))
    page = min(PAGES, key=lambda size: _distance(made(channels, size), long))
    near = sorted(
        {max(1, round(channels * factor)) for factor in _FINE} | set(range(channels - 1, channels + 2)) - {0}
    )
    return min((made(number, page) for number in near), key=lambda one: _distance(one, short) + _distance(one, long))


def _unexplained(profile: Profile, samples: Samples) -> Iterator[Residual]:
    drive = SimulatedDrive(profile)
    for sample in _loads(samples, ["random", "depth", "wide", "stream"]):
        by = drive(sample.probe).reads_per_s / sample.reads_per_s - 1
        if abs(by) > NOTABLE:
            yield abs(by), f"the profile deviates by {by:+.0%} from the fitted reads {base_name(sample.probe)!r}"
    zones = numbered(samples, "zone")
    yield from of_places(
        {
            (zone + 0.5) / len(zones): (sample.sequential_mb_s, drive(sample.probe).sequential_mb_s)
            for zone, sample in zones.items()
        }
    )
