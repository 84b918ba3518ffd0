from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.topology import ControllerSpec
from raidproof.core.units import GIB, KIB, MIB
from raidproof.disk.profile import DriveCache, Flash, Profile, Rotational
from raidproof.monitor.disk_model import (
    Hardware,
    Member,
    busy_members,
    elevator_distance,
    random_ms,
    seek_ms,
)
from raidproof.monitor.model import Expected, compare, expected
from raidproof.storage.link import LinkSpec
from raidproof.storage.stack import StackSpec
from raidproof.workload.workload import Access

HDD = Profile(
    name="hdd",
    source="test",
    capacity=10**12,
    queue_depth=32,
    command_overhead_us=50,
    interface_mb_s=300,
    cache=DriveCache(size=0, write_back=False, protected=False, read_ahead=512 * KIB),
    rotational=Rotational(
        rpm=7200,
        track_to_track_ms=1.0,
        average_seek_ms=8.5,
        full_stroke_ms=18.0,
        write_seek_extra_ms=0.0,
        head_switch_ms=1.0,
        media_rate_rim_mb_s=100,
        media_rate_hub_mb_s=50,
        zones=16,
    ),
    flash=None,
)
SSD = replace(
    HDD,
    name="ssd",
    rotational=None,
    flash=Flash(channels=8, page=4096, read_us=60, program_us=200, erase_us=2000, erase_block=MIB, flush_us=500),
)
COUNTS = st.integers(min_value=2, max_value=16)
ACCESSES = st.builds(
    Access,
    size=st.sampled_from([4 * KIB, 16 * KIB, 64 * KIB, 192 * KIB, MIB]),
    read_share=st.sampled_from([0.0, 0.5, 1.0]),
    sequential=st.booleans(),
    depth=st.integers(1, 64),
    streams=st.integers(1, 8),
    direct=st.booleans(),
    sync_every=st.sampled_from([None, 4 * KIB, MIB]),
    remote=st.booleans(),
)


def hardware(count: int, profile: Profile = HDD, **controllers: ControllerSpec) -> Hardware:
    names: list[str | None] = [*controllers] or [None]
    members = {f"disk{number}": Member(profile, names[number % len(names)]) for number in range(count)}
    return Hardware(members, controllers)


def stack(level: str, count: int, chunk: int = 64 * KIB, **more: Any) -> StackSpec:
    array: Mapping[str, Any] = {"level": level, "members": tuple(f"disk{number}" for number in range(count))}
    return StackSpec.model_validate({"array": array if level == "1" else {**array, "chunk_size": chunk}, **more})


def expect(level: str, count: int, access: Access, chunk: int = 64 * KIB, **more: Any) -> Expected:
    found = expected(hardware(count), stack(level, count, chunk, **more), access)
    assert found is not None
    return found


def local(size: int = 4 * KIB, **more: Any) -> Access:
    return Access(**{"size": size, "remote": False, "direct": True, **more})


def test_a_single_disk_is_its_formula() -> None:
    assert random_ms(HDD, 4096, write=False) == pytest.approx(8.5 + 4.1667 + 4.096 / 75 + 0.05, rel=1e-3)


def test_seeks_pass_through_the_data_sheet() -> None:
    assert HDD.rotational is not None
    assert [seek_ms(HDD.rotational, share) for share in (0, 1 / 3, 1)] == pytest.approx([1.0, 8.5, 18.0])


def test_an_elevator_gains_from_the_third_request_on() -> None:
    assert [elevator_distance(depth) for depth in (1, 2, 3)] == [1 / 3, 1 / 3, 1 / 4]


@pytest.mark.parametrize(
    ("level", "members", "size", "commands"),
    [
        ("0", 4, 4 * KIB, 1), ("1", 2, 4 * KIB, 2), ("10", 4, 4 * KIB, 2), ("1+0", 4, 4 * KIB, 2),
        ("0+1", 4, 4 * KIB, 2), ("5", 4, 4 * KIB, 4), ("5", 3, 4 * KIB, 3), ("5", 8, 4 * KIB, 4),
        ("6", 8, 4 * KIB, 6), ("5", 4, 192 * KIB, 4), ("5", 4, 128 * KIB, 4), ("6", 6, 256 * KIB, 6),
    ],
)  # fmt: skip
def test_what_a_write_costs(level: str, members: int, size: int, commands: int) -> None:
    assert stack(level, members).array.raid.writes(size, 64 * KIB).commands == commands


