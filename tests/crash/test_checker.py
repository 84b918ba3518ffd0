"""What a checker is made of, and what of its words is the same each time."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from raidproof.core.topology import ControllerSpec, server_and_clients
from raidproof.crash.agent_connection import Lost, Silent
from raidproof.crash.checker import Check, alarming, checker_topology, config_of
from raidproof.machine.machine import Machine
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.record.exploration import End, Observation, ThroughNfsd
from raidproof.storage.filesystem.state import FilesystemCheck
from raidproof.verdict.kernel_log import findings

BOOT = "[0.0] Linux version 6.12\n"


def test_a_checker_is_the_server_alone_with_bare_disks() -> None:
    topology = server_and_clients(clients=2, disks=3, profile="hgst-ultrastar-7k6000")
    slow = topology.model_copy(update={"controllers": (ControllerSpec(name="c"),), "slow_motion": 2.0})
    bare = checker_topology(slow)
    assert bare.machines == (topology.server,)
    assert not bare.timed
    assert (bare.controllers, bare.slow_motion) == ((), 1.0)
    assert [(disk.serial, disk.size) for disk in bare.disks] == [(disk.serial, disk.size) for disk in topology.disks]


def test_a_checker_boots_at_once_with_what_raid6_needs() -> None:
    topology = server_and_clients(clients=1, disks=4)
    assert not checker_topology(topology).server.raid6
    assert checker_topology(topology, raid6=True).server.raid6


def test_the_orders_are_the_commands_of_a_run() -> None:
    config = config_of(stack_of(), {"root": "/srv/raidproof/ledger"})
    (one,) = config["assemble"]
    device, assemble = one["device"], list(one["command"])
    assert assemble[:3] == ["mdadm", "--assemble", device]
    assert "--force" not in assemble
    assert "--run" not in assemble
    assert config["mount"][0] == "mount"
    assert config["mount"][-2:] == [device, config["unmount"][-1]]
    assert config["stop"] == [["mdadm", "--stop", device]]
    assert config["parameters"] == []


def test_a_dirty_degraded_array_is_started_only_if_that_is_asked() -> None:
    assert config_of(stack_of(), {})["permitting"] == []
    ((path, value),) = config_of(stack_of(), {}, starts_dirty=True)["permitting"]
    assert (path.rpartition("/")[2], value) == ("start_dirty_degraded", "1")


def test_an_array_starts_without_the_lost_member() -> None:
    whole, without = (config_of(stack_of(), {}, without=lost)["assemble"][0]["command"] for lost in ((), ("disk1",)))
    assert [word for word in whole if word not in without] == ["/dev/disk/by-id/raidproof-disk1"]
    assert "--run" in without, "mdadm starts an array that lacks a member for the first time only with --run"


def test_nested_arrays_are_stopped_from_above() -> None:
    config = config_of(stack_of("1+0"), {})
    devices = [one["device"] for one in config["assemble"]]
    assert config["stop"][0][2:] == devices[::-1]


def test_the_file_systems_checker_reads_the_device_that_is_mounted() -> None:
    config = config_of(stack_of("1+0"), {})
    assert config["fsck"] == ["xfs_repair", "-n", config["mount"][-2]]


def test_alarms_are_the_same_after_each_boot() -> None:
    logs = (
        "[   12.345678] WARNING: CPU: 0 PID: 812 at fs/xfs/xfs_trans.c:10\n" * 2,
        "<4>[  999.000001][ T100] WARNING: CPU: 0 PID: 99 at fs/xfs/xfs_trans.c:10\n",
    )
    first, second = (alarming(findings(log)) for log in logs)
    assert first == second
    assert len(first) == 1


def test_different_alarms_stay_different() -> None:
    log = "".join(f"[1.000000] XFS (md0): Metadata corruption detected at {place}\n" for place in "ab")
    assert len(alarming(findings(log))) == 2


def test_two_checks_of_one_state_are_the_same() -> None:
    seen = Observation(end=End.READ, found={"a": {"blocks": [1]}}, ms={"mount": 1.0})
    assert seen.same_as(seen.model_copy(update={"ms": {"mount": 2.0}, "through_nfsd": ThroughNfsd.SAME}))
    assert not seen.same_as(seen.model_copy(update={"found": {"a": {"blocks": [2]}}}))
    assert not seen.same_as(seen.model_copy(update={"end": End.WEDGED}))
    assert not seen.same_as(seen.model_copy(update={"degraded": {"/dev/md0": 1}}))
    clean = seen.model_copy(update={"filesystem": FilesystemCheck(outcome="clean", status=0)})
    assert seen.same_as(clean)
    assert not clean.same_as(seen.model_copy(update={"filesystem": FilesystemCheck(outcome="corrupt", status=1)}))
    through = seen.model_copy(update={"through_nfsd": ThroughNfsd.SAME})
    assert not through.same_as(seen.model_copy(update={"through_nfsd": ThroughNfsd.DIFFERENT}))


def test_an_observation_survives_its_record() -> None:
    seen = Observation(end=End.NOT_MOUNTED, said="mount: no", console=("oops: x",), ms={"switch": 1.5})
    assert Observation.model_validate_json(seen.model_dump_json()) == seen


@pytest.mark.parametrize(
    ("left", "said", "end", "silent"),
    [
        ("", "", End.READ, False),
        ("umount /srv: target is busy", "", End.WEDGED, True),
        ("umount /srv: target is busy", "[1.0] BUG: soft lockup - CPU#0 stuck\n[1.0] Oops: 0000\n", End.WEDGED, False),
        ("", "[1.0] Oops: 0000 [#1]\n", End.WEDGED, False),
    ],
)
def test_what_stays_is_wedged_and_silent_where_the_kernel_tells_nothing(
    tmp_path: Path, left: str, said: str, end: End, silent: bool
) -> None:
    console = tmp_path / "console"
    console.write_text(BOOT)
    check = Check(cast("Machine", SimpleNamespace(consoles=[console], console=console)), 1.0)
    console.write_text(BOOT + said)
    seen = check.seen({"end": End.READ, "said": "", "found": {}, "left": left, "errors": []})
    assert (seen.end, seen.silent, check.wedged) == (end, silent, end is End.WEDGED)


def test_messages_of_level_err_are_reported_once_beside_the_signs_of_the_console(tmp_path: Path) -> None:
    console = tmp_path / "console"
    console.write_text(BOOT)
    check = Check(cast("Machine", SimpleNamespace(consoles=[console], console=console)), 1.0)
    shown, new = "Buffer I/O error on dev md0, logical block 9, async page read", "md/raid:md0: the reshape was lost"
    harmless = "md/raid:md0: Operation continuing on 3 devices."
    console.write_text(f"{BOOT}[1.0] {shown}\n[1.0] {new}\n[1.0] {harmless}\n")
    errors = [shown, new, harmless, new]
    seen = check.seen({"end": End.READ, "said": "", "found": {}, "left": "", "errors": errors})
    assert seen.console == (f"I/O error: {shown}", f"error: {new}")
    assert seen.end is End.READ


@pytest.mark.parametrize(
    ("lost", "said", "silent"),
    [
        (Silent("no answer in 20 s"), "", True),
        (Silent("no answer in 20 s"), "[1.0] Oops: 0000 [#1]\n", False),
        (Lost("it hung up"), "", False),
    ],
)
def test_only_a_machine_that_goes_on_and_says_nothing_is_silent(
    lost: Lost, said: str, silent: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    console, kept = tmp_path / "console", list[object]()
    console.write_text(BOOT)
    monkeypatch.setattr("raidproof.crash.checker.keep_tasks", kept.append)
    check = Check(cast("Machine", SimpleNamespace(consoles=[console], console=console)), 1.0)
    console.write_text(BOOT + said)
    seen = check.lost(lost)
    assert (seen.end, seen.silent, check.wedged, seen.said) == (End.WEDGED, silent, True, f"switch: {lost}")
    assert bool(kept) is isinstance(lost, Silent), (
        "what each task waits for can be told only by a machine that goes on"
    )
