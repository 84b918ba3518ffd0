"""fsx from its crate: the calls of cargo, and its errors; the output is real."""

from pathlib import Path

import pytest

from raidproof.core.command import Completed
from raidproof.core.errors import RequirementMissing, RigError
from raidproof.image import cache
from raidproof.workload.suite.fsx import CRATE, VERSION, built_fsx, compile_command, explain

DATA = Path(__file__).parents[2] / "data" / "suites"


def failed(said: str) -> Completed:
    return Completed(("cargo",), 101, said, "")


def test_unreachable_network_is_the_rigs() -> None:
    error = explain(failed((DATA / "cargo-unreachable.txt").read_text()), DATA)
    assert isinstance(error, RigError)
    assert "Could not connect to server" in str(error)


def test_what_does_not_compile_is_missing() -> None:
    error = explain(failed((DATA / "cargo-no-version.txt").read_text()), DATA)
    assert isinstance(error, RequirementMissing)
    assert "could not find `fsx`" in str(error)
    assert "Updating" not in str(error)


def test_a_full_disk_is_reported() -> None:
    assert "no room" in str(explain(failed("error: No space left on device (os error 28)"), DATA))


def test_command_pins_the_version() -> None:
    words = list(map(str, compile_command("cargo", Path("/root"), Path("/target"))))
    assert words[:4] == ["cargo", "install", CRATE, "--version"]
    assert f"={VERSION}" in words
    assert "--locked" in words


def test_without_cargo_it_is_missing_and_nothing_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RAIDPROOF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(RequirementMissing, match="--suite-path fsx=PATH"):
        built_fsx()
    assert not list((cache.root() / "suite").iterdir())


def test_interrupted_build_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(*_: object, **__: object) -> Completed:
        raise KeyboardInterrupt

    monkeypatch.setenv("RAIDPROOF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("shutil.which", lambda _: "/bin/cargo")
    monkeypatch.setattr("raidproof.core.command.follow", interrupted)
    with pytest.raises(KeyboardInterrupt):
        built_fsx()
    assert not list((cache.root() / "suite").iterdir())
