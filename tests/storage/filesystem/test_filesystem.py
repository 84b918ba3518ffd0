# Under data/ is what the tools printed: both streams in one file, the device named /dev/md0, and the long list of
# e2fsck-1.47.0-corrupt shortened. The damage was made on purpose, with dd, debugfs and xfs_db.
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from raidproof.core.command import CommandFailed, Completed
from raidproof.core.errors import RequestError, RequirementMissing, RigError
from raidproof.core.layer import differences, uuid_of
from raidproof.core.registry import OneOf
from raidproof.core.units import KIB, MIB
from raidproof.storage.array import Geometry
from raidproof.storage.filesystem import (
    FILESYSTEMS,
    Ext4Spec,
    Filesystem,
    FilesystemSpec,
    XfsSpec,
    check_command,
    ext4,
    mkfs_command,
    mount_command,
    parse_check,
    parse_findmnt,
    xfs,
)
from raidproof.storage.filesystem.state import Mounted, Superblock, few, state_of

DATA = Path(__file__).parents[2] / "data"
GEOMETRY = Geometry(64 * KIB, 3)


@pytest.mark.parametrize(
    ("model", "asked", "reason"),
    [
        (XfsSpec, {"block_size": "8KiB"}, "page size"),
        (Ext4Spec, {"block_size": "64KiB"}, "page size"),
        (XfsSpec, {"block_size": 512}, "not 1KiB, 2KiB or 4KiB"),
        (XfsSpec, {"block_size": 3000}, "not 1KiB, 2KiB or 4KiB"),
        (XfsSpec, {"sector_size": "4KiB", "block_size": "2KiB"}, "larger than the block size"),
        (XfsSpec, {"sector_size": 256}, "power of two from 512"),
        (XfsSpec, {"su": "64KiB"}, "su and sw go together"),
        (Ext4Spec, {"sw": 3}, "su and sw go together"),
        (XfsSpec, {"su": "6KiB", "sw": 2}, "su 6KiB is not a multiple of the block size, 4KiB"),
        (XfsSpec, {"su": "64KiB", "sw": 0}, "at least one unit"),
        (XfsSpec, {"su": "64KiB", "sw": 2, "aligned": False}, "no alignment"),
        (XfsSpec, {"blocksize": 4096}, "did you mean 'block_size'"),
        (XfsSpec, {"log": "/dev/sdx"}, "pattern"),
        (XfsSpec, {"log_size": "32MiB"}, "64MiB to below 2GiB"),
        (XfsSpec, {"log_size": 64 * MIB + 512}, "not a multiple of the block size"),
        (XfsSpec, {"log_su": "512KiB"}, "up to 256KiB"),
        (XfsSpec, {"log_su": "2KiB"}, "not a multiple of the block size"),
        (XfsSpec, {"log_su": "12KiB", "log_size": "64MiB"}, "not a multiple of log_su, 12KiB"),
        (Ext4Spec, {"log_size": "1MiB"}, "1024 to 10240000 blocks"),
        (Ext4Spec, {"log_size": 5 * MIB + 4096}, "whole MiB"),
        (Ext4Spec, {"journal": False, "data": "journal"}, "need a journal"),
        (Ext4Spec, {"journal": False, "log": "disk9"}, "need a journal"),
        (Ext4Spec, {"log_su": "64KiB"}, "has no field 'log_su'"),
        (Ext4Spec, {"data": "jornal"}, "did you mean 'journal'"),
        (Ext4Spec, {"mount_options": ("data=journal",)}, "mount option .* is refused"),
        (XfsSpec, {"mount_options": ("logdev=/dev/x",)}, "mount option .* is refused"),
        (XfsSpec, {"mount_options": ("noatime,nodiratime",)}, "pattern"),
    ],
)
def test_the_impossible_is_refused_with_the_reason(model: type[Any], asked: dict[str, Any], reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        model(**asked)


def test_the_type_chooses() -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(Annotated[FilesystemSpec, OneOf(FILESYSTEMS)])
    assert isinstance(adapter.validate_python({"type": "ext4"}), Ext4Spec)
    assert isinstance(adapter.validate_python({"type": "xfs"}), XfsSpec)


def test_an_array_whose_unit_is_no_multiple_of_the_block_is_refused() -> None:
    with pytest.raises(RequestError, match="multiple of the block size"):
        XfsSpec().alignment(Geometry(6 * KIB, 2))


@given(
    st.sampled_from([1, 2, 4]),
    st.integers(1, 1024),
    st.integers(1, 32),
    st.booleans(),
)
def test_whatever_is_accepted_is_aligned(block_kib: int, unit_kib: int, width: int, given_here: bool) -> None:
    try:
        if given_here:
            alignment = XfsSpec(block_size=block_kib * KIB, su=unit_kib * KIB, sw=width).alignment(None)
        else:
            alignment = Ext4Spec(block_size=block_kib * KIB).alignment(Geometry(unit_kib * KIB, width))
    except RequestError:
        assert unit_kib % block_kib
        return
    assert alignment == (unit_kib * KIB, width)
    assert alignment.su % (block_kib * KIB) == 0


def test_mkfs_xfs() -> None:
    spec = XfsSpec(log="disk9", sector_size=4096)
    assert mkfs_command(spec, "/dev/md0", GEOMETRY) == [
        *("mkfs.xfs", "-f", "-K", "-b", "size=4096", "-s", "size=4096", "-d", "su=65536,sw=3"),
        *("-l", "logdev=/dev/disk/by-id/raidproof-disk9", "-m", f"uuid={uuid_of('disk9')}", "/dev/md0"),
    ]
    assert "noalign" in mkfs_command(XfsSpec(), "/dev/md0", None)
    assert "-K" not in mkfs_command(XfsSpec(discard=True), "/dev/md0", None)
    assert check_command(spec, "/dev/md0") == [
        *("xfs_repair", "-n", "-l", "/dev/disk/by-id/raidproof-disk9", "/dev/md0")
    ]


def test_mkfs_ext4() -> None:
    assert mkfs_command(Ext4Spec(), "/dev/md0", GEOMETRY) == [
        *("mkfs.ext4", "-F", "-q", "-b", "4096", "-E"),
        "nodiscard,lazy_itable_init=0,lazy_journal_init=0,stride=16,stripe_width=48",
        "/dev/md0",
    ]
    assert check_command(Ext4Spec(), "/dev/md0") == ["e2fsck", "-f", "-n", "/dev/md0"]


def test_log_and_journal() -> None:
    log = XfsSpec(log_size=64 * MIB, log_su=32 * KIB)
    assert mkfs_command(log, "/dev/md0", None)[-3:] == ["-l", "size=67108864,su=32768", "/dev/md0"]
    assert mkfs_command(Ext4Spec(log_size=64 * MIB), "/dev/md0", None)[-3:] == ["-J", "size=64", "/dev/md0"]
    none = Ext4Spec(journal=False)
    assert mkfs_command(Ext4Spec(inodes=1024), "/dev/md0", None)[3:7] == ["-b", "4096", "-N", "1024"]
    assert mkfs_command(none, "/dev/md0", None)[-3:] == ["-O", "^has_journal", "/dev/md0"]
    assert "--options" not in mount_command(none, "/dev/md0")
    external = Ext4Spec(log="d", log_size=64 * MIB)
    path = "/dev/disk/by-id/raidproof-d"
    assert none.journal_command() is None
    assert external.journal_command() == [
        *("mke2fs", "-F", "-q", "-O", "journal_dev", "-U", uuid_of("d"), "-b", "4096", path, "16384")
    ]
    assert mkfs_command(external, "/dev/md0", None)[-3:] == ["-J", f"device={path}", "/dev/md0"]
    assert f"data=ordered,journal_path={path}" in mount_command(external, "/dev/md0")


def test_an_external_journal_is_made_first_and_flushed() -> None:
    machine: Any = Mock()
    Filesystem(Ext4Spec(log="d"), machine, "/dev/md0").create()
    ran = [call.args[0] for call in machine.succeed.call_args_list]
    assert [argv[0] for argv in ran] == ["mke2fs", "mkfs.ext4", "sync"]
    assert ran[-1] == ["sync", "/dev/disk/by-id/raidproof-d"]


@pytest.mark.parametrize(
    ("spec", "caveat"),
    [
        (XfsSpec(), ""),
        (Ext4Spec(mount_options=("noatime",)), ""),
        (Ext4Spec(mount_options=("noatime", "barrier=0")), "the mount option barrier=0 omits the flushes"),
        (Ext4Spec(journal=False), ""),
        (Ext4Spec(data="writeback"), ""),
    ],
)
def test_settings_that_break_fsync_are_named(spec: XfsSpec | Ext4Spec, caveat: str) -> None:
    assert spec.fsync_caveat.startswith(caveat)
    assert bool(spec.fsync_caveat) == bool(caveat)
    assert (spec.fsync_caveat in spec.caveats()) == bool(caveat)


@pytest.mark.parametrize(
    ("spec", "shows"),
    [
        (XfsSpec(), False),
        (Ext4Spec(), False),
        (Ext4Spec(data="journal"), False),
        (Ext4Spec(data="writeback"), True),
        (Ext4Spec(journal=False), True),
        (XfsSpec(mount_options=("nobarrier",)), True),
    ],
)
def test_file_systems_that_may_show_old_data_are_named(spec: XfsSpec | Ext4Spec, shows: bool) -> None:
    assert spec.shows_old_data is shows


def test_ext4_without_a_journal_may_lose_names_and_no_synced_data() -> None:
    spec = Ext4Spec(journal=False)
    assert spec.names_caveat.startswith("ext4 has no journal")
    assert (spec.fsync_caveat, spec.caveats()) == ("", (spec.names_caveat,))
    assert Ext4Spec().names_caveat == XfsSpec().names_caveat == ""


def test_mount() -> None:
    assert mount_command(Ext4Spec(data="writeback", mount_options=("noatime",)), "/dev/md0", "/srv/x") == [
        *("mount", "--mkdir", "--types", "ext4", "--options", "noatime,data=writeback", "/dev/md0", "/srv/x")
    ]
    assert "--options" not in mount_command(XfsSpec(), "/dev/md0")
    assert "logdev=/dev/disk/by-id/raidproof-d" in mount_command(XfsSpec(log="d"), "/dev/md0")


def test_xfs_info() -> None:
    state = xfs.parse_info((DATA / "xfsprogs" / "xfs_info-6.13-aligned.txt").read_text())
    assert (state.block_size, state.sector_size, state.log) == (4096, 512, "internal")
    assert (state.su, state.sw) == (64 * KIB, 3)
    assert "reflink=1" in state.features
    unaligned = xfs.parse_info((DATA / "xfsprogs" / "xfs_info-6.13-unaligned.txt").read_text())
    assert (unaligned.block_size, unaligned.sector_size, unaligned.su, unaligned.sw) == (2048, 1024, 0, 0)
    external = xfs.parse_info((DATA / "xfsprogs" / "xfs_info-6.13-external-log.txt").read_text())
    assert (external.log, external.sw) == ("/dev/disk/by-id/raidproof-disk5", 2)
    assert (external.log_size, external.log_su) == (320 * MIB, 0)
    log = xfs.parse_info((DATA / "xfsprogs" / "xfs_info-6.13-log-su.txt").read_text())
    assert (log.log, log.log_size, log.log_su) == ("internal", 64 * MIB, 128 * KIB)


PLANNED = (DATA / "xfsprogs" / "mkfs-7.2-planned.txt").read_text()


@pytest.mark.parametrize(
    ("kernel", "left_off"),
    [
        ("6.1.176", ["-n", "parent=0", "-i", "exchange=0", "-i", "nrext64=0"]),
        ("6.6.0-14-amd64", ["-n", "parent=0", "-i", "exchange=0"]),
        ("6.12.101+deb13-rt-amd64", []),
        ("7.2.7", []),
    ],
)
def test_what_the_kernel_cannot_mount_is_left_off(kernel: str, left_off: list[str]) -> None:
    assert xfs.without(PLANNED, xfs.beyond(kernel)) == left_off
    older = (DATA / "xfsprogs" / "mkfs-6.1-planned.txt").read_text()
    assert not xfs.without(older, xfs.beyond(kernel))


@pytest.mark.parametrize("said", ["", "Linux", "6"])
def test_an_unknown_kernel_release_gives_no_result(said: str) -> None:
    with pytest.raises(RigError, match="no kernel release"):
        xfs.beyond(said)


def test_mkfs_is_asked_for_its_plan_only_under_an_old_kernel() -> None:
    machine: Any = Mock()
    machine.get.return_value = "6.1.176\n"
    machine.succeed.return_value = PLANNED
    Filesystem(XfsSpec(), machine, "/dev/md0").create()
    *_, planned, made = (call.args[0] for call in machine.succeed.call_args_list)
    assert planned[1] == "-N"
    assert made == ["mkfs.xfs", *planned[2:], *("-n", "parent=0", "-i", "exchange=0", "-i", "nrext64=0")]
    machine.succeed.reset_mock()
    machine.get.return_value = "6.12.101\n"
    Filesystem(XfsSpec(), machine, "/dev/md0").create()
    assert [call.args[0][0] for call in machine.succeed.call_args_list] == ["mkfs.xfs"]


def test_a_kernel_too_old_for_its_mkfs_is_reported() -> None:
    log = (DATA / "xfsprogs" / "kernel-6.1-refuses-7.2.txt").read_text()
    machine: Any = Mock()
    machine.name = "server"
    machine.run.return_value = Completed(("mount",), 32, "", "mount: /srv/x: wrong fs type, bad option, ...", "server")
    machine.succeed.return_value = log
    with pytest.raises(RequirementMissing, match=r"unknown incompatible features \(0xc0\).*older image"):
        Filesystem(XfsSpec(), machine, "/dev/md0").activate()
    machine.succeed.return_value = "XFS (md0): log mount/recovery failed: error -117"
    with pytest.raises(CommandFailed, match="wrong fs type"):
        Filesystem(XfsSpec(), machine, "/dev/md0").activate()


@pytest.mark.parametrize("version", ["2.38", "2.41", "2.42"])
def test_findmnt_of_every_suite(version: str) -> None:
    for kind in ("xfs", "ext4"):
        mounted = parse_findmnt((DATA / "util-linux" / f"findmnt-{version}-{kind}.json").read_text())
        assert (mounted.type, mounted.source) == (kind, "/dev/md0")
        assert "rw" in mounted.options


def test_the_newest_tools() -> None:
    made = xfs.parse_info((DATA / "xfsprogs" / "xfs_info-7.2-aligned.txt").read_text())
    assert (made.su, made.sw, made.log_size) == (64 * KIB, 3, 64 * MIB)
    assert {"exchange=0", "parent=0"} < set(made.features)
    ext = ext4.parse_info((DATA / "e2fsprogs" / "dumpe2fs-1.47.4-aligned.txt").read_text())
    assert (ext.su, ext.sw, ext.log) == (64 * KIB, 3, "internal")


def test_dumpe2fs() -> None:
    state = ext4.parse_info((DATA / "e2fsprogs" / "dumpe2fs-1.47.0-aligned.txt").read_text())
    assert (state.block_size, state.size, state.su, state.sw) == (4096, 512 * MIB, 64 * KIB, 3)
    assert state.inodes == 32768
    assert "metadata_csum" in state.features
    unaligned = ext4.parse_info((DATA / "e2fsprogs" / "dumpe2fs-1.47.2-unaligned.txt").read_text())
    assert (unaligned.block_size, unaligned.su, unaligned.sw) == (1024, 0, 0)
    assert (unaligned.log, unaligned.log_size) == ("internal", 16 * MIB)


@pytest.mark.parametrize(("found", "enough"), [(1000, False), (1024, True), (1056, True), (4096, False)])
def test_inodes_are_as_many_as_asked_for_but_for_rounding(found: int, enough: bool) -> None:
    assert ext4.enough_inodes(1024, found, 576 * MIB, 4096) is enough


@pytest.mark.parametrize(
    ("name", "log"), [("no-journal", "none"), ("external-journal", "93b8d567-ed97-488c-b143-2cce002cff13")]
)
def test_dumpe2fs_without_a_journal_inside(name: str, log: str) -> None:
    text = (DATA / "e2fsprogs" / f"dumpe2fs-1.47.2-{name}.txt").read_text()
    state = ext4.parse_info(text)
    assert (state.log, state.log_size, state.su) == (log, None, 64 * KIB)
    with pytest.raises(RigError):
        ext4.parse_info(text[: text.index("\nChecksum: ")])


INFO = (DATA / "xfsprogs" / "xfs_info-6.13-aligned.txt").read_text()
DUMP = (DATA / "e2fsprogs" / "dumpe2fs-1.47.0-aligned.txt").read_text()
FINDMNT = (DATA / "util-linux" / "findmnt-2.41-xfs.json").read_text()


@given(st.integers(0, INFO.index("rtextents=")))
def test_a_cut_off_xfs_info_is_refused(length: int) -> None:
    with pytest.raises(RigError):
        xfs.parse_info(INFO[:length])


@given(st.integers(0, DUMP.index("Total journal blocks")))
def test_a_cut_off_dumpe2fs_is_refused(length: int) -> None:
    with pytest.raises(RigError):
        ext4.parse_info(DUMP[:length])


def test_findmnt() -> None:
    mounted = parse_findmnt(FINDMNT)
    assert (mounted.type, mounted.source, mounted.directory) == ("xfs", "/dev/md0", "/srv/raidproof")
    assert "swidth=384" in mounted.options


@given(st.integers(0, len(FINDMNT.rstrip()) - 1))
def test_a_cut_off_findmnt_is_refused(length: int) -> None:
    with pytest.raises(RigError):
        parse_findmnt(FINDMNT[:length])


@pytest.mark.parametrize("text", ["[]", "{}", '{"filesystems": []}', '{"filesystems": 7}', '{"filesystems": [{}]}'])
def test_findmnt_of_something_else(text: str) -> None:
    with pytest.raises(RigError):
        parse_findmnt(text)


def ended(folder: str, name: str, status: int) -> Completed:
    return Completed(("check",), status, (DATA / folder / f"{name}.txt").read_text(), "", "server")


@pytest.mark.parametrize(
    ("spec", "name", "status", "outcome"),
    [
        (XfsSpec(), "xfs_repair-6.1-clean", 0, "clean"),
        (XfsSpec(log="disk5"), "xfs_repair-6.1-external-log", 0, "clean"),
        (XfsSpec(), "xfs_repair-6.13-dirty", 1, "dirty"),
        (XfsSpec(), "xfs_repair-7.2-clean", 0, "clean"),
        (XfsSpec(), "xfs_repair-7.2-dirty", 1, "dirty"),
        (XfsSpec(), "xfs_repair-7.2-corrupt", 1, "corrupt"),
        (XfsSpec(), "xfs_repair-6.1-corrupt", 1, "corrupt"),
        (XfsSpec(), "xfs_repair-6.1-none", 1, "corrupt"),
        (Ext4Spec(), "e2fsck-1.47.0-clean", 0, "clean"),
        (Ext4Spec(), "e2fsck-1.47.4-clean", 0, "clean"),
        (Ext4Spec(), "e2fsck-1.47.0-dirty", 0, "dirty"),
        (Ext4Spec(), "e2fsck-1.47.2-dirty", 4, "dirty"),
        (Ext4Spec(), "e2fsck-1.47.0-corrupt", 4, "corrupt"),
        (Ext4Spec(), "e2fsck-1.47.0-none", 8, "corrupt"),
    ],
)
def test_the_checkers_verdict(spec: XfsSpec | Ext4Spec, name: str, status: int, outcome: str) -> None:
    folder = "xfsprogs" if isinstance(spec, XfsSpec) else "e2fsprogs"
    check = parse_check(spec, ended(folder, name, status))
    assert (check.outcome, check.status) == (outcome, status)
    assert bool(check.reasons) == (outcome != "clean")


def test_the_reasons_are_the_checkers_own() -> None:
    damaged = parse_check(XfsSpec(), ended("xfsprogs", "xfs_repair-6.1-corrupt", 1))
    assert damaged.reasons[1] == "agf_freeblks 7, counted 65518 in ag 0"
    assert not any("Phase" in reason or "geometry" in reason for reason in damaged.reasons)
    gone = parse_check(XfsSpec(), ended("xfsprogs", "xfs_repair-6.1-none", 1))
    assert gone.reasons[0] == "bad primary superblock - bad magic number !!!"
    illegal = parse_check(Ext4Spec(), ended("e2fsprogs", "e2fsck-1.47.0-corrupt", 4))
    assert "Inode 7 has illegal block(s).  Clear? no" in illegal.reasons


@pytest.mark.parametrize(
    ("spec", "name", "status"),
    [
        (XfsSpec(), "xfs_repair-6.13-mounted", 1),
        (XfsSpec(), "xfs_repair-7.2-mounted", 1),
        (Ext4Spec(), "e2fsck-1.47.4-mounted", 0),
        (XfsSpec(log="disk5"), "xfs_repair-6.1-log-not-named", 1),
        (Ext4Spec(), "e2fsck-1.47.0-mounted", 0),
        (Ext4Spec(), "e2fsck-1.47.0-absent", 8),
        (Ext4Spec(), "e2fsck-1.47.0-clean", 1),
        (Ext4Spec(), "e2fsck-1.47.0-clean", 130),
        (XfsSpec(), "xfs_repair-6.1-clean", 137),
        (XfsSpec(), "xfs_repair-6.1-clean", -1),
    ],
)
def test_no_answer_is_no_verdict(spec: XfsSpec | Ext4Spec, name: str, status: int) -> None:
    folder = "xfsprogs" if isinstance(spec, XfsSpec) else "e2fsprogs"
    with pytest.raises(RigError):
        parse_check(spec, ended(folder, name, status))


@pytest.mark.parametrize("spec", [XfsSpec(), Ext4Spec()])
@given(data=st.data())
def test_truncated_output_of_a_checker_is_never_clean(spec: XfsSpec | Ext4Spec, data: st.DataObject) -> None:
    is_xfs = isinstance(spec, XfsSpec)
    name = "xfsprogs/xfs_repair-6.1-clean.txt" if is_xfs else "e2fsprogs/e2fsck-1.47.0-clean.txt"
    text = (DATA / name).read_text()
    end = text.index("skipping filesystem flush") if is_xfs else text.index("Pass 5")
    length = data.draw(st.integers(0, end))
    with pytest.raises(RigError):
        parse_check(spec, Completed(("check",), 0, text[:length], "", "server"))


def test_a_flood_of_reasons_is_cut() -> None:
    assert few(["a"] * 3, most=2) == ("a", "a", "and 1 more")
    assert few(["a"] * 2, most=2) == ("a", "a")


@pytest.mark.parametrize(
    ("spec", "geometry", "least"),
    [
        (XfsSpec(), None, 300),
        (XfsSpec(), GEOMETRY, 513),
        (XfsSpec(aligned=False), GEOMETRY, 300),
        (XfsSpec(log="x"), GEOMETRY, 300),
        (XfsSpec(log_size=128 * MIB), GEOMETRY, 8 * 128 + 1),
        (XfsSpec(log_size=128 * MIB), None, 4 * 128 + 1),
        (Ext4Spec(log_size=64 * MIB), GEOMETRY, 136),
        (Ext4Spec(), GEOMETRY, 8),
    ],
)
def test_least_size(spec: XfsSpec | Ext4Spec, geometry: Geometry | None, least: int) -> None:
    assert spec.least_size(geometry) == least * MIB


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (XfsSpec(rmapbt=False, reflink=True), ["-m", "rmapbt=0,reflink=1"]),
        (Ext4Spec(fast_commit=True, orphan_file=False), ["-O", "fast_commit,^orphan_file"]),
        (Ext4Spec(journal=False, inline_data=True), ["-O", "^has_journal,inline_data"]),
        (Ext4Spec(cluster_size=64 * KIB), ["-O", "bigalloc", "-C", "65536"]),
    ],
)
def test_features_are_requested_from_mkfs(spec: XfsSpec | Ext4Spec, words: list[str]) -> None:
    made = spec.mkfs_command("/dev/md0", None)
    assert made[made.index(words[0]) :][: len(words)] == words
    assert words[0] not in type(spec)().mkfs_command("/dev/md0", None)


