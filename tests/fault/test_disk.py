"""Faults of member disks and the proofs of their effects, with a fake of the server's sysfs."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raidproof.core.blame import Blame, Culprit
from raidproof.core.command import Completed
from raidproof.core.errors import (
    DeadlineExceeded,
    NotRecovered,
    RequestError,
    RequirementMissing,
    RigError,
)
from raidproof.core.layer import Machine
from raidproof.disk.cache import CacheMode
from raidproof.disk.client import EngineClient
from raidproof.disk.control import ControlServer
from raidproof.disk.disk_fault import DiskFaultKind, DriveError, bad_sectors, drop_flushes
from raidproof.disk.engine import Engine
from raidproof.disk.messages import MemberSpec
from raidproof.fault import FaultContext, FaultEvent
from raidproof.fault import array as member_module
from raidproof.fault.disk import (
    BLOCK,
    MOST_READS,
    CorruptedAtRest,
    DefectiveDrives,
    FlushesDropped,
    LatentSectorDuringRebuild,
    LatentSectorError,
    MemberFails,
    MemberVanishes,
    SecondMemberFails,
    SilentCorruption,
    SlowMember,
    begin_rebuild,
    blocks_with,
)
from raidproof.lab.lab import Lab
from raidproof.record.observation import ArraySeen
from raidproof.record.outcome import Outcome
from raidproof.storage.array import LEVELS, MdArray, MdSpec
from raidproof.storage.array.state import ExpectedDeviation
from raidproof.storage.array.upkeep import Upkeep
from raidproof.storage.stack import Stack
from raidproof.verdict.checks.array import judge_array
from raidproof.verdict.conditions import Conditions, fault_of
from tests.guest_files import FilesByCommands

DISKS = Blame(culprit=Culprit.DISKS)
SIZE = 1 << 20
MEMBERS = ("d0", "d1", "d2", "d3")


class FakeServer(FilesByCommands):
    """A fake kernel with files in memory that sends one request to each member for every write."""

    name = "server"

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.files: dict[str, str] = {"/sys/block/md0/md/degraded": "0"}
        self.asked: list[list[str]] = []
        self.notices = True
        for number, serial in enumerate(MEMBERS):
            self.files[f"/sys/block/md0/md/dev-vd{'abcd'[number]}/state"] = "in_sync"
            self.files[f"/dev/disk/by-id/raidproof-{serial}"] = f"/dev/vd{'abcd'[number]}"

    def run(self, argv: list[str], *, stdin: str | None = None, **_: Any) -> Completed:
        self.asked.append(argv)
        answer = getattr(self, f"_{argv[0].replace('-', '_')}", lambda _argv, _stdin: "")(argv, stdin)
        if answer is None:
            return Completed(tuple(argv), 1, "", "no")
        return Completed(tuple(argv), 0, answer, "")

    def succeed(self, argv: list[str], **options: Any) -> str:
        done = self.run(argv, **options)
        if not done.ok:
            raise RigError(f"failed: {argv}")
        return done.stdout

    def get(self, path: str) -> str:
        return self.files[path]

    def _cat(self, argv: list[str], _: str | None) -> str | None:
        return self.files.get(argv[1])

    def _grep(self, argv: list[str], _: str | None) -> str:
        return "".join(f"{path}:{self.files[path]}\n" for path in argv[3:] if path in self.files)

    def _realpath(self, argv: list[str], _: str | None) -> str:
        return self.files.get(argv[-1], argv[-1])

    def _test(self, argv: list[str], _: str | None) -> str | None:
        return "" if any(path.startswith(argv[-1]) for path in self.files) else None

    def _tee(self, argv: list[str], stdin: str | None) -> str:
        if stdin == "remove\n":
            self.files.pop(argv[1], None)
        return ""

    def _dd(self, argv: list[str], _: str | None) -> str | None:
        source = argv[1].removeprefix("if=")
        if source != "/dev/zero":
            return self._dd_read(source, argv)
        for number, serial in enumerate(MEMBERS):
            port = self.engine.connect(serial)
            try:
                port.write(bytes(4096), 0, False)
                port.flush()
            except OSError:
                path = f"/sys/block/md0/md/dev-vd{'abcd'[number]}/state"
                if self.notices and self.files[path] == "in_sync":
                    self.files[path] = "faulty,write_error"
                    self.files["/sys/block/md0/md/degraded"] = str(int(self.files["/sys/block/md0/md/degraded"]) + 1)
        return ""

    def _dd_read(self, source: str, argv: list[str]) -> str | None:
        options = dict(word.split("=", 1) for word in argv[1:])
        buffer = bytearray(int(options["count"]))
        try:
            self.engine.connect(source.rpartition("-")[2]).read(memoryview(buffer), int(options["skip"]))
        except OSError:
            return None
        self.files["content"] = str(hash(bytes(buffer)))
        return ""

    def _md5sum(self, _argv: list[str], _: str | None) -> str:
        return f"{self.files['content']}  content"


@pytest.fixture
def engine() -> Engine:
    return Engine([MemberSpec(serial, SIZE) for serial in MEMBERS])


@pytest.fixture
def server(engine: Engine) -> FakeServer:
    return FakeServer(engine)


@pytest.fixture
def context(engine: Engine, server: FakeServer, tmp_path: Path) -> Iterator[FaultContext]:
    ControlServer(engine, tmp_path / "control").start()
    spec = MdSpec(level="5", members=MEMBERS, chunk_size=65536)
    array = SimpleNamespace(spec=spec, machine=server, expected_deviation=ExpectedDeviation())
    array.state = lambda: SimpleNamespace(devices=[found_of(server)])
    array.wait_clean = lambda _deadline: None
    array.upkeep = MdArray(spec, cast("Machine", server)).upkeep
    stack = SimpleNamespace(array=array, filesystem=SimpleNamespace(directory="/srv"))
    with EngineClient(tmp_path / "control") as client:
        yield FaultContext(cast("Lab", SimpleNamespace(server=server, disks=client)), cast("Stack", stack))


def found_of(server: FakeServer) -> SimpleNamespace:
    degraded = int(server.files["/sys/block/md0/md/degraded"])
    return SimpleNamespace(device="/dev/md0", failed=False, degraded=degraded, raid=LEVELS["5"].of(3, None))


def test_a_member_that_fails_is_proved_by_the_engine_and_by_md(context: FaultContext, server: FakeServer) -> None:
    injected = MemberFails("d1").inject(context)
    assert injected.target == "d1"
    assert injected.proof == "1 requests failed, md's state of the member: faulty,write_error; degraded: 1"
    assert ["rm", "--force", "/srv/.provoked"] in server.asked


def test_a_failure_that_md_does_not_notice_is_no_fault(
    context: FaultContext, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.notices = False
    monkeypatch.setattr(member_module, "NOTICE_DEADLINE_S", 0.05)
    with pytest.raises(DeadlineExceeded, match="md to mark the failed disk d1 faulty"):
        MemberFails("d1").inject(context)


def test_a_disk_that_is_no_member_cannot_fail(context: FaultContext) -> None:
    with pytest.raises(RequestError, match="d9 is no member"):
        MemberFails("d9").inject(context)


def test_healing_puts_a_sound_drive_in_and_expects_its_new_name(
    context: FaultContext, engine: Engine, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    MemberFails("d1").inject(context)

    def put_in(_upkeep: object, serial: str) -> None:
        assert engine.drives[1].disk_faults is None
        server.files["/sys/block/md0/md/dev-vdb/state"] = f"spare {serial}"

    monkeypatch.setattr(Upkeep, "put_in", put_in)
    MemberFails("d1").heal(context)
    assert context.stack.array.expected_deviation.renewed == {"d1"}
    assert server.files["/sys/block/md0/md/dev-vdb/state"] == "spare d1"


def test_a_member_that_is_pulled_out_must_be_gone(context: FaultContext, server: FakeServer) -> None:
    server.files["/sys/block/vdb/size"] = "1"
    with pytest.raises(RigError, match="vdb was unbound from its driver, but /sys/block/vdb still exists"):
        MemberVanishes("d1").inject(context)
    del server.files["/sys/block/vdb/size"]
    server.files["/sys/block/md0/md/dev-vdb/state"] = "faulty"
    assert MemberVanishes("d1").inject(context).proof == "/sys/block/vdb is gone, degraded: 0"


@pytest.mark.parametrize("kind", [MemberFails, MemberVanishes])
def test_the_array_is_expected_without_the_lost_member(
    context: FaultContext, server: FakeServer, kind: type[MemberFails | MemberVanishes]
) -> None:
    if kind is MemberVanishes:
        server.files["/sys/block/md0/md/dev-vdb/state"] = "faulty"
    kind("d1").inject(context)
    assert context.stack.array.expected_deviation.absent == {"d1"}


def test_a_rebuild_begins_only_when_md_has_taken_the_new_drive(
    context: FaultContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    MemberFails("d1").inject(context)
    monkeypatch.setattr(Upkeep, "put_in", lambda *_: None)
    monkeypatch.setattr("raidproof.fault.disk.REBUILD_DEADLINE_S", 0.05)
    with pytest.raises(DeadlineExceeded, match="d1 to become a member of the array again"):
        begin_rebuild(context, "d1")


@pytest.mark.parametrize("reads", [0, 2])
def test_a_check_must_read_the_unreadable_sector(
    context: FaultContext, engine: Engine, monkeypatch: pytest.MonkeyPatch, reads: int
) -> None:
    def checks(*_: object) -> None:
        port = engine.connect("d2")
        for _number in range(reads):
            with pytest.raises(DriveError):
                port.read(memoryview(bytearray(BLOCK)), 8192)

    monkeypatch.setattr(Upkeep, "begin", checks)
    monkeypatch.setattr("raidproof.fault.disk.wait_idle", lambda *_: None)
    monkeypatch.setattr("raidproof.fault.disk.fast", lambda *_: nullcontext())
    fault = LatentSectorError("d2", 8192)
    if reads:
        assert fault.inject(context).proof == "2 reads failed in a check of the array"
        return
    with pytest.raises(RigError, match="md's check did not read the 4096 bytes at byte 8192"):
        fault.inject(context)


@pytest.mark.parametrize("found", [True, False])
def test_a_disk_that_a_boot_has_found_is_not_attached_again(
    context: FaultContext, server: FakeServer, monkeypatch: pytest.MonkeyPatch, found: bool
) -> None:
    did: list[str] = []
    for step in ("drop", "attach"):
        monkeypatch.setattr(f"raidproof.fault.disk.{step}", lambda *_, step=step: did.append(step))
    monkeypatch.setattr(MemberFails.__mro__[1], "heal", lambda *_: did.append("rebuilt"))
    if found:
        server.files["/sys/block/vdb/size"] = "1"
    MemberVanishes("d1").heal(context)
    assert did == [*([] if found else ["drop", "attach"]), "rebuilt"]


def test_a_raid5_that_lost_two_members_is_not_healed(context: FaultContext, server: FakeServer) -> None:
    server.files["/sys/block/md0/md/degraded"] = "2"
    with pytest.raises(NotRecovered, match="the array has failed: /dev/md0: 2 members missing"):
        SecondMemberFails("d2", other="d1").heal(context)


@pytest.mark.parametrize(
    ("fault", "kind", "proof"),
    [
        (SlowMember("d2", 1), DiskFaultKind.SLOW, "2 requests took 1 ms longer"),
        (FlushesDropped("d2", 1), DiskFaultKind.DROP_FLUSHES, "1 flushes dropped so far"),
    ],
)
def test_a_disk_fault_without_effect_is_an_error(
    context: FaultContext, engine: Engine, fault: SlowMember | FlushesDropped, kind: DiskFaultKind, proof: str
) -> None:
    assert fault.inject(context).proof == proof
    assert engine.counters()[2].struck_by(kind) > 0
    fault.heal(context)
    assert engine.drives[2].disk_faults is None


def test_a_defect_of_drives_must_affect_a_request(context: FaultContext, engine: Engine) -> None:
    fault = DefectiveDrives(("d1", "d2"), drop_flushes())
    assert fault.inject(context).target == "d1, d2"
    engine.connect("d2").flush()
    fault.heal(context)
    assert [engine.counters()[number].struck_by(DiskFaultKind.DROP_FLUSHES) for number in range(4)] == [0, 0, 1, 0]
    assert engine.drives[1].disk_faults is engine.drives[2].disk_faults is None
    idle = DefectiveDrives(("d1",), drop_flushes())
    idle.inject(context)
    with pytest.raises(RigError, match="drop-flushes affected no request to d1"):
        idle.heal(context)


def test_flushes_of_a_disk_without_a_cache_cannot_be_dropped(context: FaultContext, engine: Engine) -> None:
    engine.set_mode(["d2"], CacheMode.PROTECTED)
    with pytest.raises(RigError, match="d2 has no volatile cache"):
        FlushesDropped("d2").inject(context)


def test_silent_corruption_is_seen_in_what_the_drive_gives_back(context: FaultContext, server: FakeServer) -> None:
    injected = SilentCorruption("d3", 8192).inject(context)
    assert "4096 bytes at byte 8192: md5 " in injected.proof
    context.lab.disks.corrupt = lambda *_: None  # type: ignore[method-assign]
    with pytest.raises(RigError, match="are unchanged"):
        SilentCorruption("d3", 8192).inject(context)


def test_a_sector_that_md_did_not_write_anew_is_a_finding(context: FaultContext, engine: Engine) -> None:
    fault = LatentSectorError("d2", 8192)
    context.lab.disks.set_disk_fault("d2", bad_sectors(fault.offset, fault.length))
    with pytest.raises(NotRecovered, match="4096 bytes at byte 8192 are unreadable"):
        fault.heal(context)
    engine.connect("d2").write(bytes(4096), 8192, False)
    fault.heal(context)


@pytest.mark.parametrize(
    ("times", "error", "message"),
    [
        (0, RigError, "did not read the 4096 bytes at byte 8192"),
        (MOST_READS, NotRecovered, "of d2 1,000 times during the rebuild of d1"),
        (MOST_READS + 1, NotRecovered, "of d2 1,000 times during the rebuild of d1"),
    ],
)
def test_a_rebuild_that_repeats_a_read_without_end_is_a_defect(
    context: FaultContext,
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    times: int,
    error: type[Exception],
    message: str,
) -> None:
    def rebuilds(*_: object) -> None:
        port, buffer = engine.connect("d2"), memoryview(bytearray(BLOCK))
        for number in range(times):
            with pytest.raises(DriveError) if number < MOST_READS else nullcontext():
                port.read(buffer, 8192)

    monkeypatch.setattr(MemberFails, "inject", lambda *_: FaultEvent("", "d1", 0, "it failed"))
    monkeypatch.setattr(MemberFails, "heal", rebuilds)
    with pytest.raises(error, match=message):
        LatentSectorDuringRebuild("d2", 8192, other="d1").inject(context)


def test_blocks_are_found_by_what_they_begin_with(context: FaultContext, engine: Engine) -> None:
    port = engine.connect("d1")
    for at in (0, 3 * BLOCK, SIZE - BLOCK):
        port.write(b"MINE" + bytes(BLOCK - 4), at, True)
    port.write(b"xMINE", 5 * BLOCK, True)
    port.write(b"MINE", 7 * BLOCK, False)
    assert list(blocks_with(cast("EngineClient", context.lab.disks), "d1", b"MINE")) == [0, 3 * BLOCK, SIZE - BLOCK]


def test_rot_at_rest_changes_the_second_half_of_some_blocks(
    context: FaultContext, engine: Engine, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.shutdown = lambda: None  # type: ignore[attr-defined]
    port = engine.connect("d1")
    for number in range(8):
        port.write(b"MINE" + bytes(BLOCK - 4), number * BLOCK, True)
    injected = CorruptedAtRest("d1", b"MINE", blocks=2).inject(context)
    assert "2 of 8 blocks corrupted, the first at byte 0" in injected.proof
    buffer = bytearray(8 * BLOCK)
    port.read(memoryview(buffer), 0)
    spoilt = [at // BLOCK for at in range(0, len(buffer), BLOCK) if any(buffer[at + BLOCK // 2 : at + BLOCK])]
    assert spoilt == [0, 4]
    assert all(buffer[at : at + BLOCK // 2] == b"MINE" + bytes(BLOCK // 2 - 4) for at in range(0, len(buffer), BLOCK))
    with pytest.raises(RigError, match="no block of 4 KiB begins with"):
        CorruptedAtRest("d1", b"THEIRS").inject(context)
    monkeypatch.setattr(context.lab, "disks", object())
    with pytest.raises(RequirementMissing, match="not served by the disk engine"):
        CorruptedAtRest("d1", b"MINE").inject(context)


@pytest.mark.parametrize(
    ("explanation", "left", "outcome"),
    [(DISKS, 0, Outcome.PASS), (DISKS, 8, Outcome.FAIL), (None, 0, Outcome.FAIL)],
)
def test_what_was_made_to_differ_must_be_found_and_repaired(
    explanation: Blame | None, left: int, outcome: Outcome
) -> None:
    conditions = Conditions(export_sync=True, explanation=explanation, content_changed=explanation is not None)
    check = ArraySeen(mismatch_cnt={"md0": 8}, repaired={"md0": left})
    assert judge_array(check, conditions).outcome is outcome
    assert fault_of(conditions) == (explanation or Blame(culprit=Culprit.STACK))
