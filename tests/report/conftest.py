"""A run as the demo leaves it: four rows, of which two are controls; and a plan's, with a cell of every kind."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from raidproof.core.blame import Culprit
from raidproof.fault import FaultEffects
from raidproof.record.cell import CellRecord, PlanRecord, Repetition
from raidproof.record.environment import Environment, MachineRecord
from raidproof.record.observation import ArraySeen, Files, Observations
from raidproof.record.outcome import Outcome, Verdict
from raidproof.record.run import (
    BlockClass,
    ControlSpec,
    CrashTestRecord,
    Recovery,
    RunRecord,
    ScanResult,
    Throughput,
    Timeline,
)
from raidproof.storage.filesystem.state import FilesystemCheck
from raidproof.verdict.cell import conclude_plan, judge_cells

SERIALS = ("disk0", "disk1", "disk2", "disk3")
STARTED = datetime(2026, 5, 4, 12, 30, tzinfo=UTC)
LIARS = "the disks: disk0, disk1, disk2, disk3 acknowledged flushes and did not make the data durable"
ASYNC = "the async export: the server answers before its disks have the data"


def asked(*, sync: bool) -> dict[str, Any]:
    return {
        "array": {"level": "5", "members": list(SERIALS), "chunk_size": 65536, "bitmap": None},
        "filesystem": {"type": "xfs", "block_size": 4096, "su": 65536, "sw": 3},
        "export": {"sync": sync, "wdelay": False, "threads": 8},
        "mount": {"vers": "4.2", "rsize": 1048576, "wsize": 4194304, "sync": False},
    }


def effective(*, sync: bool) -> dict[str, Any]:
    mount = {"vers": "4.2", "rsize": 1048576, "wsize": 1048576, "sync": False, "address": "10.77.0.10"}
    return {
        "array": {
            "devices": [
                {
                    "device": "/dev/md0",
                    "level": "5",
                    "chunk_size": 65536,
                    "bitmap": "internal",
                    "members": [{"device": f"/dev/disk/by-id/raidproof-{serial}"} for serial in SERIALS],
                }
            ]
        },
        "filesystem": {"type": "xfs", "block_size": 4096, "su": 65536, "sw": 3, "log": "internal"},
        "export": {"options": ["sync" if sync else "async", "no_wdelay", "no_subtree_check"], "threads": 8},
        "mounts": {"client1": mount, "client2": mount},
        "caveats": ["grace and lease are 10 s, not the default 90 s"],
    }


def balance(told: int, lost: int, **rest: Any) -> ScanResult:
    kinds = {"fsync": told - 300, "create": 300}
    gone = {"fsync": lost - 120, "create": 120} if lost else {}
    return ScanResult(acknowledged=kinds, lost=gone, lost_bytes=4096 * gone.get("fsync", 0), **rest)


def verdict(cycle_lost: int, told: int, outcome: Outcome, blame: str | None) -> Verdict:
    reason = f"{cycle_lost:,} of {told:,} acknowledged operations are missing"
    if not cycle_lost:
        reason = f"all {told:,} acknowledged operations survived"
    return Verdict(checker="write + fsync, seen on the server", outcome=outcome, reason=reason, blame=blame)


def cycle(
    name: str, title: str, *, sync: bool, cache: str, speed: tuple[float, float, float], **rest: Any
) -> CrashTestRecord:
    sequential, fsyncs, acknowledged = speed
    return CrashTestRecord(
        name=name,
        title=title,
        asked=asked(sync=sync),
        effective=effective(sync=sync),
        cache_mode=cache,
        seed=7,
        throughput=Throughput(sequential_write_mb_s=sequential, fsyncs_per_s=fsyncs, acknowledged_per_s=acknowledged),
        files=Files(history=f"{name}/history", consoles={"server": f"{name}/console-server.log"}),
        ledger_seconds=3.0004,
        verified_s=8.34,
        observed=Observations(
            filesystem=FilesystemCheck(outcome="clean", status=0), array=ArraySeen(mismatch_cnt={"/dev/md0": 0})
        ),
        **rest,
    )


def counts(seconds: float, each: int, silent: float, after: int) -> list[int]:
    before = [each + (place * 37) % (each // 3 + 1) for place in range(round(seconds * 10))]
    return [*before, *[0] * round(silent * 10), *[after + place % 5 for place in range(8)]]


def sync_row() -> CrashTestRecord:
    return cycle(
        "sync",
        "sync export, honest disks",
        sync=True,
        cache="volatile",
        speed=(128.42, 412.3, 506.7),
        fault="power-cut",
        policy="drop",
        fault_proof="machine killed, caches resolved by drop",
        fault_at_ns=10**12,
        recovery=Recovery(boot_s=2.31, assemble_s=0.412, mount_s=0.187, first_io_s=1.26),
        disks={serial: {"serial": serial, "writes": 4120, "flushes": 1511, "dropped": 42} for serial in SERIALS},
        on_server=balance(1518, 0, blocks={BlockClass.DURABLE: 1024, BlockClass.UNSYNCED_KEPT: 12}),
        on_client=balance(1731, 0, blocks={BlockClass.DURABLE: 1036}),
        timeline=Timeline(begin_s=-3.0, acknowledged=counts(3.0, 44, 4.2, 30), served_again_s=4.213),
        loss_window_s=0.0,
        verdicts=[verdict(0, 1518, Outcome.PASS, None)],
        outcome=Outcome.PASS,
        reason="all 1,518 acknowledged operations survived",
    )


def async_row() -> CrashTestRecord:
    return cycle(
        "async",
        "async export, honest disks",
        sync=False,
        cache="volatile",
        speed=(203.9, 5871.6, 6690.1),
        fault="power-cut",
        policy="drop",
        fault_proof="machine killed, caches resolved by drop",
        fault_at_ns=10**12,
        recovery=Recovery(boot_s=2.28, assemble_s=0.398, mount_s=0.201, first_io_s=1.31),
        disks={serial: {"serial": serial, "writes": 980, "flushes": 14, "dropped": 611} for serial in SERIALS},
        on_server=balance(
            20183,
            20047,
            lost_files=17,
            first_lost_ns=10**12 - 2_947_000_000,
            blocks={BlockClass.DURABLE: 3, BlockClass.SYNCED_LOST: 1021, BlockClass.STALE: 512},
            examples=["client1-0-fsync: fsync of 17 (generation 4): the block is missing"],
        ),
        timeline=Timeline(
            begin_s=-3.0, acknowledged=counts(3.0, 590, 4.1, 300), last_durable_s=-2.947, served_again_s=4.189
        ),
        loss_window_s=2.947,
        verdicts=[verdict(20047, 20183, Outcome.PASS, ASYNC)],
        outcome=Outcome.PASS,
        reason=f"measured loss: 20,047 of 20,183 acknowledged operations; {ASYNC}",
    )


def lying_row() -> CrashTestRecord:
    return cycle(
        "lying",
        "sync export, lying disks",
        sync=True,
        cache="lying",
        speed=(131.0, 433.8, 520.4),
        fault="power-cut",
        policy="drop",
        fault_at_ns=10**12,
        control=ControlSpec(expects_loss=True, expects_blame=Culprit.DISKS),
        recovery=Recovery(boot_s=2.34, assemble_s=0.455),
        on_server=balance(1602, 1411, lost_files=9, first_lost_ns=10**12 - 2_520_000_000),
        timeline=Timeline(begin_s=-3.1, acknowledged=counts(3.1, 46, 0, 0)[:31], last_durable_s=-2.52),
        loss_window_s=2.52,
        verdicts=[verdict(1411, 1602, Outcome.FAIL, LIARS)],
        outcome=Outcome.PASS,
        reason=f"control behaved: 1,411 operations lost, blamed on {LIARS}",
    )


def reboot_row() -> CrashTestRecord:
    return cycle(
        "reboot",
        "sync export, clean reboot",
        sync=True,
        cache="volatile",
        speed=(126.7, 408.0, 501.2),
        fault="clean-reboot",
        fault_at_ns=10**12,
        control=ControlSpec(expects_loss=False),
        recovery=Recovery(boot_s=2.29, assemble_s=0.402, mount_s=0.19, first_io_s=1.2),
        on_server=balance(1490, 0),
        timeline=Timeline(begin_s=-3.0, acknowledged=counts(3.0, 43, 4.0, 31), served_again_s=4.071),
        loss_window_s=0.0,
        verdicts=[verdict(0, 1490, Outcome.PASS, None)],
        outcome=Outcome.PASS,
        reason="control behaved: all 1,490 acknowledged operations survived",
    )


def error_row() -> CrashTestRecord:
    return CrashTestRecord(
        name="broken",
        title="a server that does not boot",
        asked=asked(sync=True),
        cache_mode="volatile",
        fault="power-cut",
        effects=FaultEffects(),
        seed=7,
        rig_error="gave up waiting for server to answer",
        outcome=Outcome.ERROR,
        reason="gave up waiting for server to answer",
    )


def sample() -> RunRecord:
    return RunRecord(
        run="20260504-123000-demo",
        started=STARTED,
        ended=STARTED + timedelta(seconds=97.4),
        command=["./raidproof", "demo"],
        environment=Environment(
            raidproof="0.1.0",
            provider="uml",
            host_kernel="6.1.0-32-amd64",
            host_cpu="Example CPU @ 2.00GHz",
            host_cpus=2,
            host_tools={"nbdkit": "1.32.5", "qemu-storage-daemon": "7.2.15"},
            machines=[
                MachineRecord(
                    name=name,
                    role=role,
                    asked="kernel=debian/sid",
                    kernel="7.2.7",
                    packages={"mdadm": "4.4-11", "nfs-utils": "2.8.3-1", "xfsprogs": "6.13.0-2"},
                    cpus=1,
                    numa_nodes=1,
                    boot_s=3.9,
                )
                for name, role in (("server", "server"), ("client1", "client"))
            ],
            notes=["debian/sid ran with the XSTATE work-around, which this CPU needs"],
            cannot_prove=["uml: one CPU a machine; races that need several CPUs do not show"],
        ),
        topology={
            "machines": [{"name": "server", "role": "server", "memory": 805306368}, {"name": "client1"}],
            "disks": [{"serial": serial, "size": 268435456} for serial in SERIALS],
        },
        cycles=[sync_row(), async_row(), lying_row(), reboot_row()],
        outcome=Outcome.PASS,
        reason="every promise that holds by design was kept, and the controls behaved",
    )


@pytest.fixture
def run() -> RunRecord:
    return sample()


@pytest.fixture
def broken_run() -> RunRecord:
    """One in which the rig failed once."""
    record = sample()
    record.cycles[0] = error_row()
    record.outcome, record.reason = Outcome.ERROR, "a server that does not boot: gave up waiting"
    return record


@pytest.fixture
def invalid_run() -> RunRecord:
    """One in which the lying disks lost nothing."""
    record = sample()
    control = record.cycles[2]
    control.outcome, control.reason = Outcome.INVALID, "control: had to lose acknowledged work, and lost none"
    control.on_server, control.loss_window_s, control.timeline = balance(1602, 0), 0.0, None
    record.outcome, record.reason = Outcome.INVALID, f"{control.title}: {control.reason}"
    return record


FIO = {"tool": "fio", "rw": "write", "block_size": 1048576, "runtime_s": 5.0, "direct": False}
POSTMARK = {"tool": "postmark", "files": 10000, "transactions": 20000}
PLAN = """# Which level and chunk, and what async would gain.
[axes]
level = [5, 10]
chunk = ["16KiB", "64KiB"]
export = ["sync", "async"]