def test_an_external_log_and_features_are_in_one_option() -> None:
    made = XfsSpec(log="d", reflink=False).mkfs_command("/dev/md0", None)
    assert made.count("-m") == 1
    assert made[made.index("-m") + 1].endswith(",reflink=0")


@pytest.mark.parametrize(
    ("asked", "differing"),
    [
        ({"rmapbt": True, "reflink": True}, []),
        ({"rmapbt": False}, ["rmapbt"]),
        ({"reflink": False}, ["reflink"]),
        ({}, []),
    ],
)
def test_features_of_xfs_are_read_back(asked: dict[str, bool], differing: list[str]) -> None:
    superblock = xfs.parse_info((DATA / "xfsprogs" / "xfs_info-6.13-aligned.txt").read_text())
    assert differing_features(XfsSpec.model_validate(asked), superblock) == differing


@pytest.mark.parametrize(
    ("asked", "differing"),
    [
        ({"orphan_file": True, "fast_commit": False, "inline_data": False}, []),
        ({"orphan_file": False}, ["orphan_file"]),
        ({"fast_commit": True}, ["fast_commit"]),
        ({"inline_data": True}, ["inline_data"]),
        ({"cluster_size": "64KiB"}, ["cluster_size"]),
    ],
)
def test_features_of_ext4_are_read_back(asked: dict[str, Any], differing: list[str]) -> None:
    superblock = ext4.parse_info((DATA / "e2fsprogs" / "dumpe2fs-1.47.4-aligned.txt").read_text())
    assert differing_features(Ext4Spec.model_validate(asked), superblock) == differing


