"""The RAID of btrfs: requests, parsers on output of btrfs-progs 6.14 with Linux 6.12, and the devices of a machine."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.command import DEFAULT_DEADLINE_S, CommandFailed, Completed
from raidproof.core.errors import DeadlineExceeded, NotEffective, RequestError, RequirementMissing, RigError
from raidproof.core.units import KIB, MIB
from raidproof.storage.array import ExpectedDeviation, capacity, holders_of_old_data
from raidproof.storage.array.btrfs import (
    SCRUBBED,
    BtrfsRaid,
    BtrfsRaidSpec,
    MemberSuper,
    parse_data_chunks,
    parse_member,
    parse_scrub,
    wrong_blocks,
)
from raidproof.storage.stack import Stack, StackSpec
from tests.guest_files import FilesByCommands

DATA = Path(__file__).parents[2] / "data" / "btrfs-progs"
SUPER = (DATA / "dump-super-6.14-raid5.txt").read_text()
ERASED = (DATA / "dump-super-6.14-erased.txt").read_text()
CHUNKS = {level: (DATA / f"dump-tree-6.14-chunk-raid{level}.txt").read_text() for level in ("1", "5", "6")}
CLEAN = (DATA / "scrub-6.14-clean.txt").read_text()
WRONG = CLEAN.replace("csum_errors: 0", "csum_errors: 48")
DISKS = tuple(f"disk{number}" for number in range(6))
FSID = "fc19b062-4a82-4400-8fcd-04bfaee08cdb"


def spec_of(level: str = "5", members: int = 4, **asked: Any) -> BtrfsRaidSpec:
    return BtrfsRaidSpec.model_validate({"level": level, "members": DISKS[:members], **asked})


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"level": "0"}, "level of array kind btrfs: unknown value '0'"),
        ({"level": "1+0"}, "level of array kind btrfs: unknown value '1+0'"),
        ({"level": "10", "members": DISKS[:3]}, "RAID10 needs at least 4 members, not 3"),
        ({"level": "6", "members": DISKS[:3]}, "RAID6 needs at least 4 members, not 3"),
        ({"chunk_size": "512KiB"}, "chunk size 512KiB: the stripe unit of btrfs is always 64KiB; leave"),
        ({"level": "1", "chunk_size": "64KiB"}, "RAID1 does not divide its data into chunks"),
    ],
)
def test_what_btrfs_cannot_create_is_refused(asked: dict[str, Any], reason: str) -> None:
    with pytest.raises(RequestError, match=re.escape(reason)):
        BtrfsRaidSpec.model_validate({"members": DISKS[:4], **asked})


@pytest.mark.parametrize(
    ("array", "filesystem", "reason"),
    [
        ({"type": "btrfs"}, {"type": "xfs"}, 'it cannot carry xfs; write filesystem = "btrfs", or raid = "md"'),
        ({}, {"type": "btrfs", "data_profile": "raid5"}, 'the array is one device; write raid = "btrfs" and a level'),
        ({}, {"type": "btrfs", "metadata_profile": "raid1"}, "metadata_profile raid1 needs several devices"),
        ({"type": "btrfs"}, {"type": "btrfs", "data_profile": "raid1"}, "leave data_profile out, or write level = 1"),
        ({"type": "btrfs"}, {"type": "btrfs", "data_profile": "single"}, "keeps no copy on another device; leave"),
        ({"type": "btrfs"}, {"type": "btrfs", "metadata_profile": "dup"}, "keeps no copy on another device; leave"),
        ({"type": "btrfs"}, {"type": "btrfs", "metadata_profile": "raid6"}, "only with level 6, not 5"),
        (
            {"type": "btrfs", "level": 1, "members": DISKS[:2]},
            {"type": "btrfs", "metadata_profile": "raid1c3"},
            "metadata_profile raid1c3 needs at least 3 members, not 2",
        ),
    ],
)
def test_file_systems_and_profiles_that_do_not_fit_are_refused(
    array: dict[str, Any], filesystem: dict[str, Any], reason: str
) -> None:
    with pytest.raises(RequestError, match=re.escape(reason)):
        StackSpec.model_validate({"array": {"level": 5, "members": DISKS[:4], **array}, "filesystem": filesystem})


def test_a_setting_of_the_device_of_an_array_is_refused() -> None:
    stack = {"array": spec_of(), "filesystem": {"type": "btrfs"}, "tuning": {"array_read_ahead": "1MiB"}}
    with pytest.raises(RequestError, match="raid = btrfs makes no device; leave array_read_ahead out"):
        StackSpec.model_validate(stack)


def test_a_volume_is_refused() -> None:
    stack = {"array": spec_of(), "filesystem": {"type": "btrfs"}, "volume": {"type": "crypt"}}
    with pytest.raises(RequestError, match="volume = crypt needs the device of an array, but raid = btrfs makes none"):
        StackSpec.model_validate(stack)


@pytest.mark.parametrize(
    ("level", "profiles"),
    [("1", "raid1 -m raid1"), ("10", "raid10 -m raid1"), ("5", "raid5 -m raid1"), ("6", "raid6 -m raid1c3")],
)
def test_the_file_system_is_created_on_all_members(level: str, profiles: str) -> None:
    stack = StackSpec.model_validate({"array": spec_of(level), "filesystem": {"type": "btrfs"}})
    assert stack.array.create_commands() == []
    made = " ".join(stack.filesystem.mkfs_command(stack.array.device, stack.array.geometry))
    assert f"-d {profiles} --csum" in made
    assert made.endswith(" ".join(spec_of(level).paths))
    asked = stack.filesystem.asked(stack.array.geometry)
    assert f"{asked['data_profile']} -m {asked['metadata_profile']}" == profiles
    assert StackSpec.model_validate(stack.model_dump(mode="json")) == stack


@given(st.sampled_from(["1", "5", "6", "10"]), st.integers(2, 6))
def test_capacity_and_copies_make_sense(level: str, members: int) -> None:
    try:
        spec = spec_of(level, members)
    except RequestError:
        return
    copied = {"1": 2, "10": 2}.get(level)
    data = members // copied if copied and level == "10" else members - spec.kind.parity
    expected = members * 256 * MIB // 2 if copied else data * 256 * MIB
    assert capacity(spec, 256 * MIB) == expected
    assert spec.raid.copies == (copied or 1)
    assert 1 <= spec.raid.most_lost <= 3
    assert spec.geometry.separate is not None
    assert spec.geometry.separate.devices == spec.paths
    assert bool(spec.caveats()) == (spec.kind.parity > 0)
    assert set(holders_of_old_data(spec)) <= set(spec.members)


def test_raid1_has_two_copies_on_any_number_of_disks() -> None:
    assert (spec_of("1", 4).raid.copies, spec_of("1", 4).raid.most_lost) == (2, 1)


def test_a_checker_makes_the_devices_known_and_unknown() -> None:
    checking = spec_of().checking()
    ((_, known, *_),) = checking.assemble
    (unknown,) = checking.stop
    assert known == ("btrfs", "device", "scan", *spec_of().paths)
    assert unknown == ("btrfs", "device", "scan", "--forget", *spec_of().paths)


def test_real_output_is_read() -> None:
    assert parse_member(SUPER) == MemberSuper(FSID, "f629944d-d351-4b56-b7de-fa5830e284b5", 1, 4, 8)
    assert parse_member(ERASED) is None
    assert [parse_data_chunks(text) for text in CHUNKS.values()] == [
        (("raid1",), (64 * KIB,)),
        (("raid5",), (64 * KIB,)),
        (("raid6",), (64 * KIB,)),
    ]
    two = CHUNKS["5"] + CHUNKS["5"].replace("DATA|RAID5", "DATA")
    assert parse_data_chunks(two)[0] == ("raid5", "single")
    assert wrong_blocks(parse_scrub(CLEAN)) == 0
    assert wrong_blocks(parse_scrub(WRONG)) == 48


@given(st.integers(0, len(SUPER) - 5))
def test_a_truncated_superblock_is_refused(length: int) -> None:
    with pytest.raises(RigError):
        parse_member(SUPER[:length])


@given(st.integers(0, len(CLEAN) - 12))
def test_a_truncated_scrub_is_refused(length: int) -> None:
    with pytest.raises(RigError):
        parse_scrub(CLEAN[:length])


def test_a_scrub_that_did_not_end_is_refused() -> None:
    with pytest.raises(RigError, match="its status is aborted"):
        parse_scrub(CLEAN.replace("finished", "aborted"))


def test_chunks_without_data_are_refused() -> None:
    with pytest.raises(RigError, match="expected a chunk with data"):
        parse_data_chunks(CHUNKS["5"].partition("\titem 6")[0])


class BtrfsServer(FilesByCommands):
    """A fake machine with four disks, whose tools print the stored texts."""

    name = "server"
    address = "10.77.0.10"

    def __init__(self, spec: BtrfsRaidSpec) -> None:
        self.spec = spec
        self.said: list[str] = []
        self.chunks = CHUNKS[spec.level]
        self.erased: set[str] = set()
        self.other: set[str] = set()
        self.missing: set[int] = set()
        """Numbers of the devices without which the file system is mounted."""
        self.scrubs = [CLEAN]
        """What each scrub prints; the last text repeats."""
        self.scrub_status = 0
        self.with_raid6 = False

    def require_raid6(self) -> None:
        self.with_raid6 = True

    def missing_file(self, number: int) -> str:
        return f"/sys/fs/btrfs/{FSID}/devinfo/{number}/missing"

    def superblock(self, path: str) -> Completed:
        if path in self.erased:
            return Completed((), 1, ERASED.partition("ERROR")[0], "ERROR: bad magic on superblock", self.name)
        number = self.spec.paths.index(path) + 1
        text = SUPER.replace("dev_item.devid\t\t1", f"dev_item.devid\t\t{number}")
        text = text.replace("f629944d", f"0000000{number}")
        return Completed((), 0, text.replace("fc19b062", "99999999") if path in self.other else text, "", self.name)

    def run(
        self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> Completed:
        self.said.append(" ".join(argv))
        said, status = "", 0
        match list(argv):
            case ["btrfs", "inspect-internal", "dump-super", path]:
                return self.superblock(path)
            case ["btrfs", "inspect-internal", "dump-tree", "-t", "chunk", _]:
                said = self.chunks
            case ["btrfs", "scrub", "start", *_]:
                said = self.scrubs.pop(0) if len(self.scrubs) > 1 else self.scrubs[0]
                status = self.scrub_status if said else 1
            case ["realpath", _, *paths]:
                said = "".join(f"/dev/vd{'abcdef'[DISKS.index(path[-5:])]}\n" for path in paths)
            case ["grep", "-sH", "", *paths]:
                values = {"write_cache": "write back", "minimum_io_size": "512"}
                values |= {path: "1" for path in paths if path in map(self.missing_file, self.missing)}
                said = "".join(
                    f"{path}:{values.get(path) or values.get(path.rpartition('/')[2], '0')}\n" for path in paths
                )
            case ["btrfs", "device", "scan", *paths] if self.erased & set(paths) and "--forget" not in paths:
                status = 1
        return Completed(tuple(argv), status, said, "", self.name)

    def succeed(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S) -> str:
        ended = self.run(argv)
        if not ended.ok:
            raise CommandFailed(ended)
        return ended.stdout


def raid_of(level: str = "5") -> tuple[BtrfsRaid, BtrfsServer]:
    spec = spec_of(level)
    server = BtrfsServer(spec)
    return spec.array(server), server


def test_the_state_has_all_devices() -> None:
    array, server = raid_of()
    array.activate()
    (state,) = array.require_effective().devices
    assert [(one.slot, one.kernel_name, one.state) for one in state.members] == [
        (slot, f"vd{'abcd'[slot]}", ("in_sync",)) for slot in range(4)
    ]
    assert (state.level, state.raid_disks, state.degraded, state.clean) == ("5", 4, 0, True)
    assert (state.write_cache, state.chunk_size, state.checksummed) == ("write back", 64 * KIB, True)
    assert array.wait_clean(0.0).clean
    assert not server.with_raid6
    found = array.identities()
    assert (found["disk2"].slot, found["disk2"].events, found["disk2"].array_uuid) == (2, 8, FSID)
    assert len({one.device_uuid for one in found.values()}) == 4


def test_only_two_parities_need_other_algorithms_of_the_kernel() -> None:
    array, server = raid_of("6")
    array.create()
    assert server.with_raid6


def test_before_the_file_system_exists_nothing_is_found() -> None:
    array, server = raid_of()
    server.erased = set(spec_of().paths)
    array.create()
    state = array.wait_clean(0.0)
    assert (state.clean, state.top.degraded, state.top.members) == (False, 4, ())
    assert array.identities() == {}
    with pytest.raises(NotEffective, match="inputs: requested"):
        array.require_effective()


@pytest.mark.parametrize("kind", ["erased", "other"])
def test_a_missing_device_is_found(kind: str) -> None:
    array, server = raid_of()
    getattr(server, kind).add(spec_of().paths[1])
    state = array.state().top
    assert (state.degraded, state.clean, [one.slot for one in state.members]) == (1, False, [0, 2, 3])
    with pytest.raises(NotEffective, match="inputs: requested"):
        array.require_effective()
    with pytest.raises(DeadlineExceeded, match="to have all its devices"):
        array.wait_clean(0.0)


def test_a_device_without_a_superblock_cannot_be_made_known() -> None:
    array, server = raid_of()
    server.erased.add(spec_of().paths[3])
    with pytest.raises(CommandFailed):
        array.activate()


@pytest.mark.parametrize("profile", ["DATA|RAID1", "DATA", "DATA|RAID0"])
def test_another_profile_is_not_effective(profile: str) -> None:
    array, server = raid_of()
    server.chunks = CHUNKS["5"].replace("DATA|RAID5", profile)
    with pytest.raises(NotEffective, match="requested"):
        array.require_effective()


def test_a_second_profile_is_not_effective() -> None:
    array, server = raid_of()
    server.chunks = CHUNKS["5"] + CHUNKS["5"].replace("DATA|RAID5", "DATA|RAID1")
    with pytest.raises(NotEffective, match="effective raid1 and raid5"):
        array.state()


def test_a_scrub_without_errors() -> None:
    array, server = raid_of("1")
    found = array.scrub()
    assert (found.mismatches, found.unchecked, found.repaired) == (0, {}, {})
    assert server.said[-1] == f"umount {SCRUBBED}"


def test_a_scrub_counts_wrong_blocks_and_corrects_them() -> None:
    array, server = raid_of("5")
    server.scrubs = [WRONG, CLEAN]
    found = array.scrub()
    assert (found.mismatches, found.repaired) == (48 * 8, {array.device: 0})
    assert "does not count parity" in found.unchecked[array.device]
    # A read-only scrub writes parity of wrong data.
    scrub = f"btrfs scrub start -B -R {SCRUBBED}"
    assert server.said == [
        f"mount --mkdir --types btrfs {array.device} {SCRUBBED}",
        scrub,
        scrub,
        f"umount {SCRUBBED}",
    ]
    server.scrubs = [WRONG]
    assert array.scrub().repaired == {array.device: 48 * 8}


def test_blocks_without_checksums_are_not_verified() -> None:
    array, server = raid_of("1")
    server.scrubs = [CLEAN.replace("no_csum: 0", "no_csum: 7")]
    assert array.scrub().unchecked[array.device].startswith("7 blocks of data have no checksum")


def test_a_scrub_that_does_not_run_is_an_error_and_the_file_system_is_unmounted() -> None:
    array, server = raid_of()
    server.scrubs = [""]
    with pytest.raises(RigError, match="btrfs scrub: status not found"):
        array.scrub()
    assert server.said[-1] == f"umount {SCRUBBED}"


def test_an_interrupted_scrub_is_an_error() -> None:
    array, server = raid_of()
    server.scrub_status = 2
    with pytest.raises(RigError, match="did not run, exit status 2"):
        array.scrub()


def test_the_superblocks_of_all_members_are_erased() -> None:
    array, server = raid_of()
    array.destroy()
    assert server.said[-1] == f"wipefs --all {' '.join(spec_of().paths)}"


def test_a_member_is_left_out_of_the_next_mount_and_rebuilt_on_its_erased_disk() -> None:
    array, server = raid_of()
    assert not array.mount_options
    array.take_out("disk1")
    array.expected_deviation = ExpectedDeviation(absent=frozenset({"disk1"}))
    array.activate()
    left = " ".join(path for path in spec_of().paths if not path.endswith("disk1"))
    assert f"btrfs device scan {left}" in server.said
    assert array.mount_options == ("degraded",)
    server.missing = {2}
    (state,) = array.require_effective().devices
    assert (state.degraded, [one.slot for one in state.members]) == (1, [0, 2, 3])
    array.deactivate()
    assert server.said[-1] == f"btrfs device scan --forget {left}"
    server.said.clear()
    array.take_back("disk1")
    lost = spec_of().paths[1]
    assert server.said == [
        f"wipefs --all {lost}",
        f"btrfs device scan {left}",
        f"mount --mkdir --types btrfs --options degraded {array.device} {SCRUBBED}",
        f"btrfs replace start -B 2 {lost} {SCRUBBED}",
        f"umount {SCRUBBED}",
    ]


def test_another_member_than_the_one_that_was_taken_out_may_not_be_missing() -> None:
    array, server = raid_of()
    server.missing = {3}
    array.expected_deviation = ExpectedDeviation(absent=frozenset({"disk1"}))
    with pytest.raises(NotEffective, match="inputs: requested"):
        array.require_effective()


def test_the_member_by_which_the_file_system_is_mounted_is_not_taken_out() -> None:
    array, _ = raid_of()
    with pytest.raises(RequestError, match="mounted by its path"):
        array.take_out("disk0")


def test_faults_of_single_members_are_missing() -> None:
    array, _ = raid_of()
    with pytest.raises(RequirementMissing, match="an array of kind btrfs has no commands here that replace a member"):
        array.upkeep("disk1")


def test_the_stack_sets_no_kernel_settings_of_an_array() -> None:
    spec = StackSpec.model_validate({"array": spec_of(), "filesystem": {"type": "btrfs"}})
    assert Stack(spec, BtrfsServer(spec_of()), []).tuning.arrays == ()
