"""The order of what a crash test does around each of its faults, and what it records of it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from raidproof.core.command import CommandFailed, Completed
from raidproof.core.errors import DeadlineExceeded, NotRecovered
from raidproof.disk.cache import CacheMode
from raidproof.fault import Fault, FaultContext, FaultEffects, FaultEvent, PowerCut, Takeover
from raidproof.fault.schedule import (
    Schedule,
    ScheduledFault,
    after_recovery,
    after_replies,
    at,
    in_recovery,
    when_served,
)
from raidproof.machine.machine import Machine
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.record.run import CrashTestRecord
from raidproof.run import fault_sequence as module
from raidproof.run import member_watch
from raidproof.run.crash_test_files import CrashTestFiles
from raidproof.run.fault_sequence import FaultSequence
from raidproof.run.member_watch import MemberWatch
from raidproof.storage.array.state import ExpectedDeviation
from raidproof.storage.pair import PairSpec

UP = ["boot", "assemble", "mount", "server drops its caches", "scan on server of /srv/ledger", "export"]
"""The steps of an uninterrupted recovery of the server."""


class Lab:
    """A fake lab with stack and ledger that records all calls, and a clock that only waiting advances."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.did: list[str] = []
        self.ns = 0
        self.idle = False
        self.server = self.machine("server")
        self.clients = (self.machine("client1"), self.machine("client2"))
        self.modes: list[int] = []
        self.disks = SimpleNamespace(
            set_mode=lambda _: self.modes.append(len(self.did)), counters=dict, log_stop=lambda: None
        )
        array = SimpleNamespace(
            identities=lambda **_: {},
            bitmaps=dict,
            expected_deviation=ExpectedDeviation(),
            state=lambda: SimpleNamespace(devices=()),
        )
        self.stack = SimpleNamespace(
            spec=stack_of(),
            array=array,
            server_steps=lambda: [SimpleNamespace(run=self.note(what)) for what in ("assemble", "mount", "export")],
            mounts={client.name: SimpleNamespace(directory="/mnt") for client in self.clients},
            filesystem=SimpleNamespace(directory="/srv"),
            export=SimpleNamespace(end_lockd_grace=lambda: None, client_records="/var/lib/nfs"),
            activate_client=lambda name: self.did.append(f"{name} mounts"),
        )
        for where in (module, member_watch):
            monkeypatch.setattr(where, "now_ns", lambda: self.ns)
        monkeypatch.setattr(module, "pause", self.pause)
        monkeypatch.setattr("raidproof.core.waiting.now_ns", lambda: self.ns)
        monkeypatch.setattr("raidproof.core.waiting.pause", self.pause)
        monkeypatch.setattr(member_watch, "moment", lambda _: None)
        monkeypatch.setattr(member_watch, "said_until_off", lambda *_: None)

    def pause(self, seconds: float) -> None:
        self.ns += round(seconds * 1e9)

    def machine(self, name: str) -> Any:
        def put(content: str, path: str) -> None:
            assert (content, path) == ("3\n", "/proc/sys/vm/drop_caches")
            self.did.append(f"{name} drops its caches")

        def succeed(argv: list[str], **_: object) -> str:
            self.did.append(f"{name}: {argv[0]}")
            return ""

        return SimpleNamespace(name=name, put=put, succeed=succeed, start_command=self.note(f"{name} asks"))

    def note(self, what: str) -> Any:
        return lambda *_, **__: self.did.append(what)

    def ledger(self) -> Any:
        def scan(machine: Any, root: str) -> dict[str, Any]:
            self.did.append(f"scan on {machine.name} of {root}")
            return {}

        return SimpleNamespace(
            scan=scan,
            heard_since=lambda _: True,
            all_began_since=lambda _: True,
            is_idle=lambda: self.idle,
            reported=lambda: self.ns // 10**9,
            work=self.note("work"),
        )


