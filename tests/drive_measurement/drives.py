"""Drives for the tests of measurements: the shipped profiles, and random ones within physical bounds."""

import random

from raidproof.core.units import KIB, MIB
from raidproof.disk.profile import DriveCache, Flash, Profile, Rotational, load_profile, profile_names
from raidproof.drive_measurement.check import HELD_BACK, probes
from raidproof.drive_measurement.measurement import measure
from raidproof.drive_measurement.sample import Drive, Facts, Samples
from raidproof.drive_measurement.simulated_drive import SimulatedDrive

SHIPPED = [load_profile(name) for name in profile_names() if load_profile(name).timed]


def drawn(seed: int) -> Profile:
    """Return a random drive: rotating if the seed is odd."""
    chance = random.Random(seed)

    def between(low: float, high: float) -> float:
        return low * float((high / low) ** chance.random())

    capacity = int(between(4e9, 2e13)) // 4096 * 4096
    if seed % 2:
        shortest, rim = between(0.2, 2.5), between(10, 290)
        average = max(shortest * 1.5, chance.uniform(3, 13))
        return Profile(
            f"rotating {seed}",
            "drawn",
            capacity,
            chance.choice([1, 4, 8, 16, 32, 64]),
            between(50, 600),
            max(rim * 1.2, between(20, 1200)),
            DriveCache(MIB, write_back=True, read_ahead=int(between(128 * KIB, 8 * MIB)) // 4096 * 4096),
            Rotational(
                rpm=chance.choice([5400, 5900, 7200, 10_000, 10_500, 15_000]),
                track_to_track_ms=shortest,
                average_seek_ms=average,
                full_stroke_ms=average * chance.uniform(1.7, 2.3),
                write_seek_extra_ms=0.5,
                head_switch_ms=chance.uniform(0.2, 1.5),
                media_rate_rim_mb_s=rim,
                media_rate_hub_mb_s=rim * chance.uniform(0.4, 0.75),
            ),
        )
    return Profile(
        f"flash {seed}",
        "drawn",
        capacity,
        32,
        between(4, 40),
        between(300, 7000),
        DriveCache(64 * MIB, write_back=True, read_ahead=chance.choice([0, MIB, MIB])),
        flash=Flash(
            channels=chance.randint(4, 160),
            page=chance.choice([4, 8, 16, 32]) * KIB,
            read_us=between(30, 150),
            program_us=400,
            erase_us=4000,
            erase_block=8 * MIB,
        ),
    )


DRIVES = [*SHIPPED, *map(drawn, range(10))]


def facts(profile: Profile) -> Facts:
    return Facts(
        device=profile.name, size=profile.capacity, rotational=profile.rotational is not None, largest=4 * MIB
    )


def measured(profile: Profile, drive: Drive | None = None) -> Samples:
    """Return the samples of a measurement with twenty workloads that the fit does not use."""
    samples: Samples = {}
    drive = drive or SimulatedDrive(profile)
    assert measure(drive, facts(profile), samples)
    for probe in probes(facts(profile), HELD_BACK):
        if probe.name not in samples:
            samples[probe.name] = drive(probe)
    return samples
