"""Arrays of LVM: requests, commands, parsers on output of lvm2 2.03.31 with Linux 6.12, and the array of a machine."""

import struct
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.command import CommandFailed, Completed
from raidproof.core.errors import DeadlineExceeded, NotEffective, RequestError, RequirementMissing, RigError
from raidproof.core.units import KIB, MIB
from raidproof.storage.array import ExpectedDeviation, capacity
from raidproof.storage.array.dm_superblock import RaidSuperblock, group_of, parse_superblock
from raidproof.storage.array.lvm import (
    BITMAP_AT,
    DEVICE,
    IMAGE,
    META,
    LvmArray,
    LvmSpec,
    parse_lvs,
    parse_pvs,
    parse_status,
    parse_table,
    place_of,
)
from raidproof.storage.array.striping import Assembled
from raidproof.storage.array.superblock import IN_SYNC, SPARE
from tests.guest_files import FilesByCommands

DATA = Path(__file__).parents[2] / "data" / "lvm"
LVS = (DATA / "raid5.lvs.json").read_text()
PVS = (DATA / "raid5.pvs.json").read_text()
STATUS = "0 1130496 raid raid5_ls 4 AAAA 376832/376832 idle 0 0 -\n"
TABLE = "0 1130496 raid raid5_ls 3 128 region_size 4096 4 252:0 252:1 252:2 252:3 252:4 252:5 252:6 252:7\n"
SUPERBLOCK = """ 44 6d 52 64 01 00 00 00 04 00 00 00 01 00 00 00
 03 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
 ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff
 05 00 00 00 02 00 00 00 80 00 00 00 00 00 00 00
 ff ff ff ff ff ff ff ff 05 00 00 00 02 00 00 00
 80 00 00 00 00 00 00 00 00 40 11 00 00 00 00 00
 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
 00 c0 05 00 00 00 00 00 00 00 00 00 00 00 00 00
"""
"""The superblock of the second member of four, as od(1) prints it."""
GROUP_ID = "CsK2vN-E70P-NchV-4Kea-AurX-ZxJd-CoRIAr"
DISKS = tuple(f"disk{number}" for number in range(6))


def spec_of(level: str = "5", members: int = 4, **asked: Any) -> LvmSpec:
    chunk = {} if level == "1" else {"chunk_size": 64 * KIB}
    return LvmSpec.model_validate({"level": level, "members": DISKS[:members], "assume_clean": True, **chunk, **asked})


def superblock(slot: int, **changes: int) -> bytes:
    data = bytearray(bytes.fromhex(SUPERBLOCK.replace("\n", " ")))
    struct.pack_into("<I", data, 12, slot)
    for at, value in (("failed", 24), ("recovery", 32), ("resync", 40)):
        if at in changes:
            struct.pack_into("<Q", data, value, changes[at])
    return bytes(data)


@pytest.mark.parametrize(
    ("level", "members", "words"),
    [
        ("5", 4, ["--type", "raid5", "--stripes", "3", "--stripesize", "64k", "--nosync"]),
        ("1", 3, ["--type", "raid1", "--mirrors", "2", "--nosync"]),
        ("10", 4, ["--type", "raid10", "--mirrors", "1", "--stripes", "2", "--stripesize", "64k", "--nosync"]),
        # lvcreate: "nosync option prohibited on RAID6."
        ("6", 5, ["--type", "raid6", "--stripes", "3", "--stripesize", "64k"]),
    ],
)
def test_the_volume_has_the_requested_level(level: str, members: int, words: list[str]) -> None:
    spec = spec_of(level, members)
    pvcreate, vgcreate, lvcreate = spec.create_commands()
    assert lvcreate[4 : 4 + len(words)] == words
    assert ("--nosync" in lvcreate) == spec.skips_resync == bool(spec.caveats())
    assert pvcreate[-members:] == vgcreate[-members:] == lvcreate[-members:] == list(spec.paths)


def test_checksums_need_a_first_resync_and_room() -> None:
    spec = spec_of(integrity="bitmap")
    lvcreate = spec.create_commands()[-1]
    assert "--nosync" not in lvcreate
    assert lvcreate[lvcreate.index("--raidintegritymode") + 1] == "bitmap"
    assert lvcreate[lvcreate.index("--extents") + 1] == "60%FREE"
    assert spec.unreadable is not None
    assert spec_of().unreadable is None