[run]
repeats = 3
cut = "power"
"""
DEAD, NOT_EFFECTIVE = "level=5 chunk=16KiB export=async", "level=6 chunk=64KiB export=sync"
SPLIT = "RAID5 reads 0.9 blocks for each block written: wsize 32 KiB never fills a 192 KiB stripe"


def repetition(round_: int, number: int, value: float, limit: str, cause: str, **changes: Any) -> Repetition:
    wobble = (0.92, 1.0, 1.05, 0.98, 1.03)
    return Repetition(
        round=round_,
        value=value,
        values={"write_mb_s": value, "fsync_p99_ms": 1800 / value},
        series=[(float(second), value * wobble[(second + round_ + number) % 5]) for second in range(1, 6)],
        timed_s=5.0,
        visit_s=7.1 + round_ / 10,
        built="array" if round_ == 1 else "mount",
        limit=limit,
        cause=cause,
        steady=changes.pop("steady", {"steady": True, "from_s": 1.0}),
        regime={"accepted": True, "fits": None, "working_set": 536870912},
        derived={
            "member_reads_per_written": 0.8931,
            "write_amplification": 2.412,
            "members": {serial: {"busy": 0.91 - place / 50} for place, serial in enumerate(SERIALS)},
            "calls_per_mb": 31.2,
            "array": None,
        },
        engine={"cpu_share": 0.31, "late_ns_mean": 41000.0, "members_busy": dict.fromkeys(SERIALS, 0.9)},
        files={"fio client1": f"cells/{number:03}-{round_}/client1.json"},
        **changes,
    )


def cell(
    number: int,
    name: str,
    values: list[float],
    expected: float | None,
    limit: str = "disks",
    cause: str = "",
    **rest: Any,
) -> CellRecord:
    sync = "export=async" not in name
    more = {key: rest.pop(key) for key in ("steady",) if key in rest}
    return CellRecord(
        name=name,
        settings=dict(word.split("=") for word in name.split() if "workload" not in word) | {"nconnect": "1"},
        workload=rest.pop("workload", FIO),
        unit=rest.pop("unit", "write_mb_s"),
        asked=asked(sync=sync),
        effective=effective(sync=sync),
        resync="skipped: blank members agree",
        expected=None
        if expected is None
        else {
            "value": expected,
            "formula": "(members - 1) x media rate, at most the network",
            "source": "data sheet of the profile; RFC 5681 for the network",
        },
        repeats=[
            repetition(place, number, value, limit, cause, **more) for place, value in enumerate(values, start=1)
        ],
        **rest,
    )


def planned() -> RunRecord:
    """Return what a plan's run leaves behind: two workloads, and cells without a rank for every reason."""
    record = sample()
    lost, kept, broken = async_row(), sync_row(), error_row()
    lost.title, kept.title = "level=10 chunk=64KiB export=async", "level=10 chunk=64KiB export=sync"
    broken.title = DEAD
    record.cycles = [kept, lost, broken]
    dead = cell(7, DEAD, [], 110.0, cycle="broken", unit="")
    dead.repeats = [Repetition(round=1, visit_s=3.0, rig_error="gave up waiting for server to answer")]
    cached = cell(
        4, "level=1 chunk=64KiB export=sync", [887.0, 902.4, 911.3], 110.0, "network", "all of it fits into RAM"
    )
    for repeat in cached.repeats:
        repeat.regime = {"accepted": False, "reason": "512 MiB fit into the server's 768 MiB of memory"}
    postmark: dict[str, Any] = {"workload": POSTMARK, "unit": "transactions_per_s"}
    network, ten, five = ("network", "1 Gbit/s is full"), "level=10 chunk=64KiB", "level=5 chunk=64KiB"
    record.cells = [
        cell(1, f"{ten} export=sync", [112.4, 110.9, 113.0], 117.5, *network, cycle="sync"),
        cell(2, f"{five} export=sync", [71.3, 70.2, 72.8], 110.0, cause=SPLIT),
        cell(3, f"{ten} export=async", [115.2, 116.0, 114.9], 117.5, *network, cycle="async"),
        cached,
        cell(5, "level=5 chunk=16KiB export=sync", [48.8, 70.4, 61.7], None, cause=SPLIT, steady={"steady": False}),
        cell(6, "level=0 chunk=64KiB export=sync", [131.0, 130.2], 150.0, "engine", "the engine used 97 % of a core"),
        dead,
        cell(8, NOT_EFFECTIVE, [], None, not_effective="wsize: requested 1048576, effective 524288", unit=""),
        cell(9, "level=10 chunk=16KiB export=sync", [101.7, 102.2, 99.8], 117.5, cause="members are busy at 98 %"),
        cell(10, f"{ten} export=sync workload=postmark", [212.0, 208.4, 215.1], None, cause="fsyncs", **postmark),
        cell(11, f"{five} export=sync workload=postmark", [2.31, 2.4, 2.38], 96.0, cause=SPLIT, **postmark),
    ]
    record.plan = PlanRecord(
        path="scenarios/plans/raid_chunk.toml",
        text=PLAN,
        seed=4711,
        repeats=3,
        cut="power",
        order=[(round_, one.name) for round_ in (1, 2, 3) for one in record.cells],
        impossible=[
            ("level=6 chunk=16KiB export=sync", "RAID6 needs at least 4 members: 3 are there"),
            ("level=6 chunk=16KiB export=async", "RAID6 needs at least 4 members: 3 are there"),
        ],
        timed_s=130.0,
        visits_s=204.6,
    )
    judge_cells(record)
    record.outcome, record.reason = conclude_plan(record)
    return record


@pytest.fixture
def plan_run() -> RunRecord:
    """A plan's run with a cell of every kind."""
    return planned()


@pytest.fixture
def uncut_run() -> RunRecord:
    """A plan's run in which no power was cut, and all went well."""
    record = planned()
    assert record.plan is not None
    record.plan.cut, record.cycles = None, []
    record.cells = [one for one in record.cells if one.name not in (DEAD, NOT_EFFECTIVE)]
    for one in record.cells:
        one.cycle = None
    judge_cells(record)
    record.outcome, record.reason = conclude_plan(record)
    return record