class Cut(PowerCut):
    """A power cut of the fake server."""

    def inject(self, context: FaultContext) -> FaultEvent:
        lab: Any = context.lab
        lab.did.append(f"cut at {lab.ns / 1e9:g} s")
        lab.ns += 10
        return FaultEvent(self.name, "server", lab.ns - 5, "cut")

    def heal(self, context: FaultContext) -> None:
        lab: Any = context.lab
        lab.did.append("boot")


class Slow(Fault):
    """A fault that stays in effect."""

    lasting = True

    def effects(self, stack: object) -> FaultEffects:
        return FaultEffects(member_missing=True)

    def inject(self, context: FaultContext) -> FaultEvent:
        lab: Any = context.lab
        lab.did.append(f"slow at {lab.ns / 1e9:g} s")
        return FaultEvent("slow", "disk1", lab.ns, "so")

    def heal(self, context: FaultContext) -> None:
        lab: Any = context.lab
        lab.did.append(f"healed at {lab.ns / 1e9:g} s")


class Away(Slow):
    """A fault that is healed before the schedule continues."""

    lasting = False

    def target(self, context: FaultContext) -> Machine | None:
        return None


# PowerCut is compared by type where a cut may interrupt a recovery.
Slow.name, Away.name = "slow", "away"


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Lab:
    for name in ("inject", "heal"):
        monkeypatch.setattr(PowerCut, name, getattr(Cut, name))
    monkeypatch.setattr(PowerCut, "target", lambda _, context: context.lab.server)
    return Lab(monkeypatch)


def sequence(
    lab: Lab, folder: Path, *faults: ScheduledFault, cache_mode: CacheMode = CacheMode.VOLATILE
) -> FaultSequence:
    common = {"name": "x", "title": "x", "asked": {}, "cache_mode": "volatile", "fault": "power-cut", "seed": 1}
    record = CrashTestRecord.model_validate(
        common | {"effects": FaultEffects(), "effective": {"export": {"lease_s": 1, "grace_s": 1}}}
    )
    record.ledger_begun_ns = 0
    schedule = Schedule.of(faults, lab.stack.spec)
    context: Any = SimpleNamespace(lab=lab, stack=lab.stack)
    members = MemberWatch(context, record)
    members.start()
    return FaultSequence(schedule, context, record, CrashTestFiles(folder, "x"), members, cache_mode)


def carried_out(lab: Lab, one: FaultSequence) -> CrashTestRecord:
    ledger, main = lab.ledger(), one.schedule.main
    assert main is not None
    one.earlier(ledger)
    one.inject_main(main.scheduled.fault)
    one.recover_main(main, ledger)
    one.later(ledger)
    return one.record


def test_the_server_is_scanned_with_cold_caches_before_it_serves_again(lab: Lab, tmp_path: Path) -> None:
    record = carried_out(lab, sequence(lab, tmp_path, at(2.5, PowerCut())))
    assert lab.did[:-2] == ["work", "cut at 2.5 s", *UP]
    assert set(lab.did[-2:]) == {"client1 asks", "client2 asks"}
    assert (record.fault_begun_ns, record.fault_at_ns) == (2_500_000_000, 2_500_000_005)
    assert (record.fault_ended_ns, record.resumed_ns) == (2_500_000_010, 2_500_000_010)
    assert record.files.on_server == "x/on-server.json"
    assert record.recovery.assemble_s == record.recovery.mount_s == 0
    assert record.during == []


def test_clients_without_work_are_waited_for(lab: Lab, tmp_path: Path) -> None:
    lab.idle = True
    carried_out(lab, sequence(lab, tmp_path, at(0, PowerCut())))
    assert set(lab.did[-2:]) == {"client1: stat", "client2: stat"}


