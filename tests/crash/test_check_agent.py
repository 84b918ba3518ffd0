"""The stages of one check, and the way back from each."""

from typing import Any

import pytest

from harness.crash import check_agent
from harness.crash.check_agent import NOT_ASSEMBLED, NOT_MOUNTED, READ, Hand, Runner, freeze

ORDERS: dict[str, Any] = {
    "assemble": [["/dev/md1", ["assemble", "1"]], ["/dev/md0", ["assemble", "0"]]],
    "mount": ["mount"],
    "unmount": ["umount"],
    "stop": ["stop"],
    "ledger": {"root": "/ledger"},
}
FOUND = {"worker": [1, 2]}


class Machine:
    """Runs nothing; what is in ``fails`` fails."""

    def __init__(self, *fails: str) -> None:
        self.fails = fails
        self.ran: list[str] = []
        self.stages: list[str] = []
        self.roots: list[str] = []
        self.hand = Hand(ORDERS, self.run, self.stages.append, self.scan)

    def run(self, argv: list[str]) -> tuple[int, str]:
        self.ran.append(" ".join(argv))
        return (1, "no") if " ".join(argv) in self.fails else (0, "")

    def scan(self, ledger: dict[str, Any]) -> dict[str, Any]:
        self.roots.append(ledger["root"])
        return FOUND


@pytest.fixture(autouse=True)
def nothing_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_agent, "state_of", lambda _: "clear")


def test_all_stages() -> None:
    machine = Machine()
    assert machine.hand.check() == {"end": READ, "said": "", "found": FOUND, "left": ""}
    assert machine.ran == ["assemble 1", "assemble 0", "mount", "umount", "stop"]
    assert machine.stages == ["assemble", "mount", "verify", "unmount", "stop"]


def test_what_does_not_assemble_is_stopped_and_never_mounted() -> None:
    machine = Machine("assemble 0")
    answer = machine.hand.check()
    assert (answer["end"], answer["said"], answer["found"]) == (NOT_ASSEMBLED, "assemble 0: status 1: no", None)
    assert machine.ran == ["assemble 1", "assemble 0", "stop"]


def test_what_does_not_mount_is_stopped_and_not_unmounted() -> None:
    machine = Machine("mount")
    assert machine.hand.check()["end"] == NOT_MOUNTED
    assert machine.ran[-2:] == ["mount", "stop"]


def test_the_next_state_is_not_unmounted_for_the_last_one() -> None:
    machine = Machine()
    machine.hand.check()
    machine.fails = ("mount",)
    machine.ran.clear()
    machine.hand.check()
    assert "umount" not in machine.ran


@pytest.mark.parametrize("command", ["umount", "stop"])
def test_what_is_left_is_told(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_agent, "state_of", lambda _: "active")
    assert Machine(command).hand.check()["left"] == f"{command}: status 1: no"


def test_what_never_came_up_needs_no_stop() -> None:
    assert Machine("assemble 1", "stop").hand.check()["left"] == ""


def test_another_folder_can_be_looked_at_meanwhile() -> None:
    machine = Machine()
    machine.hand.up()
    assert machine.hand.look("/mnt") == {"found": FOUND}
    assert machine.roots == ["/ledger", "/mnt"]
    assert machine.hand.down() == {"left": ""}
    assert ORDERS["ledger"]["root"] == "/ledger"


def test_freezing_what_has_no_resync_is_nothing() -> None:
    freeze("/nowhere/at/all")


def test_a_command_and_what_it_said() -> None:
    runner = Runner()
    assert runner.run(["true"]) == (0, "")
    assert runner.run(["expr", "1", "+", "1"]) == (0, "2")
    status, said = runner.run(["ls", "/nowhere"])
    assert status != 0
    assert "/nowhere" in said
    assert runner.run(["true"]) == (0, "")


def test_only_the_end_of_much_is_kept() -> None:
    assert Runner().run(["seq", "100000"])[1].endswith("100000")
    assert len(Runner().run(["seq", "100000"])[1]) <= check_agent.LONGEST


def test_a_program_that_is_not_there() -> None:
    status, said = Runner().run(["no-such-program"])
    assert status == 127
    assert said


def test_a_program_that_a_signal_ends() -> None:
    assert Runner().run(["python3", "-c", "import os; os.kill(os.getpid(), 9)"])[0] == -9
