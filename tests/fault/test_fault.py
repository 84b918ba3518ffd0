"""A fault is one class: it is looked up by its name, declares its effects, and is judged by them."""

from collections.abc import Iterator
from dataclasses import dataclass
from errno import EIO, ETIMEDOUT
from pathlib import Path
from typing import ClassVar
from unittest.mock import MagicMock

import pytest

from raidproof.core.errors import RequestError
from raidproof.core.topology import server_and_clients
from raidproof.disk.cache import CutPolicy
from raidproof.disk.disk_fault import drop_flushes
from raidproof.fault import FAULTS, CleanReboot, Fault, FaultContext, FaultEffects, FaultEvent, PowerCut
from raidproof.fault.fault import why_no_locks
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.record import CrashTestRecord, RunStore
from raidproof.record.observation import Files
from raidproof.record.older import EFFECTS
from raidproof.record.outcome import Outcome
from raidproof.run import run as module
from raidproof.run.crash_test import CrashTestSpec
from raidproof.run.run import Run
from raidproof.storage.mount import MountSpec
from raidproof.storage.server import ExportSpec
from raidproof.storage.stack import StackSpec
from raidproof.verdict.crash_test import judge_crash_test
from tests.distribution import install, python
from tests.fault.toy import WORDS, KernelWarns

TOY = Path(__file__).with_name("toy.py")
RESTART = FaultEffects(server_away=True, nfsd_restarted=True)
REBOOT = FaultEffects(server_away=True, nfsd_restarted=True, server_memory_lost=True)
RECORDED = Path(__file__).resolve().parents[1] / "data" / "run"


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """Register the toy fault; afterwards remove all faults that the test has defined."""
    before = set(FAULTS) | {KernelWarns.name}
    yield
    for name in set(FAULTS) - before:
        FAULTS.remove(name)


class Nothing(Fault):
    """Common base of the faults in this file."""

    def inject(self, context: FaultContext) -> FaultEvent:
        raise NotImplementedError

    def heal(self, context: FaultContext) -> None:
        raise NotImplementedError


def test_a_fault_without_effects_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Silent: the fault 'silent' does not declare its effects: define effects"):

        class Silent(Nothing):
            name: ClassVar[str] = "silent"

    assert "silent" not in FAULTS


def test_effects_of_the_fault_that_it_is_made_from_are_not_its_own() -> None:
    with pytest.raises(TypeError, match="'worse-cut' does not declare"):

        class WorseCut(PowerCut):
            name: ClassVar[str] = "worse-cut"


def test_a_file_with_such_a_fault_is_not_imported(tmp_path: Path) -> None:
    source = TOY.read_text()
    begin, end = source.index("    def effects("), source.index("    def inject(")
    (tmp_path / "silent.py").write_text(source[:begin] + source[end:])
    ended = python(tmp_path, "-c", "import silent")
    assert ended.returncode == 1
    assert "TypeError: silent.KernelWarns: the fault 'kernel-warns' does not declare its effects" in ended.stderr


def test_a_variant_without_a_name_of_its_own_is_the_same_fault() -> None:
    class Tampered(PowerCut):
        pass

    assert FAULTS["power-cut"] is PowerCut
    assert Tampered(CutPolicy.KEEP).effects(stack_of()) == PowerCut(CutPolicy.KEEP).effects(stack_of())


def test_several_faults_may_inherit_effects() -> None:
    class Shared(Nothing):
        def effects(self, stack: StackSpec) -> FaultEffects:
            return FaultEffects(server_away=True)

        name: ClassVar[str] = "shared"

    assert FAULTS["shared"] is Shared


def test_two_faults_of_one_name_are_refused() -> None:
    with pytest.raises(RequestError, match="two kinds of fault are named 'clean-reboot'"):

        class Other(CleanReboot):
            name: ClassVar[str] = "clean-reboot"

            def effects(self, stack: StackSpec) -> FaultEffects:
                return FaultEffects()


def test_a_name_is_enough_where_policy_and_seed_are() -> None:
    assert FAULTS["power-cut"].by_name(CutPolicy.TORN, 7) == PowerCut(CutPolicy.TORN, 7)
    assert FAULTS["clean-reboot"].by_name(CutPolicy.TORN, 7) == CleanReboot()
    with pytest.raises(
        RequestError, match=r"member-fails' needs .* arguments: serial \(give MemberFails\(...\) instead"
    ):
        FAULTS["member-fails"].by_name(CutPolicy.DROP, 1)


def test_optional_methods_of_a_fault_have_defaults() -> None:
    @dataclass(frozen=True)
    class Plain(Nothing):
        name: ClassVar[str] = "plain"

        def effects(self, stack: StackSpec) -> FaultEffects:
            return FaultEffects()

    context = FaultContext(MagicMock(), MagicMock())
    assert Plain().target(context) is None
    assert Plain().lasted(context, {}, None) is None


