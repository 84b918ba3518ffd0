"""Drives that no profile describes: the measurement names what its profile does not explain."""

import random
from collections.abc import Callable

import pytest

from raidproof.core.errors import RequestError
from raidproof.core.units import GIB
from raidproof.disk.profile import load_profile
from raidproof.drive_measurement.measurement import measure
from raidproof.drive_measurement.residual import of_processor, sentences
from raidproof.drive_measurement.result import DriveMeasurement, result_of
from raidproof.drive_measurement.sample import Drive, Probe, Sample, Samples
from raidproof.drive_measurement.simulated_drive import SimulatedDrive
from tests.drive_measurement.drives import facts

ROTATING, FLASH = "scsi-15k-72gb", "ssd-sata"
Slower = Callable[[Probe, int], float]
"""Returns the factor of the time of a probe; arguments: the probe, and the bytes that were read before it."""


def slowed(name: str, slower: Slower) -> Drive:
    """Return a drive whose probes take longer than those of its profile."""
    drive, before = SimulatedDrive(load_profile(name)), 0

    def call(probe: Probe) -> Sample:
        nonlocal before
        sample, factor = drive(probe), slower(probe, before)
        before += probe.bytes
        return sample.model_copy(
            update={
                "begun_ns": [round(one * factor) for one in sample.begun_ns],
                "ended_ns": [round(one * factor) for one in sample.ended_ns],
            }
        )

    return call


def noisy(name: str, share: float) -> Drive:
    """Return a drive, of which a share of the reads waits up to 100 ms for another process."""
    drive, chance = SimulatedDrive(load_profile(name)), random.Random(1)

    def call(probe: Probe) -> Sample:
        sample, late, begun, ended = drive(probe), 0, [], []
        for begin, end in zip(sample.begun_ns, sample.ended_ns, strict=True):
            begun.append(begin + late)
            late += round(chance.random() * 1e8) if chance.random() < share else 0
            ended.append(end + late)
        return sample.model_copy(update={"begun_ns": begun, "ended_ns": ended})

    return call


def result(name: str, drive: Drive) -> DriveMeasurement:
    profile, samples = load_profile(name), Samples()
    assert measure(drive, facts(profile), samples)
    return result_of(facts(profile), samples, complete=True)


@pytest.mark.parametrize("name", [ROTATING, FLASH])
def test_a_drive_that_its_profile_describes_leaves_nothing_unexplained(name: str) -> None:
    assert result(name, SimulatedDrive(load_profile(name))).unexplained == []


@pytest.mark.parametrize("name", [ROTATING, FLASH])
def test_a_region_that_is_slow_is_named(name: str) -> None:
    size = load_profile(name).capacity

    def slower(probe: Probe, _: int) -> float:
        inside = all(0.5 * size < read.offset < 0.63 * size for read in probe.reads)
        return 2 if inside else 1

    (named,) = (one for one in result(name, slowed(name, slower)).unexplained[:1])
    assert "sequential reads at 5" in named or "sequential reads at 6" in named


@pytest.mark.parametrize("name", [ROTATING, FLASH])
def test_a_drive_that_becomes_slower_after_half_of_the_reads_is_named(name: str) -> None:
    half = 0.5 * GIB if name == FLASH else 0.3 * GIB
    unexplained = result(name, slowed(name, lambda _, before: 1.5 if before > half else 1)).unexplained
    assert any("changed" in one or "another speed in each round" in one for one in unexplained)


def test_random_reads_that_wait_for_another_process_are_named() -> None:
    unexplained = result(ROTATING, noisy(ROTATING, 0.05)).unexplained
    assert any("random reads took" in one for one in unexplained)


def test_a_drive_whose_reads_all_wait_for_another_process_shows_no_revolutions() -> None:
    with pytest.raises(RequestError, match="repeated reads of a place are not periodic"):
        result(ROTATING, noisy(ROTATING, 1.0))


def test_rounds_of_a_flash_drive_that_another_process_uses_are_named() -> None:
    unexplained = result(FLASH, noisy(FLASH, 0.02)).unexplained
    assert any("another speed in each round" in one for one in unexplained)


def test_a_flash_drive_that_is_said_to_rotate_is_refused() -> None:
    profile = load_profile(FLASH)
    with pytest.raises(RequestError, match="the duration of a revolution cannot be measured"):
        measure(SimulatedDrive(profile), facts(profile).model_copy(update={"rotational": True}), {})


def sample(waited: float, processor: float) -> Sample:
    probe = Probe(name="p", reads=((0, 4096),))
    return Sample(
        probe=probe, begun_ns=[0], ended_ns=[10**9], waited_ns=round(waited * 1e9), processor_ns=round(processor * 1e9)
    )


def test_waits_for_a_processor_and_a_full_processor_are_named() -> None:
    assert not list(of_processor({"p": sample(0.05, 0.5)}))
    ((_, waits),) = of_processor({"p": sample(0.3, 0.5)})
    assert "waited for a processor during 30% of the reads" in waits
    ((_, full),) = of_processor({"p": sample(0.0, 0.95)})
    assert "a processor was fully used" in full


def test_the_greatest_deviations_come_first_and_the_others_are_counted() -> None:
    found = [(float(number), f"deviation {number}") for number in range(10)]
    assert sentences(found)[0] == "deviation 9"
    assert sentences(found)[-1] == "and 2 smaller deviations"
    assert len(sentences(found)) == 9
