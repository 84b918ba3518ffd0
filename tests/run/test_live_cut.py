"""A failed crash test whose own power cut agrees with a known finding names the finding."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import pytest

from raidproof.crash.disk_states import DiskStates
from raidproof.crash.states import Recording
from raidproof.disk.cache import CacheMode, CutPolicy
from raidproof.disk.engine import Engine
from raidproof.disk.messages import MemberSpec
from raidproof.disk.replay import replay
from raidproof.disk.writelog import WriteLog
from raidproof.fault.fault import FaultEffects
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.record.environment import Environment, MachineRecord
from raidproof.record.outcome import Outcome
from raidproof.record.run import CrashTestRecord, FaultRecord, Recovery, RunRecord
from raidproof.run.live_cut import state_after
from raidproof.run.named import name_crash_test
from raidproof.verdict.crash_test import judge_crash_test
from tests.crash.stored import CYCLE, store_run

SIZE = 1 << 20
KERNEL = "6.12.117"
LOG = """
[    0.000000] Linux version 6.12.117
[    1.000000] XFS (md127): Metadata CRC error detected at xfs_rmapbt_read_verify+0x1/0x2
[    1.100000] XFS (md127): log mount/recovery failed: error -74
"""
RMAP = b"RMB3".ljust(4096, b"r")
HEAD_SURVIVES = 14
"""A seed with which the torn write keeps its first sector, and not all."""


def cut_log(path: Path, policy: CutPolicy, seed: int, data: bytes = RMAP) -> dict[str, dict[str, Any]]:
    """Write the log of an engine that was cut with a metadata block in its cache; return its counters."""
    path.unlink(missing_ok=True)
    engine = Engine([MemberSpec(f"disk{number}", SIZE, CacheMode.VOLATILE) for number in (1, 2)])
    engine.start_log(path)
    port = engine.connect("disk1")
    port.write(bytes([1]) * 4096, 0, fua=False)
    port.flush()
    port.write(data, 8192, fua=False)
    engine.freeze()
    results = engine.resolve(policy, seed)
    engine.stop_log()
    return {one.serial: asdict(one) for one in results}


def failed(
    path: Path,
    *,
    policy: CutPolicy = CutPolicy.TORN,
    seed: int = HEAD_SURVIVES,
    log: str = LOG,
    data: bytes = RMAP,
    kernel: str = KERNEL,
    filesystem: Mapping[str, str] | None = None,
    **changes: Any,
) -> tuple[RunRecord, CrashTestRecord]:
    """Return a stored crash test whose file system did not mount after a power cut, judged and named."""
    asked = stack_of("5").model_dump(mode="json") | ({"filesystem": filesystem} if filesystem else {})
    store = store_run(
        path,
        of_cycle={
            "asked": asked, "effects": FaultEffects(caches=policy, server_memory_lost=True),
            "fault_begun_ns": 8_000, "fault_at_ns": 10**18,
            "not_recovered": "mount: bad superblock", "recovery": Recovery(boot_s=1, assemble_s=1),
        },
    )  # fmt: skip
    run = store.load()
    run.environment = Environment(
        raidproof="1", provider="uml", host_kernel="6", host_cpu="c", host_cpus=1, host_tools={}, notes=[],
        cannot_prove=[],
        machines=[
            MachineRecord(name="server", role="server", asked="x", kernel=kernel, packages={}, cpus=1, numa_nodes=1)
        ],
    )  # fmt: skip
    (cycle,) = run.cycles
    cycle.disks = cut_log(path / CYCLE / "write.log", policy, seed, data)
    (path / CYCLE / "console").write_text(log)
    cycle.files.consoles["server"] = f"{CYCLE}/console"
    for name, value in changes.items():
        setattr(cycle, name, value)
    judge_crash_test(cycle, path)
    name_crash_test(cycle, run, path)
    return run, cycle


def test_a_live_cut_that_agrees_names_the_finding(tmp_path: Path) -> None:
    _, cycle = failed(tmp_path / "run")
    assert cycle.outcome is Outcome.FAIL
    assert cycle.agreements == {"recovery: not mounted": "xfs-torn-recovery"}
    assert cycle.reason.endswith("; recovery: not mounted: agrees with the finding xfs-torn-recovery")


def test_a_judgement_of_the_stored_record_names_it_once(tmp_path: Path) -> None:
    _, cycle = failed(tmp_path / "run")
    reason = cycle.reason
    judge_crash_test(cycle, tmp_path / "run")
    assert cycle.reason == reason
    assert CrashTestRecord.model_validate_json(cycle.model_dump_json()).agreements == cycle.agreements


@pytest.mark.parametrize(
    "changes",
    [
        {"policy": CutPolicy.KEEP},  # no write is torn
        {"policy": CutPolicy.DROP},
        {"log": "[    0.000000] Linux version 6.12.117"},
        # The message is from before the power cut.
        {"log": LOG + "[    0.000000] Linux version 6.12.117"},
        {"data": b"data".ljust(4096, b"r")},
        {"filesystem": {"type": "ext4"}},
        {"not_recovered": None},
        {"recovery": Recovery(boot_s=1)},  # the array was not assembled
        {"cache_mode": "lying"},
        {"disks": {}},
        {"during": [FaultRecord(fault="power-cut", target="server", proof="", effects=FaultEffects(caches="torn"))]},
    ],
    ids=[
        "keep", "drop", "no message", "message before the cut", "data is torn", "ext4", "recovered", "not assembled",
        "lying disks", "not counted", "two cuts",
    ],
)  # fmt: skip
def test_without_a_fact_of_the_finding_none_is_named(tmp_path: Path, changes: dict[str, Any]) -> None:
    _, cycle = failed(tmp_path / "run", **changes)
    assert not cycle.agreements
    assert "finding" not in cycle.reason


def test_an_installed_package_names_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raidproof.run.named.HOME", tmp_path)
    assert not failed(tmp_path / "run")[1].agreements


@pytest.mark.parametrize("policy", CutPolicy)
@pytest.mark.parametrize("seed", range(8))
def test_the_state_of_the_cut_is_that_of_the_disks(tmp_path: Path, policy: CutPolicy, seed: int) -> None:
    data = Random(seed).randbytes(4096)
    disks = cut_log(tmp_path / "log", policy, seed, data)
    recording = Recording(WriteLog(tmp_path / "log"))
    found = state_after(recording, FaultRecord(fault="power-cut", target="server", proof="", disks=disks))
    assert found is not None
    state, lost = found
    window = DiskStates(recording)
    window.move(state.cut)
    expected = bytes(replay(WriteLog(tmp_path / "log"))["disk1"].image().view(0, 16384))
    assert window.read(state, 0, 0, 16384) == expected
    assert bool(lost) is (not disks["disk1"]["kept"])
