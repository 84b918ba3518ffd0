"""The fit of a rotating drive: from samples to the parameters of a profile. All functions are pure."""

from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from math import log
from statistics import median

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares, minimize
from scipy.special import ndtr

from raidproof.core.errors import RequestError
from raidproof.disk.profile import Profile, Rotational
from raidproof.disk.timing.rotational import FULL_WEIGHT, KNEE, SHORTEST_WEIGHT, Geometry, Placement, SeekCurve
from raidproof.drive_measurement.residual import Residual, of_changes, of_places
from raidproof.drive_measurement.sample import Facts, Sample, Samples, numbered
from raidproof.drive_measurement.simulated_drive import SimulatedDrive

Floats = NDArray[np.float64]
_SLOWEST_HZ, _FASTEST_HZ = 3600 / 60, 20_000 / 60
"""Revolutions per second between which the fit looks for the frequency."""
_COHERENT = 0.8
"""Fraction of the greatest coherence from which a frequency is the frequency of the revolutions."""
_RATE_NOISE = 0.01
"""Relative deviation of a rate from which its weight in the fit decreases."""
_STRANGE = 0.03
"""Share of seeks outside the model from which the fit names them."""
_LEAST_COHERENT = 0.35
"""Least coherence of periodic times. 120 random times have more than this with a probability of 10^-6."""
_OUTLIERS = 0.02
"""Fraction of seeks that the fit expects outside the model, which bounds their effect."""
_QUEUES = (1, 2, 4, 8, 16, 32, 64, 128)
_HIT = 0.5
"""A read that takes less than this fraction of a revolution is answered from the read cache."""


def turn_us(samples: Samples) -> float:
    """Return the duration of a revolution in microseconds.

    A place passes the heads at the same angle each time, so that the times between the ends of two reads of the same
    place are whole revolutions. The frequency at which these times are in phase is that of the revolutions.

    Raises:
        RequestError: the times are not periodic.
    """
    sample = samples["revolutions"]
    last: dict[int, int] = {}
    between = []
    for read, begin, end in zip(sample.probe.reads, sample.begun_ns, sample.ended_ns, strict=True):
        if read.offset in last and end - begin > 1e6:
            between.append((end - last[read.offset]) / 1e9)
        last[read.offset] = end
    if len(between) < len(sample.probe.reads) // 4:
        raise RequestError(
            "the duration of a revolution cannot be measured: repeated reads of a place do not reach the platters",
            remedy="the device is no bare rotating drive: measure the drive itself, or give --flash",
        )
    gaps = np.asarray(between)
    # Between two frequencies, the phase of the longest time changes by an eighth of a period.
    grid = np.arange(_SLOWEST_HZ, _FASTEST_HZ, 1 / gaps.max() / 8)
    coherence = np.abs(np.exp(2j * np.pi * np.outer(grid, gaps)).mean(axis=1))
    if coherence.max() < _LEAST_COHERENT:
        raise RequestError(
            "the duration of a revolution cannot be measured: repeated reads of a place are not periodic",
            remedy="another process reads the drive, or the device is no bare rotating drive",
        )
    # Multiples of the frequency are in phase too; the lowest one is that of the revolutions.
    start = int(np.argmax(coherence > _COHERENT * coherence.max()))
    best = start + int(np.argmax(coherence[start : start + 16]))

    def incoherence(hertz: Floats) -> float:
        return -float(np.abs(np.exp(2j * np.pi * hertz[0] * gaps).mean()))

    found = minimize(incoherence, [grid[best]], method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-9})
    return 1e6 / float(found.x[0])


def command_times(samples: Samples) -> tuple[float, float]:
    """Return the overhead of a command in microseconds, and the rate of the interface in 10^6 bytes per second.

    Reads that the drive answers from its cache take the overhead and the transfer. Without such reads the result is
    the overhead 0 and an infinite rate.
    """
    sample = samples["rereads"]
    by_length: dict[int, list[float]] = {}
    limit_us = _HIT / _FASTEST_HZ * 1e6 + 2e3
    for read, latency in list(zip(sample.probe.reads, sample.latencies_us, strict=True))[1::2]:
        by_length.setdefault(read.length, []).append(latency)
    (short, first), (long, second) = sorted(by_length.items())
    if not median(first) < limit_us or not median(second) > median(first):
        return 0.0, float("inf")
    rate = (long - short) / (median(second) - median(first))
    return max(0.0, median(first) - short / rate), rate


