from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, cast

from harness.errors import RigError
from harness.machine.kernel_log import Moment, ask_for_stacks, moment, said_since, said_until_off, stamp_us
from harness.machine.machine import Machine

RING = "<6>[    0.000000] Linux version\n<4>[   12.345678] md0: array\n"


class FakeMachine:
    def __init__(self, *consoles: Path, ring: str = "", boot_id: str | None = "a") -> None:
        self.consoles = consoles
        self.console = consoles[-1] if consoles else None
        self.boot_id = boot_id
        self._ring = ring

    def succeed(self, argv: Sequence[str]) -> str:
        assert argv[0] == "dmesg"
        return self._ring


def machine(*consoles: Path, ring: str = "", boot_id: str | None = "a") -> Machine:
    return cast("Machine", FakeMachine(*consoles, ring=ring, boot_id=boot_id))


def test_the_console_from_a_moment_on_and_over_reboots(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    first.write_text("before")
    since = moment(machine(first))
    first.write_text("before|after")
    second.write_text("|boot")
    assert said_since(machine(first, second), since) == "|after|boot"


def test_the_console_from_a_moment_on_until_the_power_went(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    first.write_text("before")
    since = moment(machine(first))
    first.write_text("before|after")
    second.write_text("|boot")
    assert said_until_off(machine(first, second), since) == "|after"
    assert said_until_off(machine(ring=RING), moment(machine(ring=RING))) is None


def test_without_a_console_the_ring_buffer_from_a_moment_on() -> None:
    since = moment(machine(ring=RING))
    assert since == Moment("a", 12_345_678)
    later = RING + "<2>[   13.000000] BUG: soft lockup\n"
    assert said_since(machine(ring=later), since) == "<2>[   13.000000] BUG: soft lockup\n"
    # What the buffer has dropped meanwhile is no reason to miss what is new.
    assert said_since(machine(ring=later.partition("\n")[2]), since) == "<2>[   13.000000] BUG: soft lockup\n"


def test_after_a_reboot_all_that_the_new_kernel_said() -> None:
    since = moment(machine(ring=RING))
    assert said_since(machine(ring=RING, boot_id="b"), since) == RING
    assert said_since(machine(ring=RING, boot_id=None), since) == ""


def test_a_line_without_a_stamp_tells_no_time() -> None:
    assert stamp_us("continued") == 0
    assert stamp_us("[ 1234.000001] x") == 1_234_000_001


def test_a_machine_that_no_longer_listens_is_asked_for_nothing() -> None:
    class Dead:
        asked: ClassVar[list[tuple[list[str], str]]] = []

        def run(self, argv: list[str], *, stdin: str, deadline_s: float) -> None:
            assert deadline_s
            self.asked.append((argv, stdin))
            raise RigError("no answer")

    ask_for_stacks(cast("Machine", Dead()))
    assert Dead.asked == [(["tee", "/proc/sysrq-trigger"], "t")]
