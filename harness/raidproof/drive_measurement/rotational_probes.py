"""The probes of a rotating drive."""

import random
from collections.abc import Iterator

from raidproof.core.units import KIB, MIB
from raidproof.drive_measurement import rotational_fit as fit
from raidproof.drive_measurement.sample import Facts, Probe, Read, Samples

SHORT, LONG = 4 * KIB, 64 * KIB
ZONES = 16
"""Number of places at which the sequential rate is measured."""
DISTANCES = 32
"""Number of distances over which seeks are measured."""
SEEKS = 16
"""Number of seeks of each distance."""
DEPTHS = (2, 8, 32, 128)
REPEATED = (0, 5, 10, 15)
"""Zones that are measured a second time at the end, to find changes during the measurement."""
_ZONE_BYTES = 8 * MIB
_ZONE_S = 0.3
"""Duration of the sequential reads at one place, after the first measurement of the rate."""
_LAPS = 6
"""Number of times that the revolution probe reads each of its places."""
_PLACES = 24
"""Number of places of the revolution probe: more than a drive keeps segments in its read cache."""
_GROUP = 6
"""Number of adjacent places whose order changes from lap to lap."""
_AHEAD = (32 * KIB, 32 * MIB)
"""Smallest and greatest read-ahead that is looked for."""
_AHEAD_STEPS = 4
"""Bisections of the size of the read-ahead, after the power of two is known."""
_VOTES = 5


def probes(facts: Facts, samples: Samples) -> Iterator[Probe]:
    """Yield the probes of a rotating drive; each may depend on the samples of the earlier ones.

    Raises:
        RequestError: repeated reads of the same places show no revolutions.
    """
    places = _Places(facts)
    yield places.rereads()
    yield places.revolutions()
    fit.turn_us(samples)  # refuse a drive without revolutions before the long probes
    yield places.zone(0, _ZONE_BYTES)
    for zone in range(1, ZONES):
        yield places.zone(zone, places.zone_bytes(samples))
    yield places.tracks(samples)
    yield places.seeks()
    yield places.random_reads("random", 1, 300)
    yield from places.read_ahead(samples)
    for depth in DEPTHS:
        yield places.random_reads(f"depth {depth}", depth, 200 + 2 * depth)
    for zone in REPEATED:
        yield places.zone(zone, places.zone_bytes(samples), again=True)