def read_ahead_reaches(samples: Samples, distance: int) -> bool:
    """Return whether the drive had read a distance ahead, in the majority of the attempts."""
    overhead, interface = command_times(samples)
    short = samples[f"ahead {distance}"].probe.reads[1].length
    # A read from the platters is rarely as short as this: it needs a seek, and on average half a revolution.
    limit = 1.5 * (overhead + short / interface) + 50 if overhead else 0.0
    hits = [latency < limit for latency in samples[f"ahead {distance}"].latencies_us[1::2]]
    return sum(hits) > len(hits) / 2


def head_switch_us(sample: Sample) -> float:
    """Return the time between two tracks in a sequential read: the excess of the reads that are regularly longer."""
    times = np.diff(np.asarray(sample.ended_ns, dtype=float)) / 1e3
    usual = float(np.median(times))
    spread = float(np.median(np.abs(times - usual)))
    excess = times - usual
    longer = excess[excess > max(8 * spread, 0.15 * usual, 20.0)]
    return float(np.median(longer)) if len(longer) >= 3 else 0.0


@dataclass(frozen=True)
class _Seek:
    """One read that needed a seek."""

    tracks: float
    """Distance as a fraction of all tracks."""
    rest_us: float
    """Latency without overhead and transfer: the seek and the wait for the sector."""


def fitted(facts: Facts, samples: Samples, assumed: Profile) -> tuple[Profile, list[Residual]]:
    """Return the profile of a drive, and what the fit does not explain.

    ``assumed``: profile for the parameters that reads do not show.

    Raises:
        RequestError: samples are missing, or are not those of a rotating drive.
    """
    mechanics = assumed.rotational
    assert mechanics is not None  # noqa: S101  the caller's choice
    turn = turn_us(samples)
    overhead, interface = command_times(samples)
    mechanics = replace(mechanics, rpm=60e6 / turn, zones=16)
    switch = head_switch_us(samples["tracks"]) / 1e3
    mechanics = replace(mechanics, head_switch_ms=max(switch, 0.01))
    profile = Profile(
        name="measured",
        source="",
        capacity=facts.size,
        queue_depth=1,
        command_overhead_us=overhead,
        interface_mb_s=min(interface, 100_000.0),
        cache=replace(assumed.cache, read_ahead=_read_ahead(samples)),
        rotational=mechanics,
    )
    profile, unexplained = _with_rates(profile, samples)
    if interface == float("inf"):
        unexplained.append((9.0, "no read came from the read cache: overhead and interface rate are unknown"))
    profile, about_seeks = _with_seeks(profile, samples)
    changes = of_changes(samples, "zone", "zone-again")
    return _with_queue(profile, samples), [*unexplained, *about_seeks, *changes]


def _read_ahead(samples: Samples) -> int:
    return max(
        (distance for distance in numbered(samples, "ahead") if read_ahead_reaches(samples, distance)), default=0
    )


def _mechanics(profile: Profile) -> Rotational:
    assert profile.rotational is not None  # noqa: S101  a rotating drive
    return profile.rotational


def _with_rates(profile: Profile, samples: Samples) -> tuple[Profile, list[Residual]]:
    """Fit the rates of the outermost and the innermost zone to the sequential reads at all places."""
    zones = numbered(samples, "zone")
    measured = np.asarray([sample.sequential_mb_s for sample in zones.values()])
    spans = [(sample.probe.reads[1].offset, sample.probe.reads[-1]) for sample in zones.values()]

    def with_rates(rates: Floats) -> Profile:
        rim, hub = max(rates[0], rates[1], 0.01), max(0.01, min(rates[0], rates[1]))
        mechanics = replace(_mechanics(profile), media_rate_rim_mb_s=float(rim), media_rate_hub_mb_s=float(hub))
        return replace(profile, rotational=mechanics)

    def modelled(rates: Floats) -> Floats:
        geometry = Geometry(with_rates(rates), profile.capacity, Placement.SPREAD)
        passed = [
            (last.offset + last.length - first)
            / (geometry.stream_ns(last.offset + last.length) - geometry.stream_ns(first))
            * 1e3
            for first, last in spans
        ]
        return np.minimum(np.asarray(passed, dtype=np.float64), profile.interface_mb_s)

    def residuals(rates: Floats) -> Floats:
        logarithms: Floats = np.log(modelled(rates) / measured) / _RATE_NOISE
        return logarithms

    start = np.percentile(measured, [95, 5])
    found = least_squares(residuals, start, loss="soft_l1", diff_step=[2e-3, 2e-3], x_scale=start).x
    rates = {
        (zone + 0.5) / len(zones): (float(rate), float(model))
        for zone, rate, model in zip(zones, measured, modelled(found), strict=True)
    }
    return with_rates(found), list(of_places(rates))


