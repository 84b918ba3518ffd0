from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from raidproof.core.errors import RequestError
from raidproof.core.units import KIB, MIB
from raidproof.plan.axes import axes
from raidproof.plan.cell import matrix_of
from raidproof.storage.array import ARRAYS, MdSpec
from raidproof.storage.filesystem import FILESYSTEMS
from raidproof.storage.server import SERVERS
from raidproof.storage.stack import StackSpec
from raidproof.storage.volume import VOLUMES
from tests.plan.conftest import Make, plan_of


def test_the_stack_of_a_cell_has_the_settings_in_its_name(make: Make) -> None:
    matrix = make({"level": [5, 10], "chunk": ["64KiB"], "wsize": ["32KiB", "1MiB"], "export": ["async"]})
    assert [cell.name for cell in matrix.cells] == [
        "level=5 chunk=64KiB wsize=32KiB export=async",
        "level=5 chunk=64KiB wsize=1MiB export=async",
        "level=10 chunk=64KiB wsize=32KiB export=async",
        "level=10 chunk=64KiB wsize=1MiB export=async",
    ]
    stack = matrix.cells[2].stack
    assert (stack.array.level, stack.array.chunk_size, stack.mount.wsize) == ("10", 64 * KIB, 32 * KIB)
    assert stack.export.sync is False
    assert stack.array.members == ("disk0", "disk1", "disk2", "disk3")
    assert stack.array.assume_clean


def test_the_network_of_the_hardware_is_in_the_stack(make: Make) -> None:
    matrix = make({"delay": ["100us", "1ms"]}, hardware={"network": {"rate": "1Gbit"}})
    assert [cell.stack.link.delay for cell in matrix.cells] == [100_000, 1_000_000]
    assert {cell.stack.link.rate for cell in matrix.cells} == {10**9}


def test_lease_and_grace_are_short_by_default(make: Make) -> None:
    def periods(**fixed: Any) -> tuple[int | None, int | None]:
        export = make(fixed=fixed).cells[0].stack.export
        return export.lease_s, export.grace_s

    assert periods() == (10, 10)
    # Shorter than the lease, a grace period would end before a silent client has noticed anything.
    assert periods(lease=90) == (90, 90)
    assert periods(lease="20s", grace=60) == (20, 60)
    assert [cell.name for cell in make({"grace": [10, "30s"]}).cells] == ["grace=10s", "grace=30s"]
    for odd in (1.5, "1500ms", True, float("inf"), float("nan"), 5, 4000):
        with pytest.raises(RequestError):
            make(fixed={"lease": odd})


def test_an_axis_that_does_not_apply_is_left_out_and_reported_once(make: Make) -> None:
    matrix = make({"level": [5, 1], "chunk": ["16KiB", "64KiB", "256KiB"]})
    assert [cell.name for cell in matrix.cells] == [
        "level=5 chunk=16KiB",
        "level=5 chunk=64KiB",
        "level=5 chunk=256KiB",
        "level=1",
    ]
    assert matrix.without == ("chunk is left out where level is 1: this level has no stripes",)
    assert matrix.merged == 2
    assert not matrix.impossible


@pytest.mark.parametrize(
    ("axes", "other", "reason"),
    [
        ({"level": [5, 6]}, {"hardware": {"disks": {"count": 3}}}, "RAID6 needs at least 4 members, not 3"),
        ({"block_size": ["4KiB", "8KiB"]}, {}, "page size"),
        ({"consistency_policy": ["resync", "ppl"]}, {"fixed": {"level": 6}}, "ppl"),
        ({"members": [4, 5]}, {}, "5 member disks requested, only 4 available"),
        ({"clients": [1, 2]}, {}, "clients = 2: not from 1 to the hardware's number of clients, 1"),
        ({"level": [0, 1]}, {"hardware": {"disks": {"size": "256MiB"}}}, "too small for xfs"),
        ({"filesystem": ["xfs", "btrfs"]}, {"fixed": {"raid": "btrfs"}}, "it cannot carry xfs"),
        (
            {"raid": ["md", "btrfs"]},
            {"fixed": {"filesystem": "btrfs"}, "workload": [{"tool": "hdparm", "on": "array"}]},
            "on = 'array': raid = btrfs makes no device of the array",
        ),
    ],
)
def test_the_impossible_is_left_out_with_its_reason(
    make: Make, axes: dict[str, Any], other: dict[str, Any], reason: str
) -> None:
    matrix = make(axes, **other)
    assert len(matrix.cells) == 1
    (one,) = matrix.impossible
    assert reason in one.reason


def test_a_plan_without_one_possible_cell_is_refused(make: Make) -> None:
    with pytest.raises(RequestError, match="no cell of this plan is possible: RAID6 needs"):
        make({"level": [6]}, hardware={"disks": {"count": 2}})


def test_all_cells_have_as_many_members_as_every_cell_can_have(make: Make) -> None:
    matrix = make({"log": ["internal", "external"]}, hardware={"disks": {"count": 5}})
    assert [len(cell.stack.array.members) for cell in matrix.cells] == [4, 4]
    assert [cell.stack.filesystem.log for cell in matrix.cells] == [None, "disk4"]


def test_a_disk_of_its_own_duty_leaves_the_members_alone(make: Make) -> None:
    disks = [{"count": 4}, {"count": 1, "duty": "log"}]
    matrix = make({"log": ["internal", "external"]}, hardware={"disks": disks})
    assert [len(cell.stack.array.members) for cell in matrix.cells] == [4, 4]
    assert matrix.cells[1].stack.filesystem.log == "disk4"


