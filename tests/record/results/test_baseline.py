"""Names for stored runs: kept, moved to another run, removed, and refused if they mean nothing."""

from pathlib import Path

import pytest

from raidproof.core.errors import RequestError
from raidproof.core.waiting import wall_clock
from raidproof.record import RunRecord, RunStore
from raidproof.record.cell import PlanRecord
from raidproof.record.results.baseline import (
    baseline_named,
    baselines_of,
    refuse_removal_of_baselines,
    remove_baseline,
    run_named,
    set_baseline,
)


def stored(results: Path, name: str, *, planned: bool = True) -> RunStore:
    store = RunStore(results / name)
    store.path.mkdir(parents=True)
    plan = PlanRecord(path="p.toml", text="", seed=1, repeats=3) if planned else None
    store.save(RunRecord(run=name, started=wall_clock(), command=[], plan=plan))
    return store


def test_a_baseline_is_kept_moved_and_removed(tmp_path: Path) -> None:
    one, two = stored(tmp_path, "one"), stored(tmp_path, "two")
    set_baseline("v1.0", one, tmp_path)
    set_baseline("other", two, tmp_path)
    assert [(found.name, found.run) for found in baselines_of(tmp_path)] == [("other", "two"), ("v1.0", "one")]
    assert run_named("v1.0", tmp_path).path == one.path
    set_baseline("v1.0", two, tmp_path)
    assert run_named("v1.0", tmp_path).path == two.path
    remove_baseline("v1.0", tmp_path)
    assert [found.name for found in baselines_of(tmp_path)] == ["other"]
    assert two.load().run == "two"


def test_a_directory_without_baselines_has_none(tmp_path: Path) -> None:
    assert baselines_of(tmp_path) == []
    with pytest.raises(RequestError, match=r"has no baseline 'v1' \(`raidproof baseline set NAME RUN` makes one"):
        baseline_named("v1", tmp_path)


def test_an_unknown_name_names_the_nearest(tmp_path: Path) -> None:
    set_baseline("stable", stored(tmp_path, "one"), tmp_path)
    with pytest.raises(RequestError, match="did you mean 'stable'"):
        remove_baseline("stabel", tmp_path)


@pytest.mark.parametrize("name", ["", "latest", "../x", "a b", "-x", "a/b"])
def test_a_malformed_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RequestError, match="not the name of a baseline"):
        set_baseline(name, stored(tmp_path, "one"), tmp_path)
    assert not (tmp_path / "baselines").exists()


def test_a_run_of_another_directory_or_without_a_plan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="is not in"):
        set_baseline("a", stored(tmp_path / "elsewhere", "one"), tmp_path)
    with pytest.raises(RequestError, match="not the run of a plan"):
        set_baseline("a", stored(tmp_path, "two", planned=False), tmp_path)


def test_a_run_is_found_by_name_and_path_too(tmp_path: Path) -> None:
    one = stored(tmp_path, "one")
    assert run_named("one", tmp_path).path == one.path
    assert run_named(str(one.path), Path("nowhere")).path == one.path


def test_a_baseline_whose_run_is_missing_says_so(tmp_path: Path) -> None:
    one = stored(tmp_path, "one")
    set_baseline("v1", one, tmp_path)
    (one.path / "report.json").unlink()
    with pytest.raises(RequestError, match="baseline 'v1' means run one, which is not in"):
        run_named("v1", tmp_path)


def test_a_malformed_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "baselines").mkdir()
    (tmp_path / "baselines" / "v1.json").write_text('{"name": 3}')
    with pytest.raises(RequestError, match=r"v1\.json: not the file of a baseline"):
        baselines_of(tmp_path)


def test_the_run_of_a_baseline_may_not_be_removed(tmp_path: Path) -> None:
    one, two = stored(tmp_path, "one"), stored(tmp_path, "two")
    set_baseline("v1", one, tmp_path)
    refuse_removal_of_baselines(two)
    with pytest.raises(RequestError, match="run one is kept, because it is the run of baseline 'v1'"):
        refuse_removal_of_baselines(one)
    remove_baseline("v1", tmp_path)
    refuse_removal_of_baselines(one)