def test_a_fault_that_lasts_is_healed_at_the_end_or_after_its_time(lab: Lab, tmp_path: Path) -> None:
    faults = [at(1, Slow()), at(1.5, Slow(), lasts_s=0.5), at(3, PowerCut())]
    one = sequence(lab, tmp_path, *faults)
    record = carried_out(lab, one)
    assert lab.did[:5] == ["slow at 1 s", "slow at 1.5 s", "healed at 2 s", "work", "cut at 3 s"]
    assert [(fault.begun_ns, fault.healed_ns) for fault in record.during] == [
        (1_000_000_000, None),
        (1_500_000_000, 2_000_000_000),
    ]
    one.members.heal()
    assert lab.did[-1] == "healed at 3 s"


def test_the_clients_work_until_each_fault_with_a_duration_was_healed(lab: Lab, tmp_path: Path) -> None:
    carried_out(lab, sequence(lab, tmp_path, at(1, PowerCut()), after_recovery(1, Slow(), lasts_s=4)))
    assert lab.did[-2:] == ["slow at 2 s", "healed at 6 s"]


def test_a_fault_may_follow_a_number_of_replies(lab: Lab, tmp_path: Path) -> None:
    carried_out(lab, sequence(lab, tmp_path, at(0, Slow(), lasts_s=3), after_replies(7, PowerCut())))
    assert lab.did[:4] == ["slow at 0 s", "healed at 3 s", "work", "cut at 7 s"]


def test_replies_are_counted_from_the_fault_before(lab: Lab, tmp_path: Path) -> None:
    faults = [at(2, PowerCut()), after_replies(3, Slow()), after_replies(4, PowerCut())]
    carried_out(lab, sequence(lab, tmp_path, *faults))
    assert [one for one in lab.did if " at " in one] == ["cut at 2 s", "slow at 5 s", "cut at 9 s"]


def test_a_second_power_cut_has_a_scan_of_its_own(lab: Lab, tmp_path: Path) -> None:
    record = carried_out(lab, sequence(lab, tmp_path, at(1, PowerCut()), after_recovery(0.5, PowerCut())))
    cuts = [place for place, what in enumerate(lab.did) if what.startswith("cut")]
    assert lab.did[cuts[1] : cuts[1] + 7] == ["cut at 1.5 s", *UP]
    (second,) = record.during
    assert (record.files.on_server, second.on_server_file) == ("x/on-server.json", "x/on-server-after-1.json")
    assert second.begun_ns is not None
    assert record.resumed_ns is not None
    assert record.resumed_ns <= second.begun_ns
    assert second.resumed_ns is not None
    assert second.recovery.assemble_s == 0
    assert record.observed.members is not None
    assert len(record.observed.members.earlier) == 1
    # Before the second cut the server's records of its clients are durable; after it nothing needs them.
    assert [place for place, what in enumerate(lab.did) if what == "server: sync"] == [cuts[1] - 1]


@pytest.mark.parametrize(("stage", "done"), [("boot", 1), ("assemble", 2), ("mount", 3)])
def test_a_power_cut_may_interrupt_the_recovery(lab: Lab, tmp_path: Path, stage: str, done: int) -> None:
    record = carried_out(lab, sequence(lab, tmp_path, at(1, PowerCut()), in_recovery(stage, PowerCut())))
    assert lab.did[:-2] == ["work", "cut at 1 s", *UP[:done], lab.did[2 + done], *UP]
    assert lab.did[2 + done].startswith("cut")
    (second,) = record.during
    assert (second.after_stage, second.on_server_file) == (stage, None)
    assert second.resumed_ns == record.resumed_ns
    assert record.observed.members is not None
    assert len(record.observed.members.earlier) == (stage != "boot")


