"""The probes of a solid-state drive."""

import random
from collections.abc import Iterator

from raidproof.core.units import KIB, MIB
from raidproof.drive_measurement.sample import Facts, Probe, Read, Samples, in_round

SHORT, LONG = 4 * KIB, 128 * KIB
SIZES = (4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB)
"""Sizes of the reads at random places."""
DEPTHS = (2, 8, 32, 128, 256)
"""Numbers of short reads in progress."""
WIDE = (2, 8, 32)
"""Numbers of reads of 64 KiB in progress."""
PLACES = 8
"""Number of places at which the sequential rate is measured."""
ROUNDS = 3
"""Number of times that each probe runs, at other places. The probes take milliseconds, so that a disturbance of a
moment would decide; the fit uses the median."""


def probes(facts: Facts, samples: Samples) -> Iterator[Probe]:
    """Yield the probes of a solid-state drive, round by round."""
    del samples  # all probes are known from the begin
    for number in range(ROUNDS):
        for probe in _round(facts, number):
            yield in_round(probe, number)


def _round(facts: Facts, number: int) -> Iterator[Probe]:
    shift = 0.05 * number
    yield _sequential(facts, f"stream {SHORT}", SHORT, 256, 0.3 + shift)
    yield _sequential(facts, f"stream {LONG}", LONG, 96, 0.6 + shift)
    for place in range(PLACES):
        yield _sequential(facts, f"zone {place}", LONG, 64, (place + 0.1 + 3 * shift) / PLACES, depth=4)
    for size in SIZES:
        if size <= facts.largest:
            yield _scattered(facts, f"random {size}", size, 1, 100 if size <= LONG else 40, number)
    for depth in DEPTHS:
        yield _scattered(facts, f"depth {depth}", SHORT, depth, 300 + 3 * depth, number)
    for depth in WIDE:
        yield _scattered(facts, f"wide {depth}", 64 * KIB, depth, 200, number)


def _sequential(facts: Facts, name: str, length: int, count: int, part: float, depth: int = 1) -> Probe:
    count = min(count, facts.size // 4 // length)
    start = int((facts.size - count * length) * part) // MIB * MIB
    return Probe(name=name, depth=depth, reads=tuple(Read(start + number * length, length) for number in range(count)))


def _scattered(facts: Facts, name: str, length: int, depth: int, count: int, number: int) -> Probe:
    chance = random.Random(f"drive probe {name} in round {number}")  # noqa: S311  no secret
    places = max(1, facts.size // length)
    return Probe(
        name=name, depth=depth, reads=tuple(Read(chance.randrange(places) * length, length) for _ in range(count))
    )
