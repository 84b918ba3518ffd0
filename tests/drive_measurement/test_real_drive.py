"""The drive meter on a real file: times of reads, refusals, and that it writes nothing."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from raidproof.core.command import Completed
from raidproof.core.errors import DeadlineExceeded, RequestError, RigError
from raidproof.core.units import KIB, MIB
from raidproof.core.waiting import Deadline
from raidproof.drive_measurement.real_drive import METER, RealDrive, announcement, meter_command, on_this_host
from raidproof.drive_measurement.sample import Probe, Read
from raidproof.guest.drive_meter import facts, read

READS = tuple(Read(number * 64 * KIB, 4 * KIB) for number in range(20))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "drive"
    path.write_bytes(bytes(range(256)) * (4 * MIB // 256))
    return path


@pytest.mark.parametrize("depth", [1, 4])
def test_each_read_has_a_begin_and_a_later_end(file: Path, depth: int) -> None:
    sample = RealDrive(str(file))(Probe(name="p", depth=depth, reads=READS))
    assert min(sample.begun_ns) == 0
    assert all(begin < end for begin, end in zip(sample.begun_ns, sample.ended_ns, strict=True))
    assert len(sample.ended_ns) == len(READS)
    assert sample.processor_ns > 0


def test_the_file_is_not_changed(file: Path) -> None:
    before = (file.read_bytes(), file.stat().st_mtime_ns, sorted(file.parent.iterdir()))
    RealDrive(str(file)).facts()
    RealDrive(str(file))(Probe(name="p", depth=2, reads=READS))
    assert (file.read_bytes(), file.stat().st_mtime_ns, sorted(file.parent.iterdir())) == before


@pytest.mark.parametrize("order", ["facts", "read"])
def test_the_meter_opens_no_file_for_writing(file: Path, order: str) -> None:
    # Python reports each open to audit hooks, with the flags.
    watched = f"""
import os, sys
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
def hook(event, args):
    if event == "open":
        # One call of write: the meter's threads open files at the same time.
        os.write(2, ("%s %d" % (args[0], args[2] & WRITING)).encode() + bytes([10]))
sys.addaudithook(hook)
exec(compile(open({str(METER)!r}).read(), "meter", "exec"))
"""
    orders = json.dumps({"depth": 2, "reads": READS, "share": 1.0})
    done = subprocess.run(
        [sys.executable, "-c", watched, order, str(file)], input=orders, capture_output=True, check=True, text=True
    )
    opened = dict(line.rsplit(" ", 1) for line in done.stderr.splitlines())
    assert str(file) in opened
    assert set(opened.values()) == {"0"}


def test_facts_are_those_of_the_kernel(file: Path) -> None:
    found = facts(str(file))
    assert found["size"] == 4 * MIB
    known, _ = RealDrive(str(file)).facts()
    assert known.size == 4 * MIB
    assert known.sector >= 512
    assert known.largest >= 4 * KIB


def test_reads_in_the_same_process_use_the_pauses_and_the_share(file: Path) -> None:
    reads = [[0, 4096, 2000], [4096, 4096, 2000]]
    found = read(str(file), 1, reads, 0.5)
    begun, ended = found["begun"], found["ended"]
    assert isinstance(begun, list)
    assert isinstance(ended, list)
    assert begun[1] - ended[0] >= 2_000_000


def test_a_device_that_does_not_exist_and_a_place_beyond_the_end_are_named(file: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="No such file or directory"):
        RealDrive(str(tmp_path / "none")).facts()
    with pytest.raises(RequestError, match="returned 0 bytes"):
        RealDrive(str(file))(Probe(name="p", reads=(Read(8 * MIB, 4096),)))
    with pytest.raises(RequestError, match="neither a block device nor a file"):
        RealDrive(str(tmp_path)).facts()


def test_output_that_is_incomplete_is_an_error_of_the_rig() -> None:
    def run(argv: Sequence[str], stdin: bytes, deadline_s: float) -> Completed:
        assert json.loads(stdin)["share"] == 0.2
        assert deadline_s > 100
        return Completed(tuple(argv), 0, '{"begun": [1', "", "storage")

    with pytest.raises(RigError, match="storage: the output of the drive meter is incomplete"):
        RealDrive("/dev/sda", run, share=0.2)(Probe(name="p", reads=READS, separate=True))


def test_a_probe_ends_with_the_time_for_the_measurement() -> None:
    with pytest.raises(DeadlineExceeded):
        on_this_host([sys.executable, "-c", "import time; time.sleep(60)"], b"", 0.2)
    drive = RealDrive(
        "/dev/sda",
        lambda argv, _, left: Completed(tuple(argv), 1, "", f"left {left <= 5}"),
        deadline=Deadline.after(5),
    )
    with pytest.raises(RequestError, match="left True"):
        drive.facts()


def test_the_meter_runs_on_the_standard_library_alone(file: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-S", *meter_command("facts", str(file))[1:]], capture_output=True, check=True, text=True
    )
    assert json.loads(done.stdout)["size"] == 4 * MIB


def test_the_announced_commands_name_the_program() -> None:
    assert announcement("/dev/sdb") == [
        "python3 -I -c 'drive_meter.py' facts /dev/sdb",
        "python3 -I -c 'drive_meter.py' read /dev/sdb",
    ]
