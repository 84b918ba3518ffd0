from pathlib import Path

import pytest

from raidproof.guest.keeper import store
from tests.guest.keeper.power import power_cut

PROGRAM = str(Path(store.__file__).parent)


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "raidproof"
    monkeypatch.setattr(store, "ROOT", str(path))
    return path


def test_a_snapshot_contains_the_program_that_restores_it(root: Path) -> None:
    store.commit("r1", {"version": 1}, PROGRAM)
    assert store.complete() == ["r1"]
    assert store.load("r1", store.SNAPSHOT) == {"version": 1}
    brought = {path.name for path in (root / "snapshot.r1" / "keeper").iterdir()}
    assert brought == {path.name for path in Path(PROGRAM).glob("*.py")}
    assert root.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("step", range(12))
def test_power_may_go_at_any_step_of_a_commit(step: int) -> None:
    """A power cut may happen at each fsync: afterwards the snapshot is complete or does not exist."""
    with power_cut(step) as synced:
        store.commit("r1", {"version": 1}, PROGRAM)
    for run in store.complete():
        assert store.load(run, store.SNAPSHOT) == {"version": 1}
    if len(synced) < 9:
        assert store.complete() == []


def test_what_was_never_complete_is_swept_and_the_complete_stays(root: Path) -> None:
    store.commit("r1", {}, PROGRAM)
    for name in ("snapshot.r2.new", "gone.r0"):
        (root / name / "keeper").mkdir(parents=True)
    assert store.complete() == ["r1"]
    store.sweep()
    assert [path.name for path in root.iterdir()] == ["snapshot.r1"]


def test_a_discarded_snapshot_leaves_nothing(root: Path) -> None:
    store.commit("r1", {}, PROGRAM)
    store.add("r1", store.SETTLED, {"trees": {}})
    assert store.load("r1", store.SETTLED) == {"trees": {}}
    store.discard("r1")
    assert not root.exists()
    assert store.complete() == []


def test_a_file_that_was_never_written_is_none() -> None:
    assert store.load("r9", store.SETTLED) is None
