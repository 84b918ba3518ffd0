"""btrfs on one device, on stored output of btrfs-progs."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.command import DEFAULT_DEADLINE_S, CommandFailed, Completed
from raidproof.core.errors import NotEffective, RequestError, RigError
from raidproof.core.units import KIB, MIB
from raidproof.storage.array import Geometry
from raidproof.storage.filesystem import BtrfsSpec, Extent, Filesystem, Mounted, mkfs_command, mount_command
from raidproof.storage.filesystem.btrfs import (
    compression,
    logical_of,
    on_device,
    parse_chunks,
    parse_file,
    parse_log_block,
    parse_profile,
    parse_super,
    parse_tree_block,
)
from raidproof.verdict.kernel_log import findings
from tests.guest_files import FilesByCommands

DATA = Path(__file__).parents[2] / "data" / "btrfs-progs"
TEXTS = {path.stem: path.read_text() for path in DATA.glob("*.txt")}
GEOMETRY = Geometry(64 * KIB, 3)
NODE = 16 * KIB
CHUNKS = parse_chunks(TEXTS["dump-tree-6.14-chunk"])


class BtrfsServer(FilesByCommands):
    """A fake machine with a mounted btrfs, whose tools print the stored texts."""

    name = "server"
    address = "10.77.0.10"

    def __init__(self, options: str = "rw,relatime,space_cache=v2,subvolid=5,subvol=/", damaged: bool = False) -> None:
        self.options = options
        self.damaged = damaged

    def run(
        self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> Completed:
        one = f'{{"target": "/srv", "source": "/dev/md0", "fstype": "btrfs", "options": "{self.options}"}}'
        dumped = {"chunk": "chunk", "5": "files", "extent": "extent"}
        match list(argv):
            case ["findmnt", *_]:
                said = f'{{"filesystems": [{one}]}}'
            case ["blockdev", "--flushbufs", "/dev/md0"]:
                said = ""
            case ["btrfs", "inspect-internal", "dump-super", _]:
                said = TEXTS["dump-super-6.14"]
            case ["btrfs", "filesystem", "usage", *_]:
                said = TEXTS["usage-6.14"]
            case ["btrfs", "inspect-internal", "dump-tree", "-t", tree, _]:
                said = TEXTS[f"dump-tree-6.14-{dumped[tree]}"]
            case ["btrfs", "inspect-internal", "dump-tree", "-b", block, _]:
                said = TEXTS["dump-tree-6.14-log-block"] if block == "30785536" else "btrfs-progs v6.14\n"
            case _:
                raise AssertionError(argv)
        if self.damaged and "extent" in argv:
            said = said.partition("total bytes")[0]
        return Completed(tuple(argv), 0, said, "", self.name)

    def succeed(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S) -> str:
        ended = self.run(argv)
        if not ended.ok:
            raise CommandFailed(ended)
        return ended.stdout


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"su": "64KiB", "sw": 3}, "su = 65536: btrfs has no such setting"),
        ({"aligned": True}, "aligned = True: btrfs has no such setting"),
        ({"log": "disk5"}, "log = disk5: btrfs has no such setting"),
        ({"log_size": "64MiB"}, "log_size = 67108864: btrfs has no such setting"),
        ({"block_size": "1KiB"}, "block size 1KiB is not 4KiB"),
        ({"block_size": "8KiB"}, "larger than the page size"),
        ({"node_size": "2KiB"}, "node_size 2KiB is not a power of two"),
        ({"node_size": "24KiB"}, "node_size 24KiB is not a power of two"),
        ({"node_size": "128KiB"}, "node_size 128KiB is not a power of two"),
        ({"nodatacow": True, "compress": "zstd"}, "nodatacow disables compression"),
        ({"mount_options": "nodatacow"}, "a field of the file system's request sets this option"),
        ({"mount_options": "compress=zstd"}, "a field of the file system's request sets this option"),
        ({"data_profile": "raid0"}, "data_profile: unknown value 'raid0'"),
    ],
)
def test_the_impossible_is_refused_with_the_reason(asked: dict[str, Any], reason: str) -> None:
    with pytest.raises(RequestError, match=re.escape(reason)):
        BtrfsSpec.model_validate(asked)


def test_commands() -> None:
    spec = BtrfsSpec(
        node_size=32 * KIB,
        data_profile="dup",
        metadata_profile="single",
        checksum="xxhash",
        flushoncommit=True,
        compress="zstd",
        mount_options=("noatime",),
    )
    made = "mkfs.btrfs -f -q -K -s 4096 -n 32768 -d dup -m single --csum xxhash /dev/md0"
    assert mkfs_command(spec, "/dev/md0", GEOMETRY) == made.split()
    mounted = "mount --mkdir --types btrfs --options noatime,flushoncommit,compress=zstd /dev/md0 /srv"
    assert mount_command(spec, "/dev/md0", "/srv") == mounted.split()
    assert mount_command(BtrfsSpec(nodatacow=True), "/dev/md0", "/srv")[4:6] == ["--options", "nodatacow"]
    assert "-K" not in mkfs_command(BtrfsSpec(discard=True), "/dev/md0", None)


def test_it_has_no_alignment() -> None:
    assert BtrfsSpec().alignment(GEOMETRY) is None
    asked = BtrfsSpec().asked(GEOMETRY)
    assert (asked["su"], asked["sw"], asked["log"]) == (0, 0, "internal")


@pytest.mark.parametrize(
    ("profiles", "least"), [(("single", "single"), 45), (("single", "dup"), 109), (("dup", "dup"), 229)]
)
def test_least_size(profiles: tuple[str, str], least: int) -> None:
    spec = BtrfsSpec.model_validate(dict(zip(("data_profile", "metadata_profile"), profiles, strict=True)))
    assert spec.least_size(GEOMETRY) == least * MIB


def test_the_effective_state_is_read() -> None:
    state = Filesystem(BtrfsSpec(), BtrfsServer(), "/dev/md0", GEOMETRY, "/srv").require_effective()
    assert (state.block_size, state.size, state.log) == (4 * KIB, 192 * MIB, "internal")
    found = state.model_dump()
    assert (found["node_size"], found["checksum"]) == (NODE, "crc32c")
    assert (found["data_profile"], found["metadata_profile"]) == ("single", "dup")
    assert BtrfsSpec.commit_s(state.options, ()) == 30
    assert BtrfsSpec.commit_s(("rw", "commit=7"), ()) == 7


@pytest.mark.parametrize(
    ("asked", "different"),
    [
        ({"node_size": "32KiB"}, "node_size: requested 32768, effective 16384"),
        ({"checksum": "blake2"}, "checksum: requested blake2, effective crc32c"),
        ({"data_profile": "dup"}, "data_profile: requested dup, effective single"),
        ({"metadata_profile": "single"}, "metadata_profile: requested single, effective dup"),
        ({"nodatacow": True}, "nodatacow: requested True, effective False"),
        ({"flushoncommit": True}, "flushoncommit: requested True, effective False"),
        ({"compress": "lzo"}, "compress: requested lzo, effective none"),
        ({"mount_options": "noatime"}, "mount_options"),
    ],
)
def test_each_setting_that_is_not_effective_is_named(asked: dict[str, Any], different: str) -> None:
    made = Filesystem(BtrfsSpec.model_validate(asked), BtrfsServer(), "/dev/md0", GEOMETRY, "/srv")
    with pytest.raises(NotEffective, match=different):
        made.require_effective()


def test_mount_options_are_read_back() -> None:
    server = BtrfsServer("rw,noatime,nodatasum,nodatacow,flushoncommit,space_cache=v2,commit=9,subvol=/")
    spec = BtrfsSpec(nodatacow=True, flushoncommit=True, mount_options=("commit=9", "noatime"))
    state = Filesystem(spec, server, "/dev/md0", GEOMETRY, "/srv").require_effective()
    assert spec.commit_s(state.options, ()) == 9
    # The default interval, which the mount table leaves out, can be requested too.
    Filesystem(BtrfsSpec(mount_options=("commit=30",)), BtrfsServer(), "/dev/md0", None, "/srv").require_effective()
    assert compression(("rw", "compress=zstd:3")) == "zstd"
    assert compression(("rw", "relatime")) == "none"
    with pytest.raises(RigError, match="no commit=NUMBER"):
        BtrfsSpec.commit_s(("rw",), ())


@given(length=st.integers(0, len(TEXTS["dump-super-6.14"].rstrip()) - 25))
def test_a_truncated_superblock_is_refused(length: int) -> None:
    with pytest.raises(RigError):
        parse_super(TEXTS["dump-super-6.14"][:length])


@given(length=st.integers(0, TEXTS["usage-6.14"].index("Unallocated:\n")))
def test_truncated_usage_is_refused(length: int) -> None:
    with pytest.raises(RigError):
        parse_profile(TEXTS["usage-6.14"][:length], "Data")


def test_profiles() -> None:
    usage = TEXTS["usage-6.14"]
    assert (parse_profile(usage, "Data"), parse_profile(usage, "Metadata")) == ("single", "dup")
    both = usage.replace("Data,single: Size", "Data,DUP: Size:8388608, Used:0\n\nData,single: Size")
    assert parse_profile(both, "Data") == "dup+single"
    with pytest.raises(RigError, match="the profile of GlobalReserve"):
        parse_profile(usage, "GlobalReserve")


def ended(name: str, status: int) -> Completed:
    return Completed(("btrfs", "check"), status, TEXTS[name], "", "server")


@pytest.mark.parametrize(
    ("name", "status", "outcome"),
    [
        ("check-6.14-clean", 0, "clean"),
        ("check-6.14-log", 0, "clean"),
        ("check-6.14-data", 1, "corrupt"),
        ("check-6.14-unopened", 1, "corrupt"),
        ("check-6.14-none", 1, "corrupt"),
        ("check-6.14-clean", 1, "corrupt"),
        ("check-6.14-data", 0, "corrupt"),
    ],
)
def test_the_checkers_verdict(name: str, status: int, outcome: str) -> None:
    check = BtrfsSpec().parse_check(ended(name, status))
    assert (check.outcome, check.status) == (outcome, status)
    assert bool(check.reasons) == (outcome != "clean")


def test_the_reasons_are_the_checkers_own() -> None:
    reasons = BtrfsSpec().parse_check(ended("check-6.14-data", 1)).reasons
    assert reasons[0] == "mirror 1 bytenr 13631488 csum 0x8941f998 expected csum 0xb3e49291"
    assert reasons[-1] == "ERROR: errors found in csum tree"
    gone = BtrfsSpec().parse_check(ended("check-6.14-none", 1)).reasons
    assert gone == ("No valid Btrfs found on /dev/md0", "ERROR: cannot open file system")


@pytest.mark.parametrize(
    ("name", "status"), [("check-6.14-mounted", 1), ("check-6.14-clean", 127), ("check-6.14-clean", -9)]
)
def test_no_answer_is_no_verdict(name: str, status: int) -> None:
    with pytest.raises(RigError, match="did not complete its check"):
        BtrfsSpec().parse_check(ended(name, status))


@given(length=st.integers(0, TEXTS["check-6.14-clean"].index("referenced")))
def test_truncated_output_of_the_checker_is_never_clean(length: int) -> None:
    with pytest.raises(RigError):
        BtrfsSpec().parse_check(Completed(("check",), 0, TEXTS["check-6.14-clean"][:length], "", "server"))


def test_chunks() -> None:
    assert [(one.logical, one.kind, one.places) for one in CHUNKS] == [
        (13631488, "DATA|single", (13631488,)),
        (22020096, "SYSTEM|DUP", (22020096, 30408704)),
        (30408704, "METADATA|DUP", (38797312, 72351744)),
    ]
    assert logical_of(CHUNKS, 72351744 + 5) == (30408704 + 5, "METADATA|DUP")
    assert logical_of(CHUNKS, 38797312 - 1) == (22020096 + 8 * MIB - 1, "SYSTEM|DUP")
    assert logical_of(CHUNKS, 2 * MIB) is None


@given(st.integers(0, 63963135), st.integers(0, 8 * MIB))
def test_a_place_on_the_device_leads_back_to_its_logical_address(begin: int, length: int) -> None:
    for place in on_device(CHUNKS, Extent(offset=begin, length=length)):
        found, last = logical_of(CHUNKS, place.offset), logical_of(CHUNKS, place.offset + place.length - 1)
        assert found is not None
        assert last is not None
        assert begin <= found[0] <= last[0] < begin + length
        assert last[0] - found[0] == place.length - 1


def test_filefrag_prints_logical_addresses() -> None:
    spec = BtrfsSpec()
    listed = (Extent(offset=30408704, length=8192), Extent(offset=13631488, length=4096))
    places = (Extent(offset=38797312, length=8192), Extent(offset=13631488, length=4096))
    assert spec.file_extents(BtrfsServer(), "/dev/md0", listed) == places


@pytest.mark.parametrize(
    ("offset", "said"),
    [
        (0, "reserved for boot loaders"),
        (64 * KIB, "btrfs superblock"),
        (64 * MIB + 100, "btrfs superblock"),
        (2 * MIB, "free space"),
        (13631488, "file /d/word, bytes 0-4095"),
        (13631488 + 122879, "file /d/word, bytes 118784-122879"),
        (13631488 + 4 * MIB, "free space"),
        # In a compressed extent, only the file is known.
        (13758464, "file /d/packed"),
        (22036480, "btrfs chunk tree"),
        (38797312 + 30687232 - 30408704, "btrfs fs tree"),
        (72351744 + 30703616 - 30408704 + NODE - 1, "btrfs csum tree"),
        (38797312 + 30785536 - 30408704, "btrfs tree log"),
        (38797312 + 16 * MIB, "free space"),
    ],
)
def test_each_byte_has_an_owner(offset: int, said: str) -> None:
    assert str(BtrfsSpec().owner(BtrfsServer(), "/dev/md0", "/srv", offset)) == said


def test_without_the_tree_of_extents_the_owner_of_metadata_is_unknown() -> None:
    place = 38797312 + 30687232 - 30408704
    assert str(BtrfsSpec().owner(BtrfsServer(damaged=True), "/dev/md0", "/srv", place)) == "owner unknown"


def test_blocks_that_are_not_listed() -> None:
    assert parse_tree_block(TEXTS["dump-tree-6.14-extent"], 30785536, NODE) is None
    assert parse_log_block("leaf 5 items 1 free space 7 generation 3 owner FS_TREE\n") == "free space"
    assert parse_file(TEXTS["dump-tree-6.14-files"], 999) is None


def test_a_file_without_a_name_has_its_number() -> None:
    nameless = re.sub(r"name: word", "", TEXTS["dump-tree-6.14-files"])
    assert str(parse_file(nameless, 13631488)) == "file inode 258, bytes 0-4095"


@pytest.mark.parametrize(
    "line",
    [
        "BTRFS error (device md0): bad tree block start, mirror 1 want 30851072 have 0",
        "BTRFS warning (device md0): csum failed root 5 ino 258 off 0 csum 0x8941f998 expected csum 0xb3e49291",
        "BTRFS critical (device md0): corrupt leaf: root=5 block=30851072 slot=0",
        "BTRFS: error (device md0) in btrfs_commit_transaction:2494: errno=-5 IO failure",
        "BTRFS info (device md0 state E): forced readonly",
    ],
)
def test_messages_of_damage_are_found(line: str) -> None:
    assert [sign for sign, _ in findings(line)][:1] == ["corruption"]


def test_messages_without_damage_are_not_found() -> None:
    quiet = (
        "BTRFS info (device md0): first mount of filesystem b04901b4\n"
        "BTRFS info (device md0): using crc32c (crc32c-generic) checksum algorithm\n"
        "BTRFS info (device md0): start tree-log replay\n"
        "Btrfs loaded, zoned=no, fsverity=no"
    )
    assert findings(quiet) == []


def test_a_kernel_too_old_for_the_file_system_is_recognised() -> None:
    said = "BTRFS error (device md0): cannot mount because of unknown incompat features (0x5b80)"
    assert re.search(BtrfsSpec.refused_features, said)


def test_the_state_needs_every_output() -> None:
    mounted = Mounted(type="btrfs", source="/dev/md0", directory="/srv", options=("rw",))
    assert BtrfsSpec().state(BtrfsServer(), "/dev/md0", mounted).block_size == 4 * KIB


def test_on_several_devices_an_offset_is_no_place() -> None:
    class Several(BtrfsServer):
        def run(
            self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S
        ) -> Completed:
            if "chunk" in argv:
                return Completed(tuple(argv), 0, TEXTS["dump-tree-6.14-chunk-raid5"], "", self.name)
            return super().run(argv)

    assert [chunk.on_several for chunk in parse_chunks(TEXTS["dump-tree-6.14-chunk-raid5"])] == [True] * 3
    assert not any(chunk.on_several for chunk in CHUNKS)
    found = BtrfsSpec().file_extents(Several(), "/dev/md0", [Extent(offset=123142144, length=64 * KIB)])
    assert found == ()
    assert BtrfsSpec().owner(Several(), "/dev/md0", "/srv", 64 * MIB + 64 * KIB).what == "owner unknown"


def test_profiles_of_several_devices_are_read() -> None:
    usage = TEXTS["usage-6.14-raid5"]
    assert (parse_profile(usage, "Data"), parse_profile(usage, "Metadata")) == ("raid5", "raid1")


def test_the_warning_about_experimental_profiles_is_no_damage() -> None:
    alert = "BTRFS alert (device vda): btrfs RAID5/6 is EXPERIMENTAL and has known data-loss bugs"
    assert findings(alert) == []
    assert findings("BTRFS alert (device vda): free space cache is broken")
