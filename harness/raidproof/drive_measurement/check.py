"""The check of a measured profile: workloads that were not used for the fit, on the drive and in the simulation."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from pydantic import BaseModel, ConfigDict

from raidproof.core.units import KIB, MIB
from raidproof.disk.profile import Profile
from raidproof.drive_measurement.flash_probes import ROUNDS
from raidproof.drive_measurement.sample import Facts, Probe, Read, Sample, Samples, base_name, in_round
from raidproof.drive_measurement.simulated_drive import SimulatedDrive

PREFIX = "check: "
_BYTES = 32 * MIB
"""Greatest number of bytes that one workload reads."""


@dataclass(frozen=True)
class Workload:
    """One workload of the check."""

    name: str
    length: int
    """Size of a read in bytes."""
    depth: int
    count: int
    """Greatest number of reads."""
    within: tuple[float, float] = (0.0, 1.0)
    """Part of the drive that the workload reads."""
    streams: int = 0
    """Number of sequential streams that take turns; 0: random places."""


CHECKED = (
    Workload("random reads of 4 KiB in a tenth of the drive", 4 * KIB, 1, 160, (0.3, 0.4)),
    Workload("random reads of 8 KiB, 6 at a time", 8 * KIB, 6, 240),
    Workload("random reads of 8 KiB, 24 at a time", 8 * KIB, 24, 480),
    Workload("random reads of 16 KiB in the first half", 16 * KIB, 1, 160, (0.0, 0.5)),
    Workload("random reads of 32 KiB", 32 * KIB, 1, 160),
    Workload("random reads of 32 KiB, 12 at a time", 32 * KIB, 12, 240),
    Workload("random reads of 128 KiB in the last quarter", 128 * KIB, 1, 120, (0.75, 1.0)),
    Workload("random reads of 512 KiB, 3 at a time", 512 * KIB, 3, 60),
    Workload("sequential reads of 64 KiB from a quarter on", 64 * KIB, 1, 256, (0.22, 0.5), 1),
    Workload("sequential reads of 256 KiB near the end, 3 at a time", 256 * KIB, 3, 96, (0.91, 1.0), 1),
    Workload("2 sequential streams of 128 KiB", 128 * KIB, 1, 128, (0.05, 0.95), 2),
    Workload("5 sequential streams of 64 KiB, 5 at a time", 64 * KIB, 5, 240, (0.05, 0.95), 5),
)
"""The workloads that run after each measurement."""
HELD_BACK = (
    *CHECKED,
    Workload("random reads of 4 KiB in a hundredth of the drive", 4 * KIB, 1, 160, (0.6, 0.61)),
    Workload("random reads of 4 KiB, 48 at a time", 4 * KIB, 48, 480),
    Workload("random reads of 64 KiB in a tenth of the drive, 16 at a time", 64 * KIB, 16, 240, (0.0, 0.1)),
    Workload("random reads of 1 MiB", MIB, 1, 32),
    Workload("random reads of 16 KiB in the last half, 2 at a time", 16 * KIB, 2, 160, (0.5, 1.0)),
    Workload("sequential reads of 16 KiB from the middle on", 16 * KIB, 1, 480, (0.52, 0.7), 1),
    Workload("3 sequential streams of 256 KiB, 2 at a time", 256 * KIB, 2, 96, (0.1, 0.8), 3),
    Workload("8 sequential streams of 32 KiB", 32 * KIB, 1, 240, (0.0, 1.0), 8),
)
"""Twenty workloads, for tests of the fit on drives whose profile is known."""


class Cell(BaseModel):
    """A workload of the check, as measured and as simulated."""

    model_config = ConfigDict(extra="forbid")

    workload: str
    measured_per_s: float
    """Reads per second of the drive."""
    predicted_per_s: float
    """Reads per second of the simulated profile."""

    deviation: float
    """The deviation of the prediction, as a fraction of the measured value."""


class Check(BaseModel):
    """The result of the check."""

    model_config = ConfigDict(extra="forbid")

    cells: list[Cell]

    @property
    def median_deviation(self) -> float:
        """The median of the absolute deviations."""
        return median(abs(cell.deviation) for cell in self.cells)

    @property
    def worst(self) -> Cell:
        """The cell with the greatest absolute deviation."""
        return max(self.cells, key=lambda cell: abs(cell.deviation))


def probes(facts: Facts, workloads: tuple[Workload, ...] = CHECKED) -> Iterator[Probe]:
    """Yield the probes of the check; those of a solid-state drive in several rounds, like the probes of the fit."""
    for number in range(1 if facts.rotational else ROUNDS):
        for workload in workloads:
            yield in_round(_probe(facts, workload, number), number)


def checked(profile: Profile, samples: Samples) -> Check:
    """Compare the samples of the check with the simulation of a profile. ``samples``: one of each probe."""
    drive = SimulatedDrive(profile)
    return Check(cells=[_cell(sample, drive) for name, sample in samples.items() if name.startswith(PREFIX)])


def _cell(sample: Sample, drive: SimulatedDrive) -> Cell:
    measured, predicted = sample.reads_per_s, drive(sample.probe).reads_per_s
    return Cell(
        workload=base_name(sample.probe).removeprefix(PREFIX),
        measured_per_s=measured,
        predicted_per_s=predicted,
        deviation=predicted / measured - 1,
    )


def _probe(facts: Facts, workload: Workload, number: int) -> Probe:
    length = workload.length
    low, high = (int(facts.size * part) // length for part in workload.within)
    high = max(low + 1, high)
    count = min(workload.count, max(16, _BYTES // length))
    if not workload.streams:
        chance = random.Random(f"{workload.name} in round {number}")  # noqa: S311  no secret
        places = [chance.randrange(low, high) for _ in range(count)]
    else:
        share = (high - low) // workload.streams
        each = min(count // workload.streams, share)
        places = [low + stream * share + number for number in range(each) for stream in range(workload.streams)]
    return Probe(
        name=f"{PREFIX}{workload.name}",
        depth=workload.depth,
        reads=tuple(Read(place * length, length) for place in places),
    )