def differing_features(spec: XfsSpec | Ext4Spec, superblock: Superblock) -> list[str]:
    """Return the features whose requested and effective values differ."""
    mounted = Mounted(type=spec.type, source="/dev/md0", directory="/srv", options=())
    asked, found = spec.asked(None), spec.found(state_of(mounted, superblock))
    names = {*spec.features, "cluster_size"}
    return [one.field for one in differences(asked, found) if one.field in names]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"journal": False, "fast_commit": True}, "need a journal"),
        ({"cluster_size": "4KiB"}, "not a power of two above the block size"),
        ({"cluster_size": "96KiB"}, "not a power of two above the block size"),
    ],
)
def test_impossible_features_of_ext4_are_refused(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        Ext4Spec.model_validate(asked)


def test_files_on_xfs_without_reflink_share_no_blocks() -> None:
    assert XfsSpec().shares_blocks
    assert not XfsSpec(reflink=False).shares_blocks
    assert not Ext4Spec().shares_blocks


@pytest.mark.parametrize(
    ("written", "listed"),
    [
        ("allocsize=64m", "allocsize=65536k"),
        ("allocsize=1G", "allocsize=1048576k"),
        ("logbsize=262144", "logbsize=256k"),
        ("logbsize=256k", "logbsize=256k"),
        ("allocsize=1000", "allocsize=1000"),
        ("lazytime", "lazytime"),
    ],
)
def test_sizes_in_mount_options_of_xfs_are_compared_in_kib(written: str, listed: str) -> None:
    spec = XfsSpec.model_validate({"mount_options": written})
    assert spec.mount_options == (listed,)
    mounted = Mounted(type="xfs", source="/dev/md0", directory="/srv", options=(listed,))
    superblock = xfs.parse_info((DATA / "xfsprogs" / "xfs_info-6.13-aligned.txt").read_text())
    assert spec.found(state_of(mounted, superblock))["mount_options"] == spec.asked(None)["mount_options"]
