"""A simulated disk is measured in a guest, which knows nothing of its profile, and becomes the same profile again."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from raidproof.core.command import Completed
from raidproof.core.units import GIB
from raidproof.disk.profile import load_profile
from raidproof.drive_measurement.measurement import measure
from raidproof.drive_measurement.real_drive import RealDrive
from raidproof.drive_measurement.result import DriveMeasurement, result_of
from raidproof.drive_measurement.sample import Drive, Probe, Sample, Samples
from raidproof.run.run import Run
from raidproof.storage.member import disk_path

PROFILE = "scsi-15k-72gb"
SLOW_MOTION = 4.0
"""Factor by which the disk is slower, and the host's share in each latency smaller."""


def in_slow_motion(drive: Drive, factor: float) -> Drive:
    """Return a drive in the time of the simulated disk, of a drive in wall time."""

    def call(probe: Probe) -> Sample:
        reads = tuple(read._replace(pause_us=round(read.pause_us * factor)) for read in probe.reads)
        sample = drive(probe.model_copy(update={"reads": reads}))
        begun, ended = ([round(one / factor) for one in times] for times in (sample.begun_ns, sample.ended_ns))
        return Sample(probe=probe, begun_ns=begun, ended_ns=ended)

    return call


def measured_in_guest(one: Run) -> DriveMeasurement:
    """Measure the first disk of a lab in its server."""

    def run(argv: Sequence[str], stdin: bytes, deadline_s: float) -> Completed:
        return one.lab.server.run(argv, stdin=stdin, deadline_s=deadline_s)

    real = RealDrive(disk_path("disk0"), run)
    facts, known = real.facts()
    assert known
    # The kernel reports each virtio disk as rotating.
    assert facts.rotational
    one.lab.disks.set_timing(True)
    samples: Samples = {}
    assert measure(in_slow_motion(real, SLOW_MOTION), facts, samples)
    return result_of(facts, samples, complete=True)


# Exhaustive only: it takes minutes, and on a host with other load the latencies include those of the host.
@pytest.mark.exhaustive
def test_a_disk_that_is_measured_in_a_guest_becomes_its_profile_again(current_run: Run, tmp_path: Path) -> None:
    everything = current_run.topology
    disk = everything.disks[0].model_copy(update={"size": GIB, "profile": PROFILE})
    machines = (everything.server, everything.clients[0])
    topology = everything.model_copy(update={"machines": machines, "disks": (disk,), "slow_motion": SLOW_MOTION})
    current_run.discard_lab()
    with Run("measured-profile", current_run.store.path, topology) as one:
        found = measured_in_guest(one)
    assert found.profile is not None
    path = tmp_path / "found.toml"
    path.write_text(found.profile)
    made, original = load_profile(str(path)), load_profile(PROFILE)
    assert made.rotational is not None
    assert original.rotational is not None
    assert made.rotational.rpm == pytest.approx(original.rotational.rpm, rel=0.01)
    rim, hub = original.rotational.media_rate_rim_mb_s, original.rotational.media_rate_hub_mb_s
    assert made.rotational.media_rate_rim_mb_s == pytest.approx(rim, rel=0.1)
    assert made.rotational.media_rate_hub_mb_s == pytest.approx(hub, rel=0.1)
    assert made.rotational.average_seek_ms == pytest.approx(original.rotational.average_seek_ms, abs=0.7)
    assert found.median_deviation is not None
    assert found.median_deviation < 0.12, found.cells
