"""A measurement that is interrupted keeps its samples, and continues where it ended."""

from itertools import islice
from pathlib import Path

import pytest

from raidproof.core.errors import DeadlineExceeded, RequestError
from raidproof.core.waiting import Deadline
from raidproof.disk.profile import load_profile
from raidproof.drive_measurement.measurement import SampleFile, all_probes, measure
from raidproof.drive_measurement.sample import Probe, Sample, Samples
from raidproof.drive_measurement.simulated_drive import SimulatedDrive
from tests.drive_measurement.drives import facts

FLASH = load_profile("ssd-sata")
FACTS = facts(FLASH)


def test_samples_survive_an_incomplete_last_line(tmp_path: Path) -> None:
    file, drive = SampleFile(tmp_path / "d.samples.jsonl"), SimulatedDrive(FLASH)
    file.begin(FACTS)
    samples = [drive(probe) for probe in islice(all_probes(FACTS, {}), 3)]
    for sample in samples:
        file.add(sample)
    with file.path.open("a") as text:
        text.write('{"probe": {"name": "cut')
    found, kept = file.resume()
    assert found == FACTS
    assert list(kept.values()) == samples
    file.add(samples[0])
    assert len(file.load()[1]) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["d.samples.jsonl"]


def test_a_file_without_samples_is_refused(tmp_path: Path) -> None:
    file = SampleFile(tmp_path / "d.samples.jsonl")
    with pytest.raises(RequestError, match="cannot read"):
        file.load()
    file.path.write_text("text\n")
    with pytest.raises(RequestError, match="has no samples of a drive"):
        file.load()


def test_only_probes_without_a_sample_are_executed() -> None:
    drive, executed = SimulatedDrive(FLASH), list[str]()

    def interrupted(probe: Probe) -> Sample:
        if len(executed) == 4:
            raise KeyboardInterrupt
        executed.append(probe.name)
        return drive(probe)

    samples: Samples = {}
    with pytest.raises(KeyboardInterrupt):
        measure(interrupted, FACTS, samples)
    assert list(samples) == executed
    first = list(executed)
    executed.clear()
    with pytest.raises(KeyboardInterrupt):
        measure(interrupted, FACTS, samples)
    assert not set(first) & set(executed)
    assert list(samples) == [*first, *executed]


def test_nothing_begins_after_the_deadline_and_a_late_probe_has_no_sample() -> None:
    samples: Samples = {}
    assert not measure(SimulatedDrive(FLASH), FACTS, samples, deadline=Deadline.after(-1))
    assert samples == {}

    def late(_: Probe) -> Sample:
        raise DeadlineExceeded("late")

    assert not measure(late, FACTS, samples)
    assert samples == {}