@pytest.mark.parametrize(
    ("level", "members", "message"),
    [
        ("0", 4, "level of array kind lvm"),
        ("1+0", 4, "level of array kind lvm"),
        ("6", 4, "RAID6 needs at least 5 members, not 4"),
        ("10", 5, "an even number of members, not 5"),
    ],
)
def test_what_lvm_cannot_create_is_refused(level: str, members: int, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        spec_of(level, members)


@given(st.sampled_from(["1", "5", "6", "10"]), st.integers(2, 6))
def test_capacity_and_geometry_make_sense(level: str, members: int) -> None:
    try:
        spec = spec_of(level, members)
    except RequestError:
        return
    assert 256 * MIB <= capacity(spec, 256 * MIB) <= members * 256 * MIB
    assert spec.device_paths == (DEVICE,)
    assert spec.duties() == {serial: f"MEMBER-{number}" for number, serial in enumerate(spec.members, 1)}


def test_a_checker_considers_no_disk_but_the_members() -> None:
    checking = spec_of().checking()
    ((device, up, _, name, _),) = checking.assemble
    (down,) = checking.stop
    assert (device, name) == (DEVICE, "raidproof-array")
    assert up[:2] == down[:2] == ("vgchange", f"--devices={','.join(spec_of().paths)}")
    assert (up[3], down[3]) == ("y", "n")


def test_a_checker_activates_the_array_without_a_lost_member() -> None:
    whole, checking = spec_of(), spec_of().checking(without=["disk1"])
    left = f"--devices={','.join(path for path in whole.paths if not path.endswith('disk1'))}"
    assert left != whole.only_members
    assert checking.assemble[0].command[1:4] == (left, "--activationmode", "degraded")
    assert checking.stop[0][1] == left


def test_real_reports_are_read() -> None:
    volumes = parse_lvs(LVS)
    assert place_of(volumes["array_rimage_2"].devices) == ("/dev/vdc", 1)
    assert place_of(volumes["array_rmeta_3"].devices) == ("/dev/vdd", 0)
    assert place_of(volumes["array"].devices) is None
    assert parse_pvs(PVS)["/dev/vdb"] == ("7Mo21v-p7rm-h036-0LAv-D4DF-iE1a-QMVb6e", GROUP_ID)
    assert parse_status(STATUS) == ("raid5_ls", "AAAA", 376832, 376832, "idle", 0)
    assert parse_table(TABLE) == ("raid5_ls", 64 * KIB, 2 * MIB, 4)
    assert parse_table("0 73728 raid raid1 4 0 nosync region_size 4096 1 252:0 252:1\n").chunk_size is None


@given(st.integers(0, len(LVS) - 20))
def test_a_truncated_report_is_refused(length: int) -> None:
    with pytest.raises(RigError):
        parse_lvs(LVS[:length])
    with pytest.raises(RigError):
        parse_pvs(PVS[: min(length, len(PVS) - 20)])


@given(st.integers(0, len(STATUS) - 4))
def test_a_truncated_status_is_refused(length: int) -> None:
    with pytest.raises(RigError):
        parse_status(STATUS[:length])


@given(st.integers(0, len(TABLE) - 8))
def test_a_truncated_table_is_refused(length: int) -> None:
    with pytest.raises(RigError):
        parse_table(TABLE[:length])


def test_the_superblock_of_a_member_is_read() -> None:
    found = parse_superblock(superblock(1))
    assert found == RaidSuperblock(4, 1, 3, 0, IN_SYNC, IN_SYNC, 5, 2, 64 * KIB, 376832)
    assert parse_superblock(bytes(128)) is None
    assert parse_superblock(superblock(1)[:64]) is None


def member(slot: int, **changes: int) -> bytes:
    """The first 6 MiB of a member: LVM's header and metadata, and the superblock of the target."""
    text = f'raidproof {{\nid = "{GROUP_ID}"\nseqno = 3\n}}\n'.encode()
    data = bytearray(6 * MIB)
    offset = 1044480 - 40  # the text continues at the begin of the area
    struct.pack_into("<I16sIQQQQ", data, 4096, 0, b" LVM2 x[5A%r0N*>", 1, 4096, 1044480, offset, len(text))
    data[4096 + offset : 4096 + 1044480] = text[:40]
    data[4096 + 512 : 4096 + 512 + len(text) - 40] = text[40:]
    data[META : META + 128] = superblock(slot, **changes)
    return bytes(data)


def read_from(data: bytes, at: int, size: int) -> bytes:
    return data[at : at + size]


def test_the_metadata_of_the_members_gives_the_array_that_would_be_assembled() -> None:
    spec = spec_of()
    found = {slot: spec.superblock(partial(read_from, member(slot))) for slot in range(4)}
    array = Assembled.of(found)
    assert array is not None
    assert array.superblock.uuid == GROUP_ID
    assert array.superblock.clean
    assert array.incomplete is None
    assert array.members == {slot: slot for slot in range(4)}
    assert set(array.data_offsets.values()) == {IMAGE}
    assert set(array.bitmap_offsets.values()) == {META + BITMAP_AT}
    assert (array.striping.chunk_size, array.striping.members) == (64 * KIB, 4)


def test_a_failed_member_is_left_out() -> None:
    spec = spec_of()
    data = member(0, failed=1 << 2, resync=128)
    one = spec.superblock(lambda at, size: data[at : at + size])
    assert one is not None
    assert one.roles == (0, 1, SPARE, 3)
    assert one.active == (0, 1, 3)
    assert one.resync_offset == 128 * 512


def test_a_disk_without_a_label_is_no_member() -> None:
    assert spec_of().superblock(lambda _, size: bytes(size)) is None
    assert group_of(lambda _, size: bytes(size)) is None
    assert group_of(lambda _, __: b"") is None


class Server(FilesByCommands):
    """A fake machine with one logical volume, as it was when the output was recorded."""

    name = "server"
    address = "10.77.0.10"

    def __init__(self, **answers: str) -> None:
        self.status = [STATUS]
        self.answers = {"lvs": LVS, "pvs": PVS, **answers}
        self.log = ""
        self.typed: list[str] = []

    def run(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = 1.0) -> Completed:
        self.typed.append(" ".join(argv))
        answer = getattr(self, f"_{argv[0]}", lambda _: self.answers.get(argv[0], ""))(list(argv))
        return Completed(tuple(argv), 0, answer, "", self.name)

    def succeed(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = 1.0) -> str:
        return self.run(argv, stdin=stdin, deadline_s=deadline_s).stdout

    def _realpath(self, argv: list[str]) -> str:
        return "".join(f"/dev/vd{'abcd'[int(path[-1])]}\n" for path in argv[2:])

    def _dmsetup(self, argv: list[str]) -> str:
        if argv[1] == "table":
            return self.answers.get("table", TABLE)
        return self.status.pop(0) if len(self.status) > 1 else self.status[0]

    def _od(self, argv: list[str]) -> str:
        return " ".join(f"{byte:02x}" for byte in superblock(int(argv[-1][-1])))

    def _grep(self, argv: list[str]) -> str:
        values = {"minimum_io_size": "65536", "optimal_io_size": "196608", "write_cache": "write back"}
        return "".join(f"{path}:{values[path.rpartition('/')[2]]}\n" for path in argv[3:])

    def _dmesg(self, _: list[str]) -> str:
        return self.log

    def _lvchange(self, argv: list[str]) -> str:
        if "check" in argv:
            self.log += "md: check of RAID array mdX\nmd: mdX: check done.\n"
        return ""


def array(server: Server | None = None, **asked: Any) -> LvmArray:
    return LvmArray(spec_of(**asked), server or Server())


def test_the_state_is_read_back() -> None:
    state = array().require_effective()
    assert state.clean
    assert [member.device for member in state.top.members] == list(spec_of().paths)
    assert [member.kernel_name for member in state.top.members] == ["vda", "vdb", "vdc", "vdd"]
    assert {member.state for member in state.top.members} == {("in_sync",)}
    assert (state.top.level, state.top.layout, state.top.optimal_io_size) == ("5", "left-symmetric", 196608)


@pytest.mark.parametrize(
    ("asked", "answers", "field"),
    [
        ({"chunk_size": 32 * KIB}, {}, "chunk_size"),
        ({}, {"lvs": LVS.replace("/dev/vdb(", "/dev/vdz(")}, "inputs"),
        ({}, {"lvs": LVS.replace("/dev/vdb(1)", "/dev/vdb(7)")}, "data_extent"),
        ({}, {"lvs": LVS.replace("/dev/vdb(0)", "/dev/vdb(90)")}, "metadata_extent"),
        ({"integrity": "journal"}, {}, "integrity"),
    ],
)
def test_another_state_than_the_requested_one_is_refused(
    asked: dict[str, Any], answers: dict[str, str], field: str
) -> None:
    with pytest.raises(NotEffective, match=field):
        array(Server(**answers), **asked).require_effective()


def test_a_dead_member_is_not_accepted() -> None:
    server = Server()
    server.status = [STATUS.replace("AAAA", "ADAA")]
    with pytest.raises(NotEffective, match="lacks: disk1"):
        array(server).activate()
    assert array(server).state().top.degraded == 1
    assert "disk1" not in str(array(server).scrub().mismatch_cnt)
    assert "degraded: 1 members" in array(server).scrub().unchecked[DEVICE]


@pytest.mark.parametrize(
    "status", [STATUS.replace("AAAA", "AAAa").replace("idle", "resync"), STATUS.replace("AAAA", "aaaa")]
)
def test_an_array_that_is_not_in_sync_is_not_clean(status: str) -> None:
    server = Server()
    server.status = [status]
    assert not array(server).state().clean
    with pytest.raises(DeadlineExceeded):
        array(server).wait_clean(0.05)


def test_a_scrub_counts_what_the_check_found_and_repairs_it() -> None:
    server = Server()
    differing = STATUS.replace(" idle 0 ", " idle 8 ")
    server.status = [STATUS, STATUS.replace(" idle ", " check "), differing, STATUS, STATUS]
    scrub = array(server).scrub()
    assert scrub.mismatch_cnt == {DEVICE: 8}
    assert scrub.repaired == {DEVICE: 0}
    assert [line.split()[3] for line in server.typed if line.startswith("lvchange")] == ["check", "repair", "check"]


def test_a_check_that_did_not_run_is_an_error_of_the_rig() -> None:
    class Idle(Server):
        def _lvchange(self, _: list[str]) -> str:
            return ""

    with pytest.raises(RigError, match="did not run the requested check"):
        array(Idle()).scrub()


def test_each_member_has_the_identity_of_its_metadata() -> None:
    found = array().identities()
    assert [found[serial].slot for serial in DISKS[:4]] == [0, 1, 2, 3]
    assert {one.array_uuid for one in found.values()} == {GROUP_ID}
    assert len({one.device_uuid for one in found.values()}) == 4
    assert {one.events for one in found.values()} == {3}
    lost = Server(pvs=PVS.replace("/dev/vdb", "/dev/vdz"))
    assert "disk1" not in array(lost).identities()


def test_a_member_is_taken_out_by_errors_and_back_by_a_refresh() -> None:
    server = Server()
    one = array(server)
    one.take_out("disk1")
    one.take_back("disk1")
    commands = [line for line in server.typed if not line.startswith("dmsetup table")]
    assert commands == [
        *(
            command
            for name in ("raidproof-array_rmeta_1", "raidproof-array_rimage_1")
            for command in (
                f"dmsetup load {name} --table 0 1130496 error",
                f"dmsetup suspend --noflush --nolockfs {name}",
                f"dmsetup resume {name}",
            )
        ),
        f"lvchange {spec_of().only_members} --refresh raidproof/array",
    ]


@pytest.mark.parametrize(
    ("health", "lvs"),
    [("ADAA", (DATA / "raid5-errors.lvs.json").read_text()), ("ADAA", LVS), ("A-AA", LVS)],
)
def test_a_member_that_a_fault_took_out_may_be_missing(health: str, lvs: str) -> None:
    server = Server(lvs=lvs)
    server.status = [STATUS.replace("AAAA", health)]
    one = array(server)
    one.expected_deviation = ExpectedDeviation(absent=frozenset({"disk1"}))
    assert one.activate().top.degraded == 1
    one.deactivate()
    left = f"--devices={','.join(path for path in spec_of().paths if not path.endswith('disk1'))}"
    assert [line for line in server.typed if line.startswith("vgchange")] == [
        f"vgchange {left} --activationmode degraded --activate y raidproof",
        f"vgchange {left} --activate n raidproof",
    ]
    one.expected_deviation = ExpectedDeviation(absent=frozenset({"disk2"}))
    with pytest.raises(NotEffective, match="lacks: disk1"):
        one.activate()


def test_a_member_that_does_not_exist_is_not_taken_out() -> None:
    with pytest.raises(RequestError, match="lost member"):
        array().take_out("disk9")


@pytest.mark.parametrize("integrity", ["journal", "bitmap"])
def test_lvm_does_not_activate_a_volume_with_integrity_without_a_member(integrity: str) -> None:
    with pytest.raises(RequestError, match="without disk1: vgchange --activationmode degraded refuses it"):
        spec_of(integrity=integrity).refuse_loss("disk1")
    spec_of().refuse_loss("disk1")


def test_members_of_a_volume_are_not_maintained() -> None:
    with pytest.raises(RequirementMissing, match="kind lvm"):
        array().upkeep("disk1")


def test_a_failed_command_is_raised() -> None:
    class Broken(Server):
        def succeed(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = 1.0) -> str:
            if argv[0] == "vgchange":
                raise CommandFailed(Completed(tuple(argv), 5, "", "no", self.name))
            return super().succeed(argv, stdin=stdin, deadline_s=deadline_s)

    with pytest.raises(CommandFailed):
        array(Broken()).activate()
