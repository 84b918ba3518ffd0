"""What the profile of a drive does not explain, as sentences, the gravest one first."""

from collections.abc import Iterator
from statistics import median

from raidproof.drive_measurement.sample import Sample, Samples, numbered, rounds_of

NOTABLE = 0.15
"""Deviation from which it is named."""
_BUSY = 0.1
"""Share of the time from which waits for a processor are named."""
_ALONE = 0.8
"""Share of the time from which the processor time of the measuring program is named."""
Residual = tuple[float, str]
"""The size of a deviation, to sort by, and the sentence that names it."""


def of_processor(samples: Samples) -> Iterator[Residual]:
    """Yield how much the processors of the measuring machine affect the samples."""
    waits = [_share(sample, sample.waited_ns) / sample.probe.depth for sample in samples.values()]
    if waits and (wait := median(waits)) > _BUSY:
        yield (
            10 + wait,
            f"the measuring program waited for a processor during {wait:.0%} of the reads: the machine is busy, and "
            "the latencies include these waits",
        )
    alone = [name for name, sample in samples.items() if _share(sample, sample.processor_ns) > _ALONE]
    if alone:
        yield (
            5.0,
            f"a processor was fully used by the measuring program in {len(alone)} probes, for example {alone[0]!r}: "
            "the drive is at least as fast as measured",
        )


def of_changes(samples: Samples, first: str, last: str) -> Iterator[Residual]:
    """Yield the changes between two sets of probes of the same kind at the begin and at the end of a measurement."""
    before, after = numbered(samples, first), numbered(samples, last)
    both = [zone for zone in after if zone in before]
    changes = {zone: after[zone].sequential_mb_s / before[zone].sequential_mb_s - 1 for zone in both}
    changed = {zone: by for zone, by in changes.items() if abs(by) > NOTABLE}
    if changed:
        zone, by = max(changed.items(), key=lambda item: abs(item[1]))
        yield (
            3 + abs(by),
            f"the rate of sequential reads changed during the measurement at {len(changed)} of {len(changes)} places, "
            f"at place {zone} by {by:+.0%}: the drive changed its speed, or another process used it",
        )


def of_rounds(samples: Samples) -> Iterator[Residual]:
    """Yield how much the rounds of the probes differ."""
    spreads = {
        name: max(one.reads_per_s for one in found) / min(one.reads_per_s for one in found) - 1
        for name, found in rounds_of(samples).items()
        if len(found) > 1
    }
    differing = {name: by for name, by in spreads.items() if by > NOTABLE}
    if len(differing) > len(spreads) / 4:
        by = median(differing.values())
        yield (
            4 + by,
            f"{len(differing)} of {len(spreads)} probes gave another speed in each round, by {by:.0%} "
            "(median): the drive is not constant, or another process used it",
        )


def of_places(rates: dict[float, tuple[float, float]]) -> Iterator[Residual]:
    """Yield the places whose sequential rate is not that of the profile.

    ``rates``: measured and modelled rate in 10^6 bytes per second, by place as a fraction of the drive.
    """
    for place, (measured, modelled) in rates.items():
        by = modelled / measured - 1
        if abs(by) > NOTABLE:
            yield (
                abs(by),
                f"sequential reads at {place:.0%} of the drive: {measured:,.0f} MB/s, the profile has "
                f"{modelled:,.0f} MB/s",
            )


def sentences(found: list[Residual], most: int = 8) -> list[str]:
    """Return the sentences of the greatest deviations, and the number of the others."""
    texts = [text for _, text in sorted(found, reverse=True)]
    more = len(texts) - most
    return texts if more <= 0 else [*texts[:most], f"and {more} smaller deviations"]


def _share(sample: Sample, spent_ns: int) -> float:
    return spent_ns / 1e9 / sample.duration_s