@pytest.mark.parametrize("fault", [PowerCut(), Away()])
def test_a_fault_may_follow_before_any_client_reconnects(lab: Lab, tmp_path: Path, fault: Fault) -> None:
    record = carried_out(lab, sequence(lab, tmp_path, at(1, PowerCut()), when_served(fault)))
    done = [one.split(" at ")[0] for one in lab.did if " at " in one or one.endswith("asks") or one == "export"]
    last = ["cut", "export"] if isinstance(fault, PowerCut) else ["slow", "healed"]
    assert done == ["cut", "export", *last, *done[-2:]]
    assert set(done[-2:]) == {"client1 asks", "client2 asks"}
    assert record.files.on_server == "x/on-server.json"
    assert record.during[0].on_server_file == ("x/on-server-after-1.json" if isinstance(fault, PowerCut) else None)


def test_a_fault_that_takes_no_machine_down_is_healed_at_once(lab: Lab, tmp_path: Path) -> None:
    record = carried_out(lab, sequence(lab, tmp_path, at(1, Away()), at(3, Away(), lasts_s=1)))
    assert lab.did == ["work", "slow at 1 s", "healed at 1 s", "slow at 3 s", "healed at 4 s"]
    (second,) = record.during
    assert (record.resumed_ns, second.resumed_ns) == (1_000_000_000, 4_000_000_000)


def test_storage_that_does_not_come_up_is_no_error_of_the_rig(lab: Lab, tmp_path: Path) -> None:
    def fails() -> None:
        raise CommandFailed(Completed(("mdadm",), 1, "", "not enough", "server"))

    one = sequence(lab, tmp_path, at(1, PowerCut()))
    lab.stack.server_steps = lambda: [SimpleNamespace(run=fails)] * 3
    with pytest.raises(NotRecovered, match="does not recover after the fault power-cut"):
        carried_out(lab, one)
    assert one.record.fault_at_ns is not None
    assert one.record.resumed_ns is None


def test_too_few_replies_are_an_error_of_the_rig(lab: Lab, tmp_path: Path) -> None:
    with pytest.raises(DeadlineExceeded, match="1,000 acknowledged operations, after which power-cut follows"):
        carried_out(lab, sequence(lab, tmp_path, after_replies(1000, PowerCut())))


def test_disks_without_a_cache_get_one_after_the_last_cut(lab: Lab, tmp_path: Path) -> None:
    faults = [at(1, PowerCut()), in_recovery("boot", PowerCut())]
    carried_out(lab, sequence(lab, tmp_path, *faults, cache_mode=CacheMode.NONE))
    last = max(place for place, what in enumerate(lab.did) if what.startswith("cut"))
    assert lab.modes == [last + 1]


@pytest.fixture
def pair(lab: Lab) -> Lab:
    """A fake lab with a second server."""
    other = lab.machine("server2")

    def hand_over() -> None:
        lab.did.append("hand over")
        lab.server = other

    def fence() -> int:
        lab.did.append("fence")
        return lab.ns

    lab.standby = SimpleNamespace(boot_id="1")  # type: ignore[attr-defined]
    lab.server.fence = fence
    lab.hand_over = hand_over  # type: ignore[attr-defined]
    lab.stack.hand_over = lambda server: lab.did.append(f"stack to {server.name}")
    lab.stack.spec = stack_of(pair=PairSpec())
    return lab


def test_after_a_takeover_the_other_server_is_scanned_and_the_clients_are_roused(pair: Lab, tmp_path: Path) -> None:
    lab = pair
    record = carried_out(lab, sequence(lab, tmp_path, at(1, Takeover())))
    up = [one.replace("server", "server2") for one in UP[1:]]
    assert lab.did[:-2] == ["work", "fence", "hand over", "stack to server2", *up]
    assert set(lab.did[-2:]) == {"client1 asks", "client2 asks"}
    assert record.fault_target == "server"
    assert record.effects.caches is None


def test_the_kernel_log_of_a_lasting_fault_is_that_of_the_server_at_its_beginning(
    pair: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    monkeypatch.setattr(member_watch, "said_until_off", lambda machine, _: read.append(machine.name))
    carried_out(pair, sequence(pair, tmp_path, at(0.5, Slow()), at(1, Takeover())))
    assert read == ["server"]
    assert pair.server.name == "server2"
