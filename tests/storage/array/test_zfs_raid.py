"""The RAID of ZFS: requests, and parsers on output of zfsutils 2.3.9 with Linux 6.12."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.command import DEFAULT_DEADLINE_S, CommandFailed, Completed
from raidproof.core.errors import NotEffective, RequestError, RequirementMissing, RigError
from raidproof.guest import partitions
from raidproof.guest.assembled import ZFS_POOL
from raidproof.storage.array import capacity
from raidproof.storage.array.state import ExpectedDeviation
from raidproof.storage.array.zfs import (
    POOL,
    Label,
    ZfsRaid,
    ZfsRaidSpec,
    import_command,
    parse_label,
    parse_status,
    vdev_words,
)
from raidproof.storage.member import disk_path
from raidproof.storage.stack import StackSpec
from tests.guest_files import FilesByCommands

DATA = Path(__file__).parents[2] / "data" / "zfsutils"
NAMES = {"1": "mirror", "z1": "raidz1", "z2": "raidz2", "z3": "raidz3", "10": "striped"}
STATUS = {level: (DATA / f"zpool-status-{name}-2.3.json").read_text() for level, name in NAMES.items()}
WITH_LOG, SCRUBBED, OFFLINE = (
    (DATA / f"zpool-status-{name}-2.3.json").read_text() for name in ("slog", "scrubbed", "offline")
)
LABEL = (DATA / "zdb-label-2.3.txt").read_text()
NO_LABEL = (DATA / "zdb-label-none-2.3.txt").read_text()
NO_POOL = (DATA / "zpool-status-none-2.3.txt").read_text()
DISKS = tuple(f"disk{number}" for number in range(6))


def spec_of(level: str = "z1", members: int = 4, **asked: Any) -> ZfsRaidSpec:
    return ZfsRaidSpec.model_validate({"level": level, "members": DISKS[:members], **asked})


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"level": "0"}, "level of array kind zfs: unknown value '0'"),
        ({"level": "4"}, "level of array kind zfs: unknown value '4'"),
        ({"level": "raidz3", "members": DISKS[:3]}, "RAIDz3 needs at least 4 members, not 3"),
        ({"level": "10", "members": DISKS[:5]}, "a stripe of mirrors of 2 disks, but 5 is odd"),
        ({"level": "10", "members": DISKS[:2]}, "RAID10 needs at least 4 members, not 2"),
        ({"chunk_size": "512KiB"}, "chunk size 512KiB: ZFS has no chunks"),
        ({"level": "10", "chunk_size": "4KiB"}, "chunk size 4KiB: ZFS has no chunks"),
    ],
)
def test_what_zfs_cannot_create_is_refused(asked: dict[str, Any], reason: str) -> None:
    with pytest.raises(RequestError, match=re.escape(reason)):
        ZfsRaidSpec.model_validate({"members": DISKS[:4], **asked})


@pytest.mark.parametrize(
    ("asked", "level"),
    [(5, "z1"), ("6", "z2"), ("raidz", "z1"), ("RAIDZ2", "z2"), ("z3", "z3"), ("mirror", "1"), ("raid10", "10")],
)
def test_levels_have_the_names_of_zpool_or_those_of_md(asked: Any, level: str) -> None:
    spec = spec_of(asked)
    assert (spec.level, spec.chunk_size) == (level, None)
    assert ZfsRaidSpec.model_validate(spec.model_dump(mode="json")) == spec


@pytest.mark.parametrize(
    ("level", "words"),
    [
        ("1", "mirror disk0 disk1 disk2 disk3"),
        ("10", "mirror disk0 disk1 mirror disk2 disk3"),
        ("z1", "raidz1 disk0 disk1 disk2 disk3"),
        ("z3", "raidz3 disk0 disk1 disk2 disk3"),
    ],
)
def test_the_vdevs_of_a_level(level: str, words: str) -> None:
    assert " ".join(vdev_words(level, DISKS[:4])) == words


@pytest.mark.parametrize(("level", "data_disks"), [("1", 1), ("10", 2), ("z1", 3), ("z2", 2), ("z3", 1)])
def test_the_disks_of_data(level: str, data_disks: int) -> None:
    geometry = spec_of(level).geometry
    assert geometry.data_disks == data_disks
    assert capacity(spec_of(level), 100) == 100 * data_disks


def test_another_file_system_is_refused() -> None:
    with pytest.raises(RequestError, match='it cannot carry xfs; write filesystem = "zfs", or raid = "md"'):
        StackSpec.model_validate({"array": spec_of(), "filesystem": {"type": "xfs"}})


def test_a_checker_imports_the_pool_from_the_disks_that_are_there_and_exports_it() -> None:
    checking = spec_of().checking(without=["disk1"], log="disk4")
    (imported,) = checking.assemble
    assert imported.command == tuple(import_command(["disk0", "disk2", "disk3", "disk4"]))
    assert (imported.interface, imported.name) == (ZFS_POOL, POOL)
    assert checking.stop == (("zpool", "export", POOL),)
    assert spec_of().checking().assemble[0].command == tuple(import_command(DISKS[:4]))


@pytest.mark.parametrize(
    ("level", "vdevs"),
    [
        *(("1", ("mirror",)), ("10", ("mirror", "mirror"))),
        *(("z1", ("raidz1",)), ("z2", ("raidz2",)), ("z3", ("raidz3",))),
    ],
)
def test_the_state_of_a_pool_is_read(level: str, vdevs: tuple[str, ...]) -> None:
    pool = parse_status(STATUS[level])
    assert (pool.state, pool.vdevs, pool.errors, pool.action) == ("ONLINE", vdevs, 0, "idle")
    assert [leaf.path for leaf in pool.leaves] == [disk_path(serial) for serial in DISKS[:4]]
    assert {(leaf.state, leaf.errors) for leaf in pool.leaves} == {("ONLINE", 0)}
    assert (pool.logs, pool.scrubbed) == ((), False)


def test_a_separate_log_is_no_disk_with_data() -> None:
    pool = parse_status(WITH_LOG)
    assert len(pool.leaves) == 3
    assert [(log.path, log.state) for log in pool.logs] == [(disk_path("disk3"), "ONLINE")]


def test_a_scrub_that_has_ended_is_read() -> None:
    assert parse_status(SCRUBBED).scrubbed
    assert parse_status(SCRUBBED.replace("FINISHED", "SCANNING")).action == "check"
    assert not parse_status(SCRUBBED.replace("FINISHED", "CANCELED")).scrubbed


@given(length=st.integers(0, len(SCRUBBED.rstrip()) - 1))
def test_a_truncated_state_is_refused(length: int) -> None:
    with pytest.raises(RigError):
        parse_status(SCRUBBED[:length])


def test_the_label_of_a_disk_is_read() -> None:
    label = parse_label(LABEL, 4)
    assert isinstance(label, Label)
    assert label.slot == 3
    assert label.pool != label.disk
    assert parse_label(NO_LABEL, 4) is None


@given(length=st.integers(LABEL.index("LABEL 0") + 8, LABEL.rindex("labels = ")))
def test_a_truncated_label_is_refused(length: int) -> None:
    with pytest.raises(RigError):
        parse_label(LABEL[:length], 4)


class FakeServer(FilesByCommands):
    """A fake machine that answers as zpool does."""

    name = "server"
    address = "10.77.0.10"

    def __init__(self, status: str | None = SCRUBBED, *, module: bool = True) -> None:
        self.status = status
        self.module = module
        self.commands: list[str] = []

    def run(
        self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> Completed:
        del deadline_s
        self.commands.append(" ".join(argv))
        match list(argv):
            case ["zpool", "status", *_]:
                found = self.status
                return Completed(tuple(argv), int(found is None), found or "", "" if found else NO_POOL)
            case ["modprobe", "zfs"]:
                return Completed(tuple(argv), int(not self.module), "", "")
            case ["zdb", "-l", path]:
                labelled = path == disk_path("disk3")
                return Completed(tuple(argv), 0 if labelled else 2, LABEL if labelled else NO_LABEL, "")
            case ["python3", "-I", "-", *_]:
                assert stdin == Path(partitions.__file__).read_text()
                return Completed(tuple(argv), 0, "", "")
            case _:
                return Completed(tuple(argv), 0, "", "")

    def succeed(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S) -> str:
        ended = self.run(argv, stdin=stdin, deadline_s=deadline_s)
        if not ended.ok:
            raise CommandFailed(ended)
        return ended.stdout

    def resolve(self, paths: Iterable[str]) -> list[str]:
        return [f"/dev/vd{'bcdefg'[DISKS.index(path.rpartition('-')[2])]}" for path in paths]

    def read_files(self, paths: Iterable[str]) -> dict[str, str]:
        values = {"minimum_io_size": "512", "optimal_io_size": "0", "write_cache": "write back"}
        return {path: values[path.rpartition("/")[2]] for path in paths}


def on(server: Any, level: str = "z1", members: int = 4, log: str | None = None) -> ZfsRaid:
    array = ZfsRaid(spec_of(level, members), server)
    array.log = log
    return array


def test_the_partitions_are_there_before_the_creation() -> None:
    server = FakeServer(status=None)
    on(server, log="disk4").create()
    assert server.commands == ["modprobe zfs", f"python3 -I - add {' '.join(map(disk_path, DISKS[:5]))}"]


def test_the_pool_is_imported_from_its_disks_and_exported() -> None:
    server = FakeServer()
    (found,) = on(server).activate().devices
    assert found.clean
    assert (found.level, found.raid_disks, found.chunk_size) == ("z1", 4, None)
    assert [one.kernel_name for one in found.members] == ["vdb", "vdc", "vdd", "vde"]
    module, imported, *_ = server.commands
    assert module == "modprobe zfs"
    paths = " ".join(f"-d {disk_path(one)}" for one in DISKS[:4])
    assert imported.startswith("env ")
    assert imported.endswith(f" zpool import -N {paths} -o cachefile=none {POOL}")
    on(server).deactivate()
    assert server.commands[-1] == f"zpool export {POOL}"


def test_a_disk_is_taken_offline_and_brought_online_again() -> None:
    server = FakeServer()
    array = on(server)
    array.take_out("disk1")
    assert server.commands[-1] == f"zpool offline {POOL} {parse_status(SCRUBBED).leaves[1].guid}"
    array.expected_deviation = ExpectedDeviation(absent=frozenset({"disk1"}))
    with pytest.raises(NotEffective, match="state: requested DEGRADED, effective ONLINE"):
        array.require_effective()
    server.status = OFFLINE
    (state,) = array.require_effective().devices
    assert (state.degraded, state.clean, state.members[1].state) == (1, False, ("offline",))
    array.take_back("disk1")
    assert server.commands[-1] == f"zpool online {POOL} {parse_status(OFFLINE).leaves[1].guid}"
    with pytest.raises(RequestError, match="disk5"):
        array.take_out("disk5")


def test_the_log_is_brought_online_with_the_pool() -> None:
    server = FakeServer(WITH_LOG)
    on(server, members=3, log="disk3").activate()
    assert f"-d {disk_path('disk3')}" in server.commands[1]
    with pytest.raises(NotEffective, match=r"logs: requested \(\), effective \('ONLINE',\)"):
        on(server, members=3).require_effective()
    with pytest.raises(NotEffective, match=r"logs: requested \('ONLINE',\), effective \(\)"):
        on(FakeServer(), log="disk4").require_effective()


def test_a_kernel_without_the_module_is_named_with_the_options_of_one_that_has_it() -> None:
    options = "--provider qemu --server kernel=debian/trixie/zfs --server image=debian/trixie-zfs"
    with pytest.raises(RequirementMissing, match=rf"server: the kernel has no module zfs \(write {options}\)"):
        on(FakeServer(module=False)).create()


def test_before_its_creation_there_is_no_pool() -> None:
    server = FakeServer(status=None)
    (found,) = on(server).wait_clean().devices
    assert (found.degraded, found.members, found.clean) == (0, (), False)
    on(server).deactivate()
    assert not any(command.startswith("zpool export") for command in server.commands)


def test_another_failure_of_zpool_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.storage.array.test_zfs_raid.NO_POOL", "internal error")
    with pytest.raises(RigError, match="zpool status failed: internal error"):
        on(FakeServer(status=None)).state()


@pytest.mark.parametrize(
    ("level", "found", "difference"),
    [
        ("z2", STATUS["z1"], r"vdevs: requested \('raidz2',\), effective \('raidz1',\)"),
        ("z1", STATUS["1"], r"vdevs: requested \('raidz1',\), effective \('mirror',\)"),
        ("1", STATUS["10"], r"vdevs: requested \('mirror',\), effective \('mirror', 'mirror'\)"),
        ("z1", STATUS["z1"].replace('"ONLINE"', '"DEGRADED"'), "state: requested ONLINE, effective DEGRADED"),
        ("z1", STATUS["z1"].replace("disk3-part1", "disk5-part1"), "inputs: requested"),
    ],
)
def test_another_pool_is_not_as_requested(level: str, found: str, difference: str) -> None:
    with pytest.raises(NotEffective, match=difference):
        on(FakeServer(found), level).require_effective()


def test_members_are_identified_by_their_labels() -> None:
    server = FakeServer()
    found = on(server).identities()
    assert list(found) == ["disk3"]
    assert found["disk3"].slot == 3


@pytest.mark.parametrize(("level", "vdev"), [("z1", "0"), ("10", "1")])
def test_labels_are_compared_within_a_top_level_vdev(level: str, vdev: str) -> None:
    """ZFS writes a change of the pool to the labels of one of them."""
    assert on(FakeServer(), level).identities()["disk3"].array_uuid.endswith(f":{vdev}")


def test_the_labels_and_the_partitions_are_removed() -> None:
    server = FakeServer(status=None)
    on(server).destroy()
    assert f"zpool labelclear -f {disk_path('disk3')}" in server.commands
    assert f"zpool labelclear -f {disk_path('disk0')}" not in server.commands
    assert server.commands[-1].startswith("python3 -I - remove ")
    there = FakeServer()
    on(there).destroy()
    assert f"zpool destroy {POOL}" in there.commands


@pytest.mark.parametrize(
    ("changed", "errors"),
    [
        (('"checksum_errors":0', '"checksum_errors":3'), 3),
        (('"errors":0,"bytes_per_scan"', '"errors":2,"bytes_per_scan"'), 2),
        (('"error_count":0', '"error_count":1'), 1),
    ],
)
def test_a_scrub_with_errors_is_repeated(changed: tuple[str, str], errors: int) -> None:
    before, after = changed
    place = SCRUBBED.rindex(before)
    wrong = FakeServer(SCRUBBED[:place] + after + SCRUBBED[place + len(before) :])
    scrubbed = on(wrong).scrub()
    assert scrubbed.mismatches == 8 * errors
    assert scrubbed.repaired == {POOL: 8 * errors}
    scrubs = [one for one in wrong.commands if one.startswith(("zpool scrub", "zpool clear"))]
    assert scrubs == [f"zpool scrub -w {POOL}", f"zpool clear {POOL}", f"zpool scrub -w {POOL}"]


def test_a_scrub_without_errors() -> None:
    server = FakeServer()
    scrubbed = on(server).scrub()
    assert (scrubbed.mismatches, scrubbed.repaired, scrubbed.unchecked) == (0, {}, {})
    assert sum(one.startswith("zpool scrub") for one in server.commands) == 1


def test_a_scrub_that_did_not_run_is_an_error() -> None:
    with pytest.raises(RigError, match="should end with the state FINISHED"):
        on(FakeServer(STATUS["z1"])).scrub()