def test_a_whole_stripe_reads_nothing() -> None:
    work = stack("5", 4).array.raid.writes(192 * KIB, 64 * KIB)
    assert not work.modifies
    assert work.traffic(192 * KIB) == pytest.approx(4 / 3)
    assert stack("5", 4).array.raid.reads(192 * KIB, 64 * KIB).commands == 3


def test_a_small_write_to_raid5_of_4_is_a_quarter_of_raid0() -> None:
    access = local(sequential=False, depth=256)
    assert expect("5", 4, access).iops == pytest.approx(expect("0", 4, access).iops / 4, rel=0.02)


def test_a_pair_writes_like_one_disk() -> None:
    access = local(sequential=False)
    assert expect("1", 2, access).iops == pytest.approx(1000 / random_ms(HDD, 4096, write=True), rel=1e-3)


def test_reading_past_parity() -> None:
    access = local(MIB, read_share=1, direct=False)
    assert expect("5", 4, access).mb_s == pytest.approx(3 * 75)
    assert expect("0", 4, access).mb_s == pytest.approx(4 * 75)
    assert expect("1", 2, access).mb_s == pytest.approx(75)
    assert expect("1", 2, replace(access, streams=2)).mb_s == pytest.approx(2 * 75)


def test_layouts_of_raid10() -> None:
    access = local(MIB, read_share=1, direct=False)
    near, far = (
        expected(
            hardware(4),
            StackSpec.model_validate(
                {"array": {"level": "10", "members": ("disk0", "disk1", "disk2", "disk3"), "layout": layout}}
            ),
            access,
        )
        for layout in ("n2", "f2")
    )
    assert near is not None
    assert far is not None
    assert far.mb_s == pytest.approx(2 * near.mb_s)


def test_the_slowest_member_governs() -> None:
    assert HDD.rotational is not None
    slow = replace(HDD, rotational=replace(HDD.rotational, media_rate_rim_mb_s=40, media_rate_hub_mb_s=40))
    mixed = Hardware({**hardware(4).members, "disk3": Member(slow)})
    found = expected(mixed, stack("0", 4), local(MIB, direct=False))
    assert found is not None
    assert found.mb_s == pytest.approx(160)


def test_a_gigabit_carries_117_mb_s() -> None:
    found = expect("0", 8, Access(size=MIB), link={"rate": "1Gbit"})
    assert found.limit == "network"
    assert found.mb_s == pytest.approx(117.7, abs=0.3)


def test_round_trips_bind_small_transfers() -> None:
    more: dict[str, Any] = {"link": {"delay": "5ms"}, "mount": {"wsize": "8KiB"}}
    found = expect("0", 8, Access(size=MIB), **more)
    assert found.limit == "round trips"
    assert found.mb_s == pytest.approx(64 * 8192 / 0.01 / 1e6)


def test_a_sync_mount_waits_for_data_and_journal() -> None:
    found = expect("0", 4, Access(size=4 * KIB), mount={"sync": True})
    assert found.limit == "sync latency"
    # The file covers the array; the log is in its middle. Data and log may be on different members.
    assert HDD.rotational is not None
    seek, turn = seek_ms(HDD.rotational, 1 / 4), 60_000 / HDD.rotational.rpm
    assert 1000 / (2 * seek + turn) < found.iops < 1000 / (seek + turn)
    assert expect("0", 4, Access(size=4 * KIB), mount={"sync": True}, export={"sync": False}).mb_s > 100 * found.mb_s


@pytest.mark.parametrize("kind", ["btrfs", "f2fs"])
def test_copies_on_write_have_no_formula(kind: str) -> None:
    hard, made = hardware(4), stack("0", 4, filesystem={"type": kind})
    synced = stack("0", 4, filesystem={"type": kind}, mount={"sync": True})
    assert expected(hard, made, local(sequential=False, read_share=0.0)) is None
    assert expected(hard, synced, Access(size=4 * KIB)) is None
    assert expected(hard, made, local(size=MIB, sequential=True)) is not None
    assert expected(hard, made, local(sequential=False, read_share=1.0)) is not None


def test_a_read_before_a_write_costs_one_revolution() -> None:
    found = expect("5", 4, local(8 * KIB))
    assert found.limit == "disks"
    assert found.iops == pytest.approx(1000 / (60_000 / 7200), rel=0.05)


def test_a_battery_answers_for_the_disks() -> None:
    def rate(battery: str) -> float:
        card = ControllerSpec.model_validate({"name": "card", "cache": 256 * MIB, "battery": battery})
        found = expected(hardware(4, card=card), stack("5", 4), local(sequential=False, sync_every=4 * KIB))
        assert found is not None
        return found.mb_s

    assert rate("good") == rate("unnoticed") > rate("failed")


