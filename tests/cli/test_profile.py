"""`raidproof profile measure`: options, files and interruptions. The drive is simulated."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from raidproof.cli.main import main
from raidproof.core.errors import Status
from raidproof.core.waiting import Deadline
from raidproof.disk.profile import load_profile
from raidproof.drive_measurement import real_drive
from raidproof.drive_measurement.result import DriveMeasurement
from raidproof.drive_measurement.sample import Facts, Probe, Sample
from raidproof.drive_measurement.simulated_drive import SimulatedDrive
from raidproof.existing import remote

DRIVE = load_profile("ssd-sata")
Ends = Callable[[int], None]


@pytest.fixture
def drive(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Replace the real drive by a simulated one; ``probes``: the executed ones, ``end``: called with their number."""
    state: dict[str, object] = {"probes": [], "end": lambda _: None, "known": True, "serial": "S1"}

    class Drive:
        def __init__(self, device: str, run: object, *, share: float, deadline: Deadline) -> None:
            state.update(device=device, run=run, share=share, deadline=deadline)
            self._drive = SimulatedDrive(DRIVE)

        def facts(self) -> tuple[Facts, bool]:
            facts = Facts(device="", size=DRIVE.capacity, rotational=False, model="SSD", serial=str(state["serial"]))
            return facts, bool(state["known"])

        def __call__(self, probe: Probe) -> Sample:
            probes, end = state["probes"], state["end"]
            assert isinstance(probes, list)
            assert callable(end)
            end(len(probes))
            probes.append(probe.name)
            return self._drive(probe)

    monkeypatch.setattr(real_drive, "RealDrive", Drive)
    return state


def measure(tmp_path: Path, *options: str, device: str = "/dev/sdz") -> int:
    return main(["profile", "measure", *([device] if device else []), "-o", str(tmp_path / "mine.toml"), *options])


def test_a_profile_is_written_with_its_check_and_its_samples(
    drive: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert measure(tmp_path, "--share", "20%", "--json") == Status.PASS
    captured = capsys.readouterr()
    result = DriveMeasurement.model_validate_json(captured.out)
    assert drive["share"] == 0.2
    assert result.complete
    assert len(result.cells) == 12
    assert result.median_deviation is not None
    assert result.median_deviation < 0.05
    profile = load_profile(str(tmp_path / "mine.toml"))
    assert profile.flash is not None
    assert profile.measured is not None
    assert "SSD S1" in profile.measured.sentence
    assert "program_us" in profile.measured.assumed
    assert "median deviation" in captured.err
    assert "not measured, because reads do not show it" in captured.err
    lines = (tmp_path / "mine.samples.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["serial"] == "S1"
    assert len(lines) == result.probes + 1
    # A second measurement does not replace the files.
    assert measure(tmp_path) == Status.BAD_REQUEST
    assert "already exists" in capsys.readouterr().err


def test_an_interrupted_measurement_is_kept_and_continued(
    drive: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(count: int) -> None:
        if count == 5:
            raise KeyboardInterrupt

    drive["end"] = interrupt
    assert measure(tmp_path) == 130
    assert not (tmp_path / "mine.toml").exists()
    probes = drive["probes"]
    assert isinstance(probes, list)
    first = list(probes)
    drive["end"] = lambda _: None
    drive["serial"] = "S2"
    assert measure(tmp_path, "--resume") == Status.BAD_REQUEST
    assert "the samples are those of another drive" in capsys.readouterr().err
    drive["serial"] = "S1"
    assert measure(tmp_path, "--resume") == Status.PASS
    assert len(probes) == len(set(probes)) > len(first) == 5
    assert (tmp_path / "mine.toml").exists()


def test_a_measurement_that_takes_too_long_makes_no_profile(
    drive: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert measure(tmp_path, "--minutes", "1e-9") == Status.BAD_REQUEST
    captured = capsys.readouterr()
    assert "did not end within" in captured.err
    assert "--resume" in captured.err
    assert "no profile: the measurement is incomplete" in captured.out
    assert drive["probes"] == []
    assert not (tmp_path / "mine.toml").exists()


@pytest.mark.parametrize(
    ("options", "device", "message"),
    [
        ([], "", "give a block device, or --file with a directory"),
        (["--file", "."], "/dev/sdz", "give a block device, or --file with a directory"),
        (["--ssh", "host", "--file", "."], "", "--ssh needs the block device"),
        (["--ssh", "-oProxyCommand=x"], "/dev/sdz", "not [USER@]HOST"),
        (["--ssh", "host"], "/dev/sdz;reboot", "is no path of a device"),
        (["--ssh", "host"], "/tmp/../dev/sdz", "is no path of a device"),
        (["--share", "0%"], "/dev/sdz", "not between 1% and 100%"),
        (["--share", "much"], "/dev/sdz", "not between 1% and 100%"),
        (["--minutes", "0"], "/dev/sdz", "not more than 0"),
    ],
)
@pytest.mark.usefixtures("drive")
def test_a_bad_request_is_refused(
    options: list[str], device: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert measure(tmp_path, *options, device=device) == Status.BAD_REQUEST
    assert message in capsys.readouterr().err.replace("\n", " ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("drive")
def test_a_profile_needs_the_ending_of_profiles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "measure", "/dev/sdz", "-o", str(tmp_path / "mine")]) == Status.BAD_REQUEST
    assert "does not end in .toml" in capsys.readouterr().err


def test_a_drive_of_unknown_kind_is_refused(
    drive: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drive["known"] = False
    assert measure(tmp_path) == Status.BAD_REQUEST
    assert "does not report whether" in capsys.readouterr().err


def test_a_drive_of_another_machine_is_measured_by_announced_commands(
    drive: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run() -> None:
        """Stand for the connection."""

    @contextmanager
    def connection(name: str, login: object) -> Iterator[object]:
        del login
        assert name == "storage"
        yield run

    monkeypatch.setattr(remote, "connection", connection)
    assert measure(tmp_path, "--ssh", "root@storage") == Status.PASS
    assert drive["run"] is run
    assert drive["device"] == "/dev/sdz"
    assert json.loads((tmp_path / "mine.samples.jsonl").read_text().splitlines()[0])["device"] == "/dev/sdz of storage"