def _seeks(profile: Profile, samples: Samples) -> list[_Seek]:
    geometry = Geometry(profile, profile.capacity, Placement.SPREAD)
    found = []
    for name in ("seeks", "random"):
        sample = samples[name]
        reads = sample.probe.reads
        for number in range(1, len(reads)):
            here, target = (
                geometry.stream_ns(place)
                for place in (reads[number - 1].offset + reads[number - 1].length, reads[number].offset)
            )
            tracks = abs(target // geometry.step_ns - here // geometry.step_ns)
            if tracks > 1:
                transfer = geometry.stream_ns(reads[number].offset + reads[number].length) - target
                rest = sample.latencies_us[number] - profile.command_overhead_us - transfer / 1e3
                found.append(_Seek(tracks / geometry.tracks, rest))
    return found


def _with_seeks(profile: Profile, samples: Samples) -> tuple[Profile, list[Residual]]:
    """Fit the seek curve.

    A seek is followed by a wait between none and a revolution, all equally probable. The latencies of one distance
    therefore fill an interval with the length of a revolution, and the seek time is its begin. The fit maximises the
    likelihood of this distribution with blurred edges, and a constant share of outliers bounds the weight of each.
    """
    mechanics = _mechanics(profile)
    turn = mechanics.turn_ms * 1e3
    seeks = _seeks(profile, samples)
    rest = np.asarray([one.rest_us for one in seeks])
    distance = np.asarray([one.tracks for one in seeks])
    root = np.sqrt(np.minimum(distance / KNEE, 1))
    beyond = np.maximum(distance - KNEE, 0) / (1 - KNEE)
    # The seek time is a sum of the times of the shortest seek, of a seek to the knee, and of a full stroke.
    basis = np.stack([1 - root, root - beyond, beyond], axis=1)

    def from_mean(times: Floats) -> Floats:
        deviations: Floats = (basis @ times + turn / 2 - rest) / turn
        return deviations

    def improbable(times: Floats, blur: float) -> float:
        wait = rest - basis @ times
        inside = (ndtr(wait / blur) - ndtr((wait - turn) / blur)) / turn
        decreasing = sum(max(0.0, float(one - two)) for one, two in pairwise([0.0, *times]))
        return decreasing - float(np.log((1 - _OUTLIERS) * inside + _OUTLIERS / (20 * turn)).sum())

    times = least_squares(from_mean, [500.0, 5e3, 1e4], loss="soft_l1").x
    for blur in (turn / 10, turn / 40, turn / 100):
        times = minimize(
            partial(improbable, blur=blur),
            times,
            method="Nelder-Mead",
            options={"maxiter": 2000, "xatol": 1.0, "fatol": 1e-4},
        ).x
    shortest, knee, full = (float(one) / 1e3 for one in times)
    average = SHORTEST_WEIGHT * shortest + (1 - SHORTEST_WEIGHT - FULL_WEIGHT) * knee + FULL_WEIGHT * full
    shortest = max(0.01, min(shortest, average))
    mechanics = replace(
        mechanics, track_to_track_ms=shortest, average_seek_ms=average, full_stroke_ms=max(full, average)
    )
    curve = SeekCurve(mechanics)
    waits = [one.rest_us - curve.ns(one.tracks) / 1e3 for one in seeks]
    strange = sum(not -0.1 * turn < wait < 1.1 * turn for wait in waits) / len(waits)
    text = f"{strange:.0%} of the random reads took less than the seek, or more than seek and revolution"
    return replace(profile, rotational=mechanics), [(4 + strange, text)] if strange > _STRANGE else []


def _with_queue(profile: Profile, samples: Samples) -> Profile:
    """Choose the depth of the drive's queue with which the simulation is nearest to the random reads in queues."""
    measured = numbered(samples, "depth")

    def distance(queue: int) -> float:
        drive = SimulatedDrive(replace(profile, queue_depth=queue))
        pairs = [(drive(sample.probe).reads_per_s, sample.reads_per_s) for sample in measured.values()]
        return sum(min(1.0, abs(log(simulated / real))) for simulated, real in pairs)

    return replace(profile, queue_depth=min(_QUEUES, key=distance))