class _Places:
    """Draws the places of the reads on one drive."""

    def __init__(self, facts: Facts) -> None:
        self._size = facts.size // SHORT * SHORT
        self._align = max(SHORT, facts.sector)

    def _chance(self, name: str) -> random.Random:
        return random.Random(f"drive probe {name}")  # noqa: S311  no secret

    def _place(self, chance: random.Random, length: int = SHORT, within: tuple[float, float] = (0.0, 1.0)) -> int:
        low, high = (int((self._size - length) * part) // self._align for part in within)
        return chance.randint(low, high) * self._align

    def rereads(self) -> Probe:
        """Read places twice, in two sizes: the second read comes from the read cache."""
        chance, reads = self._chance("rereads"), list[Read]()
        for number in range(48):
            length = LONG if number % 2 else SHORT
            read = Read(self._place(chance, length), length)
            reads += [read, read]
        return Probe(name="rereads", reads=tuple(reads), separate=True)

    def revolutions(self) -> Probe:
        """Read the same places repeatedly: a place passes the heads once in each revolution."""
        chance = self._chance("revolutions")
        groups = [[self._place(chance) for _ in range(_GROUP)] for _ in range(_PLACES // _GROUP)]
        reads = []
        for _ in range(_LAPS):
            for group in groups:
                # Another order in each lap: otherwise each lap would take the same time, of unknown revolutions.
                chance.shuffle(group)
                reads += [Read(place, SHORT) for place in group]
        return Probe(name="revolutions", reads=tuple(reads), separate=True)

    def zone_bytes(self, samples: Samples) -> int:
        """Return the number of bytes to read at each place, by the rate at the first one."""
        first = samples["zone 0"]
        return max(4 * MIB, int(first.probe.bytes / first.duration_s * _ZONE_S))

    def zone(self, zone: int, length: int, *, again: bool = False) -> Probe:
        """Read sequentially in the middle of a part of the drive."""
        block = 128 * KIB
        part = self._size / ZONES
        count = max(8, min(length, int(part * 0.9)) // block)
        # A second measurement begins elsewhere, so that no cache has its data.
        start = int(part * zone + (part - count * block) * (0.9 if again else 0.5)) // self._align * self._align
        name = f"zone-again {zone}" if again else f"zone {zone}"
        return Probe(name=name, depth=2, reads=tuple(Read(start + number * block, block) for number in range(count)))

    def tracks(self, samples: Samples) -> Probe:
        """Read small blocks sequentially: the times show the head switch at the end of each track."""
        rate = samples["zone 0"].sequential_mb_s
        overhead_us, _ = fit.command_times(samples)
        block = SHORT
        while block < 128 * KIB and block / rate < max(2 * overhead_us, 100.0):
            block *= 2
        # 24 revolutions of a fast drive, or 8 of a slow one.
        count = max(64, min(int(rate * 0.1e6), self._size // 4) // block)
        start = self._size // 64 // self._align * self._align
        return Probe(name="tracks", reads=tuple(Read(start + number * block, block) for number in range(count)))

    def seeks(self) -> Probe:
        """Read pairs of places, the second one before the first one, over distances from a few tracks to all."""
        chance, reads = self._chance("seeks"), list[Read]()
        shortest = min(16 * MIB, self._size // 256)
        pairs = [number for number in range(DISTANCES) for _ in range(SEEKS)]
        chance.shuffle(pairs)
        for number in pairs:
            around = shortest * (self._size * 0.999 / shortest) ** (number / (DISTANCES - 1))
            distance = min(int(around * chance.uniform(0.8, 1.25)), self._size - 2 * self._align)
            low = chance.randrange(max(1, (self._size - distance) // self._align)) * self._align
            reads += [Read(low + distance // self._align * self._align, SHORT), Read(low, SHORT)]
        last = self._size - SHORT
        return Probe(name="seeks", reads=tuple(Read(min(read.offset, last), SHORT) for read in reads), separate=True)

    def random_reads(self, name: str, depth: int, count: int) -> Probe:
        """Read at random places of the whole drive."""
        chance = self._chance(name)
        reads = tuple(Read(self._place(chance), SHORT) for _ in range(count))
        return Probe(name=name, depth=depth, reads=reads, separate=depth == 1)

    def read_ahead(self, samples: Samples) -> Iterator[Probe]:
        """Look for the greatest distance after a read from which the drive has read ahead; see `_ahead`."""
        low, high = 0, _AHEAD[0]
        while high <= min(_AHEAD[1], self._size // 16):
            yield self._ahead(high, samples)
            if not fit.read_ahead_reaches(samples, high):
                break
            low, high = high, high * 2
        for _ in range(_AHEAD_STEPS if low else 0):
            between = (low + high) // 2 // self._align * self._align
            yield self._ahead(between, samples)
            low, high = (between, high) if fit.read_ahead_reaches(samples, between) else (low, between)

    def _ahead(self, distance: int, samples: Samples) -> Probe:
        """Read at a place, wait until the drive can have read ``distance`` bytes, and read at their end."""
        slowest = min(sample.sequential_mb_s for name, sample in samples.items() if name.startswith("zone "))
        pause_us = int(distance / slowest * 1.3 + 30e3)
        chance, reads = self._chance(f"ahead {distance}"), list[Read]()
        for _ in range(_VOTES):
            start = self._place(chance, distance + 2 * SHORT)
            reads += [Read(start, SHORT), Read(start + distance, SHORT, pause_us)]
        return Probe(name=f"ahead {distance}", reads=tuple(reads), separate=True)