def test_a_toy_fault_is_asked_by_its_name_and_judged_by_its_effects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = MagicMock()
    monkeypatch.setattr(module, "lab_of", lambda *_, **__: lab)
    monkeypatch.setattr(module, "environment_of", lambda _: None)
    monkeypatch.setattr(module, "run_crash_test", as_recorded)
    current_run = Run("toy", tmp_path, server_and_clients())
    spec = CrashTestSpec(name="toy", title="toy", stack=stack_of(), fault="kernel-warns", seed=3)
    assert current_run.cycle(spec).outcome is Outcome.PASS
    stored = current_run.store.load().cycles[0]
    assert stored.effects == KernelWarns(3).effects(stack_of())
    stored.effects = FaultEffects()
    judge_crash_test(stored, current_run.store.path)
    assert (stored.outcome, "kernel log" in stored.reason) == (Outcome.FAIL, True)


def as_recorded(_lab: object, _spec: CrashTestSpec, record: CrashTestRecord, _run: Path) -> None:
    """Return a crash test with the observations of another one and a warning of the server's kernel."""
    before = RunStore(RECORDED).load().cycles[0]
    console = Path(_run, "console.log")
    console.write_text(f"{WORDS}\n")
    calm = Path(_run, "calm.log")
    calm.write_text("[0.0] Linux version 6.12\n")
    seen = before.model_dump(exclude={"name", "title", "fault", "effects", "verdicts", "outcome", "reason"})
    for field in seen:
        setattr(record, field, getattr(before, field))
    paths = {what: str(RECORDED / str(getattr(before.files, what))) for what in ("history", "on_server", "on_client")}
    record.files = Files(**paths, consoles={"server": str(console), "client1": str(calm), "client2": str(calm)})


def test_a_fault_of_another_distribution_is_found_by_its_entry_point(tmp_path: Path) -> None:
    install(tmp_path, "toy", {"toy_faults": TOY.read_text()}, {"raidproof.faults": "toy_faults"})
    program = """
from raidproof.fault.fault import why_no_locks
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.run.crash_test import CrashTestSpec, schedule_of
fault = schedule_of(CrashTestSpec(name="x", title="x", stack=stack_of(), fault="kernel-warns", seed=5)).main_fault
print(type(fault).__module__, fault.seed, fault.effects(stack_of()).kernel_messages)
"""
    ended = python(tmp_path, "-c", program)
    assert ended.stdout == "toy_faults 5 ('WARNING: .* at toy\\\\.c',)\n", ended.stderr


SOFT = stack_of(mount=MountSpec(recovery="soft"))
ARGUMENTS = {
    "serial": "disk1",
    "offset": 0,
    "other": "disk2",
    "holding": b"x",
    "serials": ("disk1",),
    "disk_fault": drop_flushes(),
}


@pytest.mark.parametrize(
    "name", sorted(name for name, kind in FAULTS.items() if kind.__module__.startswith("raidproof."))
)
def test_a_soft_mount_may_report_errors_of_each_fault_that_takes_the_server_away(name: str) -> None:
    kind = FAULTS[name]
    fields = getattr(kind, "__dataclass_fields__", {})
    fault = kind(**{word: value for word, value in ARGUMENTS.items() if word in fields})
    soft, hard = fault.effects(SOFT), fault.effects(stack_of())
    assert not soft.server_away or {EIO, ETIMEDOUT} <= soft.errors
    assert not hard.server_away or not hard.errors


@pytest.mark.parametrize("name", sorted(EFFECTS))
def test_what_faults_declare_is_what_the_judge_knew_of_them_by_name(name: str) -> None:
    kind = FAULTS[name]
    fields = getattr(kind, "__dataclass_fields__", {})
    fault = kind(**{word: value for word, value in ARGUMENTS.items() if word in fields})
    # These the record kept apart from the name.
    apart = {"caches", "errors", "explanation", "kernel_messages"}
    assert fault.effects(SOFT).model_dump(exclude=apart) == EFFECTS[name].model_dump(exclude=apart)


@pytest.mark.parametrize(
    ("mount", "grace_s", "effects", "why"),
    [
        (MountSpec(vers="4.2"), 90, [RESTART], None),
        (MountSpec(vers="3"), 10, [REBOOT, FaultEffects(member_missing=True)], None),
        (MountSpec(vers="3"), 10, [], None),
        (MountSpec(vers="3", lock=False), 10, [], "nolock"),
        (MountSpec(vers="3"), 10, [REBOOT, RESTART], "only of a reboot"),
        (MountSpec(vers="3"), 10, [FaultEffects(client_memory_lost=True)], "only of a reboot"),
        (MountSpec(vers="3"), 90, [], "grace period"),
    ],
)
def test_clients_lock_files_only_if_they_keep_their_locks_by_design(
    mount: MountSpec, grace_s: int, effects: list[FaultEffects], why: str | None
) -> None:
    stack = stack_of(mount=mount, export=ExportSpec(grace_s=grace_s))
    found = why_no_locks(stack, effects)
    assert found is None if why is None else why in str(found)