def test_what_fits_into_a_cache_does_not_meet_the_disks() -> None:
    card = ControllerSpec(name="card", cache=GIB, bandwidth_mb_s=320)
    small, large = (
        expected(hardware(4, card=card), stack("0", 4), local(MIB, sequential=False, working_set=size))
        for size in (512 * MIB, 4 * GIB)
    )
    assert small is not None
    assert large is not None
    assert (small.limit, small.mb_s) == ("controller", 320)
    assert large.limit == "disks"


def test_controllers_add_up() -> None:
    def rate(count: int) -> float:
        cards: dict[str, Any] = {
            f"c{number}": ControllerSpec(name=f"c{number}", bandwidth_mb_s=100) for number in range(count)
        }
        found = expected(hardware(8, **cards), stack("0", 8), local(MIB, direct=False, read_share=1))
        assert found is not None
        return found.mb_s

    assert rate(1) == pytest.approx(100)
    assert rate(2) == pytest.approx(200)


def test_disks_without_mechanics_promise_nothing() -> None:
    bare = replace(HDD, rotational=None, command_overhead_us=0, interface_mb_s=0)
    assert expected(hardware(4, bare), stack("5", 4), local()) is None


@given(COUNTS, ACCESSES)
def test_more_members_are_never_slower(count: int, access: Access) -> None:
    more, fewer = expect("0", count + 1, access), expect("0", count, access)
    # The log lies elsewhere on more members, and on another member; the walk has a finite number of writes.
    least = 0.9 if "sync latency" in {more.limit, fewer.limit} else 1 - 1e-9
    assert more.mb_s >= fewer.mb_s * least


@given(ACCESSES, st.integers(1, 100))
def test_a_faster_link_is_never_slower(access: Access, factor: int) -> None:
    def rate(bits: int) -> float:
        return expect("5", 4, access, link=LinkSpec(rate=bits)).mb_s

    assert rate(10**8 * factor) >= rate(10**8)


@given(st.sampled_from(["0", "5", "6", "10", "1+0", "0+1"]), ACCESSES)
def test_never_more_than_the_media(level: str, access: Access) -> None:
    assert expect(level, 6, access).terms["disks"] <= 6 * 100


@given(st.integers(4, 12), st.integers(1, 11), st.sampled_from(["5", "6"]))
def test_a_whole_stripe_is_never_below_a_part(count: int, chunks: int, level: str) -> None:
    spec = stack(level, count)
    geometry = spec.array.geometry
    assert geometry is not None
    part = min(chunks, geometry.data_disks) * 64 * KIB
    access = local(part, sequential=False, depth=64)
    whole = local(geometry.data_disks * 64 * KIB, sequential=False, depth=64)
    assert expect(level, count, whole).mb_s >= expect(level, count, access).mb_s * (1 - 1e-9)


@given(st.integers(1, 16), st.integers(1, 16), st.integers(1, 64))
def test_busy_members(members: int, width: int, outstanding: int) -> None:
    busy = busy_members(members, min(width, members), outstanding)
    assert min(width, members) - 1e-9 <= busy <= members
    assert busy_members(members, min(width, members), outstanding + 1) >= busy


def test_larger_chunks_keep_more_small_reads_apart() -> None:
    access = local(64 * KIB, sequential=False, read_share=1, depth=64)
    rates = [expect("0", 4, access, chunk=size * KIB).mb_s for size in (16, 32, 64, 128)]
    assert rates == sorted(rates)


def test_flash_overlaps_its_channels() -> None:
    shallow, deep = (random_ms(SSD, 4096, write=False, depth=depth) for depth in (1, 32))
    assert deep < shallow / 4


def test_what_falls_short_is_flagged() -> None:
    found = expect("5", 4, local(MIB, direct=False))
    short = compare(found.mb_s * 0.69, found)
    assert short.flagged
    assert short.cause is not None
    assert "disks" in short.cause
    assert compare(found.mb_s * 0.71, found).cause is None


@pytest.mark.parametrize("wrong", [{"size": 0}, {"read_share": 1.5}, {"span": 0}, {"sync_every": 0}])
def test_no_access(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"at least|must be from 0 to 1"):
        Access(**{"size": 4096, **wrong})


def test_nothing_is_expected_of_a_mirror_with_write_mostly_members() -> None:
    alike = stack("1", 2)
    flagged = alike.model_copy(update={"array": alike.array.model_copy(update={"write_mostly": 1})})
    assert expected(hardware(2), alike, local()) is not None
    assert expected(hardware(2), flagged, local()) is None
