from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.units import GIB, KIB, MIB
from raidproof.disk.profile import Profile, load_profile
from raidproof.monitor.disk_model import Hardware, Member, seek_ms, turn_ms
from raidproof.monitor.sync_model import LONGEST, Region, SyncWrites, _Drive, assumed_placement, sync_seconds
from raidproof.storage.array import MdSpec
from raidproof.storage.filesystem import Ext4Spec, Extent, Placement, XfsSpec
from raidproof.workload.workload import Access

HDD, FAST, SSD = (load_profile(name) for name in ("hdd-7200-sata", "scsi-15k-72gb", "ssd-sata"))
SIZE = GIB
LEVELS = st.sampled_from(["0", "1", "5", "6", "10", "1+0", "0+1"])
DISKS = st.sampled_from([HDD, FAST, load_profile("ide-7200-2001")])
EXT4_WRITES, XFS_WRITES = (8 * KIB, 4 * KIB), (KIB,)


def array(level: str, count: int = 4) -> MdSpec:
    members = tuple(f"disk{number}" for number in range(count))
    chunk = {} if level == "1" else {"chunk_size": 64 * KIB}
    return MdSpec.model_validate({"level": level, "members": members, **chunk})


def walk(level: str = "1", profile: Profile = HDD, count: int = 4, **changes: Any) -> SyncWrites:
    """Return a walk with a file of 64 MiB at the beginning, and the log in the middle of the members."""
    spec = array(level, count)
    members = {f"disk{number}": Member(profile, size=SIZE) for number in range(count)}
    room = spec.raid.capacity(SIZE)
    file = Extent(offset=0, length=changes.pop("file", 64 * MIB))
    log = Extent(offset=round(changes.pop("log", 0.5) * room), length=16 * MIB)
    inside = None if "external_log" in changes else log
    placement = Placement(files=(file,), log=inside, log_writes=changes.pop("log_writes", XFS_WRITES))
    every = changes.pop("every", 4 * KIB)
    access = Access(size=4 * KIB, sequential=changes.pop("sequential", False), streams=changes.pop("streams", 1))
    return SyncWrites(Hardware(members), spec, **{"placement": placement, "access": access, "every": every, **changes})


def rate(*arguments: Any, **changes: Any) -> float:
    """Return the synchronous writes of one stream per second."""
    return 1 / walk(*arguments, **changes).seconds()


def test_a_mirror_seeks_to_the_file_and_back_to_the_log_and_waits_half_a_revolution_for_each() -> None:
    assert HDD.rotational is not None
    seek = seek_ms(HDD.rotational, 0.5 - 64 / 1024 / 2) + HDD.rotational.write_seek_extra_ms
    assert 1000 * walk().seconds() == pytest.approx(2 * seek + turn_ms(HDD.rotational), rel=0.05)


@given(DISKS, st.floats(0, 0.4), st.floats(0, 0.4))
def test_a_log_that_is_farther_away_is_never_faster(profile: Profile, near: float, more: float) -> None:
    distance = 64 / 1024 + near
    assert rate(profile=profile, log=distance + more) <= rate(profile=profile, log=distance) * 1.02


@given(LEVELS, DISKS, st.integers(32, 255), st.integers(1, 4))
def test_a_larger_file_is_never_faster(level: str, profile: Profile, size: int, factor: int) -> None:
    # A file of a few tracks does not have every angle: the wait for the log may always be short, or always long.
    log = Member(profile, size=SIZE)
    small, large = (
        rate(level, profile, file=file * MIB, external_log=log, stripe_cache=1) for file in (size, size * factor)
    )
    assert large <= small * 1.1


def test_a_file_on_more_tracks_takes_longer_seeks() -> None:
    small, large = (rate(file=file * MIB, external_log=Member(HDD, size=SIZE)) for file in (16, 1024))
    assert large < 0.8 * small


@given(DISKS, st.integers(1, 512), st.floats(0.1, 0.9), st.booleans(), st.booleans())
def test_no_mirror_syncs_more_than_once_in_a_revolution(
    profile: Profile, size: int, log: float, sequential: bool, flush_first: bool
) -> None:
    # The heads come back to the log, whose next sectors follow the last ones.
    assert profile.rotational is not None
    changes: dict[str, Any] = {"file": size * MIB, "log": log, "sequential": sequential, "flush_first": flush_first}
    assert 1000 * walk("1", profile, **changes).seconds() >= turn_ms(profile.rotational)


@given(LEVELS, DISKS, st.integers(64, 1024), st.sampled_from([XFS_WRITES, EXT4_WRITES]))
def test_every_sync_waits_for_data_half_a_revolution(
    level: str, profile: Profile, size: int, writes: tuple[int, ...]
) -> None:
    assert profile.rotational is not None
    seconds = walk(level, profile, file=size * MIB, log_writes=writes).seconds()
    assert 1000 * seconds >= turn_ms(profile.rotational) / 2


def test_a_pair_that_holds_no_log_seeks_less() -> None:
    assert rate("10") > 1.1 * rate("1")


def test_a_flush_before_the_commit_block_costs_most_of_a_revolution() -> None:
    assert HDD.rotational is not None
    late, early = (1000 * walk(log_writes=EXT4_WRITES, flush_first=first).seconds() for first in (True, False))
    assert 0.5 * turn_ms(HDD.rotational) < late - early < 1.1 * turn_ms(HDD.rotational)


