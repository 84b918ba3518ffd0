"""fsx: what cargo is asked for, and why it fails; how a run of it ended. The outputs are real."""

from pathlib import Path

import pytest

from raidproof.core.command import Completed
from raidproof.core.errors import ProductError, RequirementMissing, RigError
from raidproof.image import cache
from raidproof.workload.workload import WORKLOADS, Place, Sample
from raidproof_suites.fsx import CRATE, VERSION, Fsx, FsxSpec, compile_command, explain
from raidproof_suites.suite import passed
from tests.suites.outputs import DATA, ended, real
from tests.workload.guest import Guest


def cargo(said: str) -> Completed:
    return Completed(("cargo",), 101, said, "")


def test_unreachable_network_is_the_rigs() -> None:
    error = explain(cargo((DATA / "cargo-unreachable.txt").read_text()), DATA)
    assert isinstance(error, RigError)
    assert "Could not connect to server" in str(error)


def test_what_does_not_compile_is_missing() -> None:
    error = explain(cargo((DATA / "cargo-no-version.txt").read_text()), DATA)
    assert isinstance(error, RequirementMissing)
    assert "could not find `fsx`" in str(error)
    assert "Updating" not in str(error)


def test_full_disk_is_told() -> None:
    assert "is full" in str(explain(cargo("error: No space left on device (os error 28)"), DATA))


def test_command_pins_the_version() -> None:
    words = list(map(str, compile_command("cargo", Path("/root"), Path("/target"))))
    assert words[:4] == ["cargo", "install", CRATE, "--version"]
    assert f"={VERSION}" in words
    assert "--locked" in words


def test_without_cargo_it_is_missing_and_nothing_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RAIDPROOF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(RequirementMissing, match="--suite-path fsx=PATH"):
        Fsx().built()
    assert not list((cache.root() / "suite").iterdir())


def test_interrupted_build_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(*_: object, **__: object) -> Completed:
        raise KeyboardInterrupt

    monkeypatch.setenv("RAIDPROOF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("shutil.which", lambda _: "/bin/cargo")
    monkeypatch.setattr("raidproof.core.command.follow", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Fsx().built()
    assert not list((cache.root() / "suite").iterdir())


@pytest.mark.parametrize("name", ["fsx-0.3.1.txt", "fsx-linux.txt"])
def test_fsx_passed(name: str) -> None:
    assert Fsx().parse("fsx", ended(real(name))) == passed("fsx")


def test_fsx_that_a_second_writer_disturbed_failed() -> None:
    outcome = Fsx().parse("fsx", ended("", 1, real("fsx-0.3.1-second-writer.txt")))
    assert "Size error: expected 0xc8f but found 0x1000" in outcome.failed[0].reason


def test_fsx_in_c_that_a_second_writer_disturbed_failed() -> None:
    (case,) = Fsx().parse("fsx", ended(real("fsx-c-second-writer.txt"), 110)).failed
    assert case.reason.startswith("READ BAD DATA")


@pytest.mark.parametrize(
    ("text", "status"),
    [("", 0), (real("fsx-0.3.1.txt"), 1), ("error: invalid value 'x' for '-N <NUMOPS>'", 2), ("", 139)],
)
def test_fsx_without_an_end_of_its_own_is_unknown(text: str, status: int) -> None:
    outcome = Fsx().parse("fsx", ended(text, status))
    assert outcome.unknown
    assert not outcome.passed


def run(answer: Completed) -> Sample:
    machines = [Guest(name, lambda argv: answer if "-N" in argv else None) for name in ("client1", "client2")]
    place = Place(machines, "/mnt/nfs")
    workload = FsxSpec(path="/nowhere/fsx", operations=700).workload()
    workload.prepare(place)
    sample = workload.run(place)
    workload.clean(place)
    return sample


def test_each_client_of_a_plan_runs_its_own() -> None:
    sample = run(ended(real("fsx-0.3.1.txt")))
    assert sample.value == pytest.approx(2 * 700 / sample.seconds)
    assert set(sample.output) == {"client1", "client2"}


def test_a_difference_fails_the_cell() -> None:
    with pytest.raises(ProductError, match="READ BAD DATA"):
        run(ended(real("fsx-c-second-writer.txt"), 110))


def test_a_run_without_an_end_is_no_value() -> None:
    with pytest.raises(RigError, match="status 139"):
        run(ended("", 139))


def test_a_plan_names_the_workload() -> None:
    assert WORKLOADS["fsx"] is FsxSpec
    asked = FsxSpec(operations=9)
    assert FsxSpec.model_validate_json(asked.model_dump_json()) == asked
