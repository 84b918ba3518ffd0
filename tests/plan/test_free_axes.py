"""Which axes `raidproof advise` varies, with which values, and which is the current configuration."""

from collections.abc import Callable
from typing import Any

import pytest

from raidproof.core.errors import RequestError
from raidproof.plan import free_axes as module
from raidproof.plan.free_axes import DEFAULTS, MOST_CANDIDATES, ON_REQUEST, free_of
from raidproof.plan.plan import Plan
from raidproof.storage.deployment import Work

Read = Callable[..., Plan]
WRITES = [{"tool": "fio", "rw": "write"}]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the number of candidates, each of which takes milliseconds to validate."""
    monkeypatch.setattr(module, "MOST_CANDIDATES", 100)


def test_axes_with_several_values_are_varied_and_their_first_value_is_current(read: Read) -> None:
    free = free_of(read({"chunk": ["64KiB", "256KiB"], "wsize": ["1MiB", "64KiB"], "level": [5]}))
    assert [axis.name for axis in free.axes] == ["chunk", "wsize"]
    assert free.current.name == "chunk=64KiB wsize=1MiB"
    assert free.current.settings["level"] == "5"
    assert len(free.matrix.cells) == 4
    assert free.changes(free.current) == {}
    assert free.places(free.current) == (0, 0)


def test_without_axes_the_usual_ones_are_varied_around_the_current_values(read: Read) -> None:
    free = free_of(read(fixed={"level": 5, "chunk": "256KiB", "threads": 32}, workload=WRITES))
    by_name = {axis.name: axis for axis in free.axes}
    assert by_name["chunk"].written[0] == "256KiB"
    assert not by_name["chunk"].assumed
    assert by_name["threads"].values[0] == 32
    assert by_name["wsize"].assumed
    assert by_name["chunk"].work is Work.ARRAY
    assert "rsize" not in by_name
    assert not ON_REQUEST & by_name.keys()
    assert not {"level", "members", "export", "filesystem"} & by_name.keys()
    assert len(free.matrix.cells) <= MOST_CANDIDATES
    assert set(free.left) <= set(DEFAULTS)
    assert free.current.settings["chunk"] == 256 * 1024


def test_an_axis_that_does_not_apply_is_not_varied(few: None, read: Read) -> None:
    names = [axis.name for axis in free_of(read(fixed={"level": 1}, workload=WRITES)).axes]
    assert "chunk" not in names
    assert "stripe_cache_size" not in names


def test_a_workload_that_only_reads_varies_rsize(few: None, read: Read) -> None:
    names = [axis.name for axis in free_of(read(fixed={"level": 10}, workload=[{"tool": "fio", "rw": "read"}])).axes]
    assert "rsize" in names
    assert "wsize" not in names


def test_vary_and_keep_choose(read: Read) -> None:
    plan = read({"chunk": ["64KiB", "256KiB"], "wsize": ["1MiB", "64KiB"]})
    assert [axis.name for axis in free_of(plan, keep=["chunk"]).axes] == ["wsize"]
    assert [axis.name for axis in free_of(plan, vary=["chunk"]).axes] == ["chunk"]
    assert [axis.name for axis in free_of(plan, vary=["threads"]).axes] == ["threads"]
    free = free_of(plan, vary=["chunk"])
    assert {cell.settings["wsize"] for cell in free.matrix.cells} == {1024 * 1024}


def test_the_plan_says_what_may_be_varied(read: Read) -> None:
    plan = read({"chunk": ["64KiB", "256KiB"], "wsize": ["1MiB", "64KiB"]}, advise={"keep": ["chunk"]})
    assert [axis.name for axis in free_of(plan).axes] == ["wsize"]
    plan = read({"chunk": ["64KiB", "256KiB"]}, advise={"vary": ["threads"]})
    assert [axis.name for axis in free_of(plan).axes] == ["threads"]


def test_an_unknown_axis_of_the_table_is_refused(read: Read) -> None:
    with pytest.raises(RequestError, match=r"advise.vary: unknown axis 'chnk'; did you mean 'chunk'"):
        read(advise={"vary": ["chnk"]})


def test_level_is_varied_only_if_the_plan_or_the_user_says_so(read: Read) -> None:
    assert [axis.name for axis in free_of(read({"level": [5, 10]})).axes] == ["level"]
    with pytest.raises(RequestError, match="its values must be stated"):
        free_of(read(), vary=["level"])


def test_an_async_export_gets_a_sync_one_to_compare_with(read: Read) -> None:
    free = free_of(read({"chunk": ["64KiB", "256KiB"]}, fixed={"export": "async"}))
    assert [axis.name for axis in free.axes] == ["chunk", "export"]
    assert not free.current.stack.export.sync
    assert any(cell.stack.export.sync for cell in free.matrix.cells)
    assert [axis.name for axis in free_of(read({"chunk": ["64KiB", "256KiB"]}, fixed={"export": "async"}), keep=["export"]).axes] == ["chunk"]  # fmt: skip  # noqa: E501


def test_async_is_varied_on_request(read: Read) -> None:
    assert free_of(read(), vary=["export"]).axes[0].written == ["sync", "async"]


def test_a_stripe_unit_that_repeats_the_chunk_follows_it(read: Read) -> None:
    free = free_of(read({"chunk": ["64KiB", "256KiB"]}, fixed={"su": "64KiB", "sw": 3}))
    assert all("su" not in cell.settings for cell in free.matrix.cells)


@pytest.mark.parametrize(
    ("su", "sw", "wrong"), [("32KiB", 3, {"su": ("32KiB", "64KiB")}), ("64KiB", 4, {"sw": ("4", "3")})]
)
def test_a_file_system_that_is_not_aligned_may_be_aligned(
    few: None, read: Read, su: str, sw: int, wrong: dict[str, Any]
) -> None:
    fixed = {"level": 5, "chunk": "64KiB", "su": su, "sw": sw}
    free = free_of(read(fixed=fixed, workload=WRITES))
    by_name = {axis.name: axis for axis in free.axes}
    assert {name: tuple(by_name[name].written) for name in ("su", "sw") if name in by_name} == wrong
    assert not {"chunk", "aligned"} & by_name.keys()
    assert by_name[next(iter(wrong))].work is Work.FILESYSTEM
    assert free.current.settings["sw"] == sw
    assert not {"su", "sw"} & {
        axis.name for axis in free_of(read(fixed=fixed, workload=WRITES), keep=["su", "sw"]).axes
    }


def test_the_policy_of_an_array_with_a_bitmap_can_be_changed_in_place(few: None, read: Read) -> None:
    free = free_of(read(fixed={"level": 5, "consistency_policy": "bitmap"}, workload=WRITES))
    by_name = {axis.name: axis for axis in free.axes}
    assert by_name["consistency_policy"].values == ("bitmap", "resync")
    assert by_name["consistency_policy"].work is Work.IN_PLACE
    assert "bitmap" not in by_name
    ppl = free_of(read(fixed={"level": 5, "consistency_policy": "ppl"}, workload=WRITES))
    assert not {"bitmap", "consistency_policy"} & {axis.name for axis in ppl.axes}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"vary": ["scheduler"]}, "scheduler: its current value must be stated"),
        ({"vary": ["chnk"]}, "unknown axis 'chnk'"),
        ({"vary": ["chunk"], "keep": ["chunk"]}, "to be varied and to be kept"),
        ({"keep": ["chunk"]}, "no axis is free"),
        ({"workload": "other"}, "no workload 'other'"),
    ],
)
def test_what_cannot_be_varied_is_refused(read: Read, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        free_of(read({"chunk": ["64KiB", "256KiB"]}), **asked)


def test_one_of_several_workloads_must_be_named(read: Read) -> None:
    plan = read({"chunk": ["64KiB", "256KiB"]}, workload=[{"tool": "dd"}, {"tool": "dd", "count": 3}])
    with pytest.raises(RequestError, match="2 workloads"):
        free_of(plan)
    assert free_of(plan, workload="dd-2").current.workload.model_dump()["count"] == 3


def test_the_current_configuration_must_be_possible(read: Read) -> None:
    with pytest.raises(RequestError, match=r"the current configuration is impossible: .*RAID6"):
        free_of(read({"level": [6, 5]}, hardware={"disks": {"count": 3}}))


def test_neighbours_are_found(read: Read) -> None:
    free = free_of(read({"chunk": ["64KiB", "256KiB"], "wsize": ["1MiB", "64KiB"]}))
    far = next(cell for cell in free.matrix.cells if cell.name == "chunk=256KiB wsize=64KiB")
    assert free.changes(far) == {"chunk": "256KiB", "wsize": "64KiB"}
    near = free.with_current(far, "chunk")
    assert near is not None
    assert near.name == "chunk=64KiB wsize=64KiB"
    assert free.places(far) == (1, 1)


def test_a_place_of_an_axis_that_does_not_apply_is_none(read: Read) -> None:
    free = free_of(read({"level": [5, 1], "chunk": ["64KiB", "256KiB"]}))
    mirror = next(cell for cell in free.matrix.cells if cell.stack.array.level == "1")
    assert free.places(mirror) == (1, None)
