from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raidproof.core.errors import RigError
from raidproof.core.waiting import now_ns
from raidproof.disk.cache import CutPolicy, CutResult
from raidproof.fault import CleanReboot, ClientPowerCut, FaultContext, KernelPanic, PowerCut
from raidproof.lab.lab import Lab
from raidproof.machine.machine import Cut
from raidproof.storage.stack import Stack


class FakeCommand:
    """A fake that records its arguments."""

    def __init__(self, done: list[str]) -> None:
        self.done = done

    def feed(self, data: bytes) -> None:
        self.done.append(f"feed {data.decode()}")


class FakeMachine:
    """A fake that records the calls of its methods."""

    name = "server"

    def __init__(self, console: Path) -> None:
        self.console = console
        self.done: list[str] = []

    def crash(self, policy: CutPolicy, seed: int) -> Cut:
        self.done.append(f"crash {policy.value} {seed}")
        return Cut(42, policy, seed, (CutResult("disk0", 3, 1, 0, 2, 8192, 0),))

    def start_command(self, argv: list[str]) -> FakeCommand:
        self.done.append(f"start_command {' '.join(argv)}")
        return FakeCommand(self.done)

    def __getattr__(self, name: str) -> Any:
        def do(*arguments: Any, **_: Any) -> str:
            words = " ".join(map(str, arguments[0])) if arguments and isinstance(arguments[0], list) else ""
            self.done.append(f"{name} {words}".strip())
            return "0\n"

        return do


@pytest.fixture
def fake(tmp_path: Path) -> FakeMachine:
    console = tmp_path / "console"
    console.write_text("calm\n")
    return FakeMachine(console)


def context(fake: FakeMachine, client: object = None) -> FaultContext:
    """Return a context whose lab and stack consist of the fake."""
    lab = SimpleNamespace(server=fake, clients=(None, client))
    return FaultContext(cast("Lab", lab), cast("Stack", SimpleNamespace(export=fake)))


def test_a_power_cut_runs_nothing_in_the_machine(fake: FakeMachine) -> None:
    injected = PowerCut(CutPolicy.TORN, 7).inject(context(fake))
    assert fake.done == ["crash torn 7"]
    assert (injected.at_ns, injected.cut_results[0].dropped) == (42, 2)
    assert "torn" in injected.proof


def test_a_clean_reboot_counts_acknowledgements_until_the_machine_was_off(fake: FakeMachine) -> None:
    begun = now_ns()
    assert CleanReboot().inject(context(fake)).at_ns >= begun
    assert fake.done == ["shutdown"]


def test_a_panic_is_proved_by_the_console(fake: FakeMachine) -> None:
    fake.console.write_text("Kernel panic - not syncing: sysrq triggered crash\n")
    injected = KernelPanic().inject(context(fake))
    assert injected.at_ns <= now_ns()
    assert fake.done == ["start_command dd of=/proc/sysrq-trigger bs=1 count=1 status=none", "feed c", "wait_off"]


def test_a_panic_that_did_not_happen_is_the_rigs_fault(fake: FakeMachine) -> None:
    with pytest.raises(RigError, match="without a kernel panic"):
        KernelPanic().inject(context(fake))


@pytest.mark.parametrize("fault", [PowerCut(), CleanReboot(), KernelPanic()])
def test_healing_is_switching_on_and_nothing_else(fake: FakeMachine, fault: PowerCut | CleanReboot) -> None:
    fault.heal(context(fake))
    assert fake.done == ["start"]
    assert fault.target(context(fake)) is fake  # type: ignore[comparison-overlap]


def test_the_last_client_is_the_one_to_lose_its_power(fake: FakeMachine) -> None:
    assert ClientPowerCut().target(context(FakeMachine(fake.console), fake)) is fake  # type: ignore[comparison-overlap]
