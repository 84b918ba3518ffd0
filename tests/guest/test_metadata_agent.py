import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from raidproof.guest import metadata_agent
from raidproof.guest.metadata_agent import Clock, Files, phase
from raidproof.workload.metadata import MetadataSpec, MetadataState, metadata_command, parse_metadata


class Ticking(Clock):
    """A clock that advances by one at each call."""

    def __init__(self, tick_s: float) -> None:
        self.now_s, self.tick_s = 0.0, tick_s

    def seconds(self) -> float:
        self.now_s += self.tick_s
        return self.now_s


def orders(directory: Path, **other: Any) -> dict[str, Any]:
    command = metadata_command(MetadataSpec.model_validate({"cold": False, "directories": 3, **other}), str(directory))
    return dict(json.loads(command[-1]))


def ran(directory: Path, **other: Any) -> subprocess.CompletedProcess[str]:
    source = Path(metadata_agent.__file__).read_text()
    command = [sys.executable, "-", json.dumps(orders(directory, **other))]
    return subprocess.run(command, input=source, capture_output=True, text=True, check=False)


def done(state: MetadataState) -> list[int]:
    return [state.create.done, state.stat.done, state.remove.done]


def test_counted_operations_are_done_and_all_files_are_removed(tmp_path: Path) -> None:
    state = parse_metadata(ran(tmp_path, files=50, size=10, fsync_file=True, fsync_directory=True).stdout)
    assert done(state) == [50, 50, 50]
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_files_are_distributed_round_robin_with_their_content(tmp_path: Path) -> None:
    files = Files(orders(tmp_path, files=7, size=10))
    for number in range(7):
        files.create(number)
    assert sorted(str(path.relative_to(tmp_path)) for path in (tmp_path / "d0").iterdir()) == [
        "d0/f0",
        "d0/f3",
        "d0/f6",
    ]
    assert (tmp_path / "d1" / "f4").stat().st_size == 10
    with pytest.raises(FileExistsError):
        files.create(0)


def test_a_file_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Files(orders(tmp_path, files=1)).stat(0)


def test_a_phase_ends_when_its_time_is_up() -> None:
    acted: list[int] = []
    found = phase("create", acted.append, 100, 1.0, Ticking(0.25))
    assert acted == [0, 1, 2, 3]
    # The look that ends it comes after the last operation.
    assert found == {"done": 4, "seconds": 1.25}


def test_stat_is_not_slowed_by_the_clock() -> None:
    acted: list[int] = []
    phase("stat", acted.append, 1 << 62, 1.0, Ticking(1.0))
    assert len(acted) == metadata_agent.CLOCK_EVERY["stat"]


def test_the_time_limit_holds_for_all_phases_and_all_files_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_agent, "Clock", lambda: Ticking(0.3))
    found = metadata_agent.main(orders(tmp_path, seconds=6))
    assert found["create"]["done"] == found["remove"]["done"] == 7
    assert found["stat"]["done"] > found["create"]["done"]
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(("asked", "passes"), [({"seconds": 6}, 7), ({"files": 7}, 1)])
def test_cold_forgets_before_each_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: dict[str, int], passes: int
) -> None:
    forgotten: list[int] = []
    monkeypatch.setattr(metadata_agent, "forget_names", lambda: forgotten.append(len([*(tmp_path / "d0").iterdir()])))
    monkeypatch.setattr(metadata_agent, "Clock", lambda: Ticking(0.3))
    found = metadata_agent.main(orders(tmp_path, cold=True, **asked))
    # Two looks a pass: 0.3 s each, until there are 2 s.
    assert forgotten == [3] * passes
    assert found["stat"] == {"done": 7 * passes, "seconds": round(0.3 * passes, 2)}


def test_the_clocks_error_is_not_summed_up_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_agent, "forget_names", lambda: None)
    files = Files(orders(tmp_path, files=5))
    for number in range(5):
        files.create(number)
    found = metadata_agent.look_up(files, 5, orders(tmp_path, seconds=6, cold=True), Ticking(0.01))
    passes = metadata_agent.MOST_PASSES
    assert found == {"done": 5 * passes, "seconds": round(0.01 * passes, 2)}


def test_a_failure_is_one_line_and_a_status(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ended = ran(tmp_path / "file", files=1)
    assert ended.returncode == 1
    assert "Not a directory" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