def test_a_cache_takes_a_disk_of_its_duty_or_one_that_the_array_does_not_use(make: Make) -> None:
    axes: dict[str, list[Any]] = {"volume": ["direct", "cache"], "cache_mode": ["writethrough"]}
    own = make(axes, hardware={"disks": [{"count": 4}, {"count": 1, "duty": "cache"}]})
    shared = make(axes, hardware={"disks": {"count": 5}})
    for matrix in (own, shared):
        assert [len(cell.stack.array.members) for cell in matrix.cells] == [4, 4]
        assert [cell.stack.volume.disks for cell in matrix.cells] == [(), ("disk4",)]
        assert matrix.cells[1].stack.volume.model_dump()["cache_mode"] == "writethrough"


def test_levels_of_md_stand_for_those_of_zfs(make: Make) -> None:
    matrix = make({"level": [5, "raidz2", "mirror"]}, fixed={"raid": "zfs", "filesystem": "zfs"})
    assert [cell.name for cell in matrix.cells] == ["level=5", "level=z2", "level=1"]
    assert [cell.stack.array.level for cell in matrix.cells] == ["z1", "z2", "1"]


def test_a_cache_without_a_disk_is_impossible(make: Make) -> None:
    with pytest.raises(RequestError, match="RAID5 needs"):
        make({"volume": ["writecache"]}, hardware={"disks": {"count": 2}})


def test_spares_and_journal_take_what_the_members_leave(make: Make) -> None:
    (cell,) = make(fixed={"spares": 1, "consistency_policy": "journal"}, hardware={"disks": {"count": 6}}).cells
    array = cell.stack.array
    assert isinstance(array, MdSpec)
    assert (array.members, array.spares, array.journal) == (tuple(f"disk{n}" for n in range(4)), ("disk4",), "disk5")


def test_several_workloads_have_different_names(make: Make) -> None:
    matrix = make({"level": [5, 10]}, workload=[{"tool": "dd"}, {"tool": "hdparm", "name": "random"}])
    assert [cell.name for cell in matrix.cells] == [
        "level=5 workload=dd",
        "level=10 workload=dd",
        "level=5 workload=random",
        "level=10 workload=random",
    ]


def test_without_axes_a_cell_is_called_after_its_workload(make: Make) -> None:
    assert [cell.name for cell in make().cells] == ["dd"]


def test_a_selection_keeps_places(make: Make) -> None:
    matrix = make({"level": [5, 10], "export": ["sync", "async"]}).select("level=10 and not async")
    assert [(cell.index, str(cell)) for cell in matrix.cells] == [(2, "level=10 export=sync")]
    with pytest.raises(RequestError, match="no cell's name matches"):
        matrix.select("level=6")


def test_the_digest_is_that_of_all_that_counts(make: Make) -> None:
    axes = {"level": [5, 10]}
    digests = [
        make(axes).digest,
        make({"level": [5]}).digest,
        make(axes, hardware={"clients": 2}).digest,
        make(axes, run={"seed": 2}).digest,
        make(axes, fixed={"export": "async"}).digest,
    ]
    assert len(set(digests)) == len(digests)
    assert make(axes).digest == digests[0]


def test_every_axis_goes_to_a_field_that_exists() -> None:
    layers = {
        name: [part for part in getattr(field.annotation, "__args__", [field.annotation]) if part is not type(None)]
        for name, field in StackSpec.model_fields.items()
    }
    layers["array"] = [kind for _, kind in ARRAYS.items()]
    layers["volume"] = [kind for _, kind in VOLUMES.items()]
    layers["filesystem"] = [kind for _, kind in FILESYSTEMS.items()]
    layers["export"] = [kind for _, kind in SERVERS.items()]
    for axis in axes().values():
        layer, _, field = axis.field.partition(".")
        assert not layer or any(field in model.model_fields for model in layers[layer]), axis.name


def test_chunk_of_a_bitmap_is_left_out_where_there_is_none(make: Make) -> None:
    matrix = make({"level": [5, 0], "bitmap": ["none", "internal"], "bitmap_chunk": ["1MiB", "64MiB"]})
    assert [cell.name for cell in matrix.cells] == [
        "level=5 bitmap=none",
        "level=5 bitmap=internal bitmap_chunk=1MiB",
        "level=5 bitmap=internal bitmap_chunk=64MiB",
        "level=0",
    ]
    array = matrix.cells[1].stack.array
    assert isinstance(array, MdSpec)
    assert array.bitmap_chunk == MIB


VALUES: dict[str, list[Any]] = {
    "level": [0, 1, 5, 6, 10, "1+0"],
    "chunk": ["16KiB", "64KiB", "3KiB"],
    "members": [2, 4, 5],
    "filesystem": ["xfs", "ext4"],
    "log": ["internal", "external"],
    "bitmap": ["none", "internal"],
    "bitmap_chunk": ["64KiB", "64MiB", "4KiB"],
    "stripe_cache_size": [256, 4096],
    "wdelay": [True, False],
    "export": ["sync", "async"],
}


@given(st.dictionaries(st.sampled_from(sorted(VALUES)), st.integers(1, 3), max_size=5))
def test_every_combination_is_a_cell_or_impossible_or_merged(lengths: dict[str, int]) -> None:
    plan = plan_of({name: VALUES[name][:length] for name, length in lengths.items()}, hardware={"disks": {"count": 6}})
    try:
        matrix = matrix_of(plan)
    except RequestError:
        event("nothing is possible")
        return
    assert len(matrix.cells) + len(matrix.impossible) + matrix.merged == plan.combinations
    names = [cell.name for cell in matrix.cells]
    assert len(set(names)) == len(names)
    assert [cell.index for cell in matrix.cells] == list(range(len(names)))