def test_parity_is_read_first() -> None:
    assert rate("5") < 0.8 * rate("10")
    assert rate("6") < 1.05 * rate("5")


def test_md_reads_no_page_that_its_stripe_cache_holds() -> None:
    profile = replace(HDD, cache=replace(HDD.cache, read_ahead=0))
    spread, cached = (rate("5", profile, file=2 * MIB, stripe_cache=pages) for pages in (1, 1024))
    assert cached > 1.2 * spread


@pytest.mark.parametrize(
    ("level", "count", "length", "reads", "writes"),
    [
        # Of four members, reading the two other blocks is as cheap as reading old data and parity.
        ("5", 4, 4 * KIB, {1, 2}, {0, 3}),
        ("5", 6, 4 * KIB, {0, 5}, {0, 5}),
        ("5", 4, 192 * KIB, set(), {0, 1, 2, 3}),
        ("5", 4, KIB, {0, 3}, {0, 3}),
        ("6", 8, 4 * KIB, {0, 1, 7}, {0, 1, 7}),
        ("1", 4, 4 * KIB, set(), {0, 1, 2, 3}),
        ("10", 4, 4 * KIB, set(), {0, 1}),
    ],
)
def test_requests_of_a_write(level: str, count: int, length: int, reads: set[int], writes: set[int]) -> None:
    stripes = walk(level, count=count)._stripes
    read, written = stripes.requests(Extent(offset=0, length=length))
    assert ({one.slot for one in read}, {one.slot for one in written}) == (reads, writes)
    assert stripes.requests(Extent(offset=0, length=length))[0] == []


def test_streams_share_the_write_of_the_log() -> None:
    one, four = walk(streams=1).seconds(), walk(streams=4).seconds()
    assert one < four < 3 * one


def test_a_cache_that_survives_a_cut_needs_no_heads() -> None:
    seconds = walk("10", load_profile("nvme-plp")).seconds()
    assert 1e6 * seconds == pytest.approx(2 * 8, abs=5)


def test_flash_is_flushed_before_and_after_the_log() -> None:
    assert SSD.flash is not None
    page = (SSD.flash.program_us + SSD.flash.erase_us * SSD.flash.page / SSD.flash.erase_block) / 4
    flushes = 2 * (SSD.flash.flush_us + SSD.command_overhead_us)
    assert 1e6 * walk("1", SSD).seconds() == pytest.approx(flushes + page / 4 + 2 * 30, rel=0.1)


def test_bytes_beyond_the_longest_walk_take_the_rate_without_syncs() -> None:
    short, long = (walk(sequential=True, every=LONGEST * factor) for factor in (1, 3))
    assert sync_seconds(long, 100) == pytest.approx(sync_seconds(short, 100) + 2 * LONGEST / 1e8)


def test_a_new_file_system_has_its_log_in_the_middle() -> None:
    access = Access(size=4 * KIB, working_set=64 * MIB, sync_every=4 * KIB)
    found = assumed_placement(XfsSpec(), array("5"), 3 * GIB, access)
    assert found.log is not None
    assert (found.files, found.log.offset) == ((Extent(offset=0, length=64 * MIB),), 3 * GIB // 2)
    # mkfs.xfs aligns the log to the chunks.
    assert found.log_writes == (64 * KIB,)
    assert assumed_placement(Ext4Spec(), array("5"), 3 * GIB, access).log_writes == EXT4_WRITES
    assert assumed_placement(Ext4Spec(journal=False), array("5"), 3 * GIB, access).log_writes == ()
    assert assumed_placement(XfsSpec(log="disk9"), array("1"), GIB, access).log is None


def test_a_drive_reads_on_after_a_read_while_nothing_else_needs_the_heads() -> None:
    drive = _Drive(Hardware({}), Member(HDD, size=SIZE))
    first = drive.read(0.0, Region(0, 100 * MIB, 4 * KIB))
    assert first > 1
    later = first + 2.0
    # 2 ms at 250 MB/s are 500 kB.
    assert drive.read(later, Region(0, 100 * MIB + 256 * KIB, 4 * KIB)) - later < 0.2
    assert drive.read(later, Region(0, 100 * MIB + 768 * KIB, 4 * KIB)) - later > 0.5


def test_a_write_ends_the_read_ahead_of_a_drive() -> None:
    drive = _Drive(Hardware({}), Member(HDD, size=SIZE))
    first = drive.read(0.0, Region(0, 100 * MIB, 4 * KIB))
    drive.write(first, Region(0, 900 * MIB, 4 * KIB))
    later = first + 100.0
    assert drive.read(later, Region(0, 100 * MIB + 256 * KIB, 4 * KIB)) - later > 5


def test_files_that_a_drive_reads_ahead_are_read_sooner() -> None:
    assert rate("5", file=16 * MIB, stripe_cache=1) > 1.1 * rate("5", file=512 * MIB, stripe_cache=1)


def test_equal_walks_are_equal_and_others_are_not() -> None:
    assert walk() == walk()
    assert hash(walk()) == hash(walk())
    assert walk() != walk(every=8 * KIB)
    assert walk() != "walk"
    assert sync_seconds(walk()) == sync_seconds(walk()) == walk().seconds()
