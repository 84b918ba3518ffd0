from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from raidproof.core.errors import RigError
from raidproof.machine.kernel_log import Moment, keep_tasks, moment, said_since, said_until_off, stamp_us
from raidproof.machine.machine import Machine
from tests.guest_files import FilesByCommands

RING = "<6>[    0.000000] Linux version\n<4>[   12.345678] md0: array\n"


class FakeMachine(FilesByCommands):
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


def test_a_console_on_which_the_kernel_prints_nothing_is_none(tmp_path: Path) -> None:
    silent = tmp_path / "1"
    silent.touch()
    since = moment(machine(silent, ring=RING))
    assert since == Moment("a", 12_345_678)
    later = "<2>[   13.000000] BUG: soft lockup\n"
    assert said_since(machine(silent, ring=RING + later), since) == later
    assert said_until_off(machine(silent), since) is None


def test_after_a_reboot_all_messages_of_the_new_kernel_are_returned() -> None:
    since = moment(machine(ring=RING))
    assert said_since(machine(ring=RING, boot_id="b"), since) == RING
    assert said_since(machine(ring=RING, boot_id=None), since) == ""


def test_a_line_without_a_time_stamp_has_no_time() -> None:
    assert stamp_us("continued") == 0
    assert stamp_us("[ 1234.000001] x") == 1_234_000_001


class Answering(FilesByCommands):
    def __init__(self, console: Path, *, answers: bool) -> None:
        self.console = console
        self.answers = answers

    def succeed(self, argv: Sequence[str], *, deadline_s: float) -> str:
        assert (argv[0], deadline_s > 0) == ("ps", True)
        if not self.answers:
            raise RigError("no answer")
        return "1 S poll_schedule_timeout 00:00:01 init"


@pytest.mark.parametrize("answers", [True, False])
def test_what_tasks_wait_for_is_kept_if_the_machine_still_answers(tmp_path: Path, answers: bool) -> None:
    console = tmp_path / "server.console.1.log"
    keep_tasks(cast("Machine", Answering(console, answers=answers)))
    assert [path.name for path in tmp_path.iterdir()] == (["server.console.1.tasks"] if answers else [])
