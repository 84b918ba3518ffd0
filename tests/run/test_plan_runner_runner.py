from pathlib import Path
from typing import Any

import pytest

from raidproof.core.errors import RequestError
from raidproof.core.topology import Platform, SoftwareSpec, server_and_clients
from raidproof.core.waiting import wall_clock
from raidproof.plan.cell import Matrix, matrix_of
from raidproof.plan.plan import load_plan
from raidproof.record import RunRecord, RunStore
from raidproof.run.plan_runner import record_of, require_same

TOPOLOGY = server_and_clients()
PLAN = Path(__file__).resolve().parents[2] / "scenarios" / "plans" / "tiny.toml"


def tiny(**run: Any) -> Matrix:
    return matrix_of(load_plan(PLAN, run))


def stored(path: Path, matrix: Matrix | None = None) -> RunStore:
    path.mkdir(parents=True)
    store = RunStore(path)
    plan = None if matrix is None else record_of(matrix, PLAN)
    store.save(
        RunRecord(
            run=path.name,
            started=wall_clock(),
            command=[],
            plan=plan,
            topology=TOPOLOGY.model_dump(mode="json"),
        )
    )
    return store


def test_the_record_has_the_text_of_the_plan() -> None:
    record = record_of(tiny(repeats=5, seed=7, cut="power"), PLAN)
    assert record.text == PLAN.read_text()
    assert (record.path, record.repeats, record.seed, record.cut) == (str(PLAN), 5, 7, "power")
    assert record.impossible == []
    assert record.order == []


def test_the_record_holds_what_cannot_be(tmp_path: Path) -> None:
    path = tmp_path / "odd.toml"
    path.write_text('axes = { level = [5, 6], members = [3, 4] }\nworkload = { tool = "dd" }\n')
    (impossible, *_) = record_of(matrix_of(load_plan(path)), path).impossible
    assert impossible[0] == "level=6 members=3"


def test_a_resumed_run_uses_its_stored_plan(tmp_path: Path) -> None:
    require_same(stored(tmp_path / "a", tiny()), tiny(), TOPOLOGY)


@pytest.mark.parametrize("change", [{"repeats": 7}, {"seed": 2}, {"kernel": "debian/sid"}])
def test_a_run_does_not_go_on_with_another_plan(tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=r"has changed since run a: .*without --resume"):
        require_same(stored(tmp_path / "a", tiny()), tiny(**change), TOPOLOGY)


def test_other_cells_are_another_plan(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="has changed since run"):
        require_same(stored(tmp_path / "a", tiny()), tiny().select("level=5"), TOPOLOGY)


def test_a_run_of_scenarios_is_no_plans(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="not the run of a plan"):
        require_same(stored(tmp_path / "a"), tiny(), TOPOLOGY)


def test_a_run_does_not_go_on_with_other_software(tmp_path: Path) -> None:
    other = server_and_clients(platform=Platform(server=SoftwareSpec(kernel="debian/sid")))
    with pytest.raises(RequestError, match="or other software"):
        require_same(stored(tmp_path / "a", tiny()), tiny(), other)


def test_the_newest_run_is_found_also_among_those_of_one_second(tmp_path: Path) -> None:
    names = ["20260101-000000-tiny", "20260102-000000-tiny", *(f"20260102-000000-tiny-{n}" for n in (2, 9, 10))]
    for name in names:
        stored(tmp_path / name)
    assert RunStore.newest(tmp_path, "tiny").path.name == "20260102-000000-tiny-10"


def test_runs_of_plans_with_a_similar_name_are_not_taken(tmp_path: Path) -> None:
    for name in ("20260101-000000-tiny", "20260109-000000-very-tiny", "20260109-000000-tiny-b"):
        stored(tmp_path / name)
    (tmp_path / "20260110-000000-tiny").mkdir()
    assert RunStore.newest(tmp_path, "tiny").path.name == "20260101-000000-tiny"


def test_without_a_run_there_is_nothing_to_go_on_with(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no run of plan tiny"):
        RunStore.newest(tmp_path, "tiny")
