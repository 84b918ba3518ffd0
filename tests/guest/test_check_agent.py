"""The stages of a check, and the clean-up after a failure in each stage."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from raidproof.guest import check_agent
from raidproof.guest.check_agent import (
    DIFFERENT,
    NOT_ASSEMBLED,
    NOT_MOUNTED,
    READ,
    SAME,
    CheckAgent,
    Runner,
    degraded,
    differing,
    freeze,
    remains,
)

STATE_OF = check_agent.state_of
"""The original function, before the tests replace it."""

CONFIG: dict[str, Any] = {
    "assemble": [["/dev/md1", ["assemble", "1"]], ["/dev/md0", ["assemble", "0"]]],
    "mount": ["mount"],
    "unmount": ["umount"],
    "fsck": ["fsck"],
    "stop": ["stop"],
    "ledger": {"root": "/ledger"},
    "nfsd": {"mount": [["chmod"], ["mount", "nfs"]], "unmount": ["umount", "nfs"], "root": "/nfs/ledger"},
}
FOUND = {"worker": [1, 2], "other": [3]}


class Machine:
    """A fake that runs no command; the commands in ``fails`` fail."""

    def __init__(self, *fails: str) -> None:
        self.fails = fails
        self.fails_later = fails
        """The commands that fail after a restart of nfsd that follows an umount."""
        self.ran: list[str] = []
        self.stages: list[str] = []
        self.roots: list[str] = []
        self.by_nfs = FOUND
        self.agent = CheckAgent(CONFIG, self.run, self.stages.append, self.scan, self)

    def restart(self) -> None:
        self.ran.append("restart nfsd")
        if "umount" in self.ran:
            self.fails = self.fails_later

    def require_ready(self) -> None:
        self.ran.append("nfsd is ready")

    def run(self, argv: list[str]) -> tuple[int, str]:
        self.ran.append(" ".join(argv))
        return (1, "no") if " ".join(argv) in self.fails else (0, "")

    def scan(self, ledger: dict[str, Any]) -> dict[str, Any]:
        self.roots.append(ledger["root"])
        return self.by_nfs if ledger["root"] == "/nfs/ledger" else FOUND


@pytest.fixture(autouse=True)
def nothing_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_agent, "state_of", lambda _: "clear")


def test_all_stages() -> None:
    machine = Machine()
    assert machine.agent.check() == {"end": READ, "said": "", "found": FOUND, "left": ""}
    assert machine.ran == ["assemble 1", "assemble 0", "mount", "umount", "stop"]
    assert machine.stages == ["assemble", "mount", "verify", "unmount", "stop"]


def test_what_does_not_assemble_is_stopped_and_never_mounted() -> None:
    machine = Machine("assemble 0")
    answer = machine.agent.check()
    assert (answer["end"], answer["said"], answer["found"]) == (NOT_ASSEMBLED, "assemble 0: status 1: no", None)
    assert machine.ran == ["assemble 1", "assemble 0", "stop"]


def test_what_does_not_mount_is_stopped_and_not_unmounted() -> None:
    machine = Machine("mount")
    assert machine.agent.check()["end"] == NOT_MOUNTED
    assert machine.ran[-2:] == ["mount", "stop"]


def test_the_next_state_is_not_unmounted_for_the_last_one() -> None:
    machine = Machine()
    machine.agent.check()
    machine.fails = ("mount",)
    machine.ran.clear()
    machine.agent.check()
    assert "umount" not in machine.ran


@pytest.mark.parametrize("command", ["umount", "stop"])
def test_leftovers_are_reported(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_agent, "state_of", lambda _: "active")
    assert Machine(command).agent.check()["left"] == f"{command}: status 1: no"


def test_what_never_came_up_needs_no_stop() -> None:
    assert Machine("assemble 1", "stop").agent.check()["left"] == ""


def test_another_folder_can_be_looked_at_meanwhile() -> None:
    machine = Machine()
    machine.agent.up()
    assert machine.agent.scan_below("/mnt") == {"found": FOUND}
    assert machine.roots == ["/ledger", "/mnt"]
    assert machine.agent.down() == {"left": ""}
    assert CONFIG["ledger"]["root"] == "/ledger"


def test_nfsd_serves_on_request_and_releases_the_file_system_before_the_unmount() -> None:
    machine = Machine()
    assert machine.agent.check(nfsd=True) == {
        "end": READ,
        "said": "",
        "found": FOUND,
        "through_nfsd": SAME,
        "left": "",
    }
    assert machine.ran[2:] == [
        *("mount", "nfsd is ready", "chmod", "mount nfs"),
        *("umount nfs", "restart nfsd", "umount", "stop"),
    ]
    assert machine.stages == ["assemble", "mount", "verify", "nfsd", "look", "leave", "forget", "unmount", "stop"]
    assert machine.roots == ["/ledger", "/nfs/ledger"]


def test_a_difference_through_nfsd_is_reported() -> None:
    machine = Machine()
    machine.by_nfs = {"worker": [1, 1], "other": [3]}
    answer = machine.agent.check(nfsd=True)
    assert (answer["end"], answer["through_nfsd"], answer["said"]) == (READ, DIFFERENT, "through nfsd: worker")
    assert answer["found"] == FOUND


def test_an_nfsd_that_serves_nothing_is_reported() -> None:
    machine = Machine("mount nfs")
    answer = machine.agent.check(nfsd=True)
    assert (answer["end"], answer["through_nfsd"], answer["left"]) == (READ, DIFFERENT, "")
    assert answer["said"] == "through nfsd: mount nfs: status 1: no"
    assert machine.ran[-4:] == ["mount nfs", "restart nfsd", "umount", "stop"]


def test_what_is_not_mounted_is_not_served() -> None:
    machine = Machine("mount")
    assert "through_nfsd" not in machine.agent.check(nfsd=True)
    assert "restart nfsd" not in machine.ran


def test_an_nfs_mount_that_cannot_be_unmounted_is_reported() -> None:
    machine = Machine("umount nfs")
    answer = machine.agent.check(nfsd=True)
    assert (answer["through_nfsd"], answer["left"]) == (SAME, "umount nfs: status 1: no")
    machine.fails = ()
    assert machine.agent.check()["left"] == ""


def test_a_file_system_that_nfsd_holds_on_to_is_unmounted_at_the_second_try() -> None:
    machine = Machine("umount")
    machine.fails_later = ()
    assert machine.agent.check(nfsd=True)["left"] == ""
    assert machine.ran[-5:] == ["restart nfsd", "umount", "restart nfsd", "umount", "stop"]


def test_the_file_system_is_checked_between_unmount_and_stop() -> None:
    machine = Machine()
    assert machine.agent.check(fsck=True) == {"end": READ, "said": "", "found": FOUND, "fsck": (0, ""), "left": ""}
    assert machine.ran[-3:] == ["umount", "fsck", "stop"]
    assert machine.stages[-3:] == ["unmount", "fsck", "stop"]


def test_the_result_of_fsck_is_reported() -> None:
    assert Machine("fsck").agent.check(fsck=True)["fsck"] == (1, "no")


@pytest.mark.parametrize("fails", ["mount", "umount"])
def test_what_is_still_mounted_or_never_was_is_not_checked(fails: str) -> None:
    machine = Machine(fails)
    assert "fsck" not in machine.agent.check(fsck=True)
    assert "fsck" not in machine.ran


@pytest.mark.parametrize(("fails", "end"), [((), READ), (("mount",), NOT_MOUNTED)])
def test_a_degraded_array_is_reported(
    fails: tuple[str, ...], end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_agent, "BLOCK_DEVICES", str(tmp_path))
    for name, missing in (("md0", "1\n"), ("md1", "0\n")):
        (tmp_path / name / "md").mkdir(parents=True)
        (tmp_path / name / "md" / "degraded").write_text(missing)
    answer = Machine(*fails).agent.check()
    assert (answer["end"], answer["degraded"]) == (end, {"/dev/md0": 1})
    assert degraded("/dev/md2") == 0


@pytest.mark.parametrize(
    ("state", "left"), [("clean\n", True), ("inactive\n", True), ("clear\n", False), (None, False)]
)
def test_an_array_remains_until_its_device_is_clear_or_gone(
    state: str | None, left: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_agent, "state_of", STATE_OF)
    monkeypatch.setattr(check_agent, "BLOCK_DEVICES", str(tmp_path))
    if state is not None:
        (tmp_path / "md0" / "md").mkdir(parents=True)
        (tmp_path / "md0" / "md" / "array_state").write_text(state)
    assert remains(CONFIG) is left


def test_which_workers_differ() -> None:
    assert differing({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 3}) == ["b", "c"]


def test_freezing_what_has_no_resync_is_nothing() -> None:
    freeze("/nowhere/at/all")


def test_a_command_and_its_output() -> None:
    runner = Runner()
    assert runner.run(["true"]) == (0, "")
    assert runner.run(["expr", "1", "+", "1"]) == (0, "2")
    status, said = runner.run(["ls", "/nowhere"])
    assert status != 0
    assert "/nowhere" in said
    assert runner.run(["true"]) == (0, "")


def test_of_much_the_beginning_and_the_end_are_kept() -> None:
    said = Runner().run(["seq", "100000"])[1]
    assert (said[:4], said[-7:]) == ("1\n2\n", "\n100000")
    assert len(said) <= check_agent.LONGEST + len("\n...\n")


def test_a_program_that_is_not_there() -> None:
    status, said = Runner().run(["no-such-program"])
    assert status == 127
    assert said


def test_a_program_that_a_signal_ends() -> None:
    assert Runner().run(["python3", "-c", "import os; os.kill(os.getpid(), 9)"])[0] == -9


def test_no_resync_may_begin_before_the_last_look(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    monkeypatch.setattr(check_agent, "freeze", lambda path: machine.ran.append(f"freeze {path}"))
    machine.agent.check()
    frozen = [f"freeze /sys/block/{device}/md/sync_action" for device in ("md1", "md0")]
    assert machine.ran == ["assemble 1", frozen[0], "assemble 0", frozen[1], "mount", "umount", "stop"]


def test_a_call_replaces_a_command_and_the_command_runs_if_the_call_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[list[str]] = []

    def call(arguments: Sequence[str]) -> None:
        called.append(list(arguments))
        if arguments == ["fails"]:
            raise OSError("no")

    helper = tmp_path / "modprobe"
    helper.touch()
    monkeypatch.setattr(check_agent, "HELPERS", {str(helper): "/sbin/modprobe"})
    runner = Runner(calls={"echo": call})
    assert runner.run(["echo", "works"]) == (0, "")
    assert not helper.read_text()
    assert runner.run(["echo", "fails"]) == (0, "fails")
    assert helper.read_text() == "/sbin/modprobe\n", "the command may need a module"
    assert called == [["works"], ["fails"]]


def test_a_kernel_without_a_helper_program_runs_the_command_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def call(_: Sequence[str]) -> None:
        raise OSError("no")

    # /sys/kernel/uevent_helper exists only with CONFIG_UEVENT_HELPER.
    monkeypatch.setattr(check_agent, "HELPERS", {str(tmp_path / "missing" / "uevent_helper"): ""})
    assert Runner(calls={"echo": call}).run(["echo", "fails"]) == (0, "fails")


def in_sync(folder: Path, name: str = "md0", **files: str) -> Path:
    """Write md's files of an array below ``folder``: by default the array is in sync and clean."""
    md = folder / name / "md"
    md.mkdir(parents=True, exist_ok=True)
    for file, text in {"sync_action": "idle", "resync_start": "none", "array_state": "clean", **files}.items():
        (md / file).write_text(f"{text}\n")
    return md


@pytest.mark.parametrize(
    ("files", "settled"),
    [
        ({}, True),
        ({"sync_action": "resync"}, False),
        ({"resync_start": "0"}, False),
        ({"array_state": "active"}, False),
        ({"array_state": "read-auto"}, False),
    ],
)
def test_an_array_has_settled_when_it_is_in_sync_and_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], settled: bool
) -> None:
    monkeypatch.setattr(check_agent, "BLOCK_DEVICES", str(tmp_path))
    monkeypatch.setattr(check_agent, "state_of", STATE_OF)
    in_sync(tmp_path, **files)
    assert check_agent.settled("md0") is settled
    assert check_agent.settled("md7"), "an array without redundancy has no file sync_action"


def test_a_recovery_resyncs_reads_and_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_agent, "BLOCK_DEVICES", str(tmp_path))
    monkeypatch.setattr(check_agent, "state_of", STATE_OF)
    waits, modes = in_sync(tmp_path, "md1", array_state="read-auto"), in_sync(tmp_path)
    machine = Machine()
    answer = machine.agent.recover(resync_first_s=0.01, most_s=0.01)
    # The file of a real array would become "clean"; this one keeps what the agent has written.
    assert (waits / "array_state").read_text() == "active"
    assert (modes / "array_state").read_text() == "clean\n"
    assert (waits / "sync_action").read_text() == "idle\n", "a frozen array would not resync"
    assert answer == {"end": READ, "said": "", "found": FOUND, "left": "", "settled": False}
    assert machine.ran == ["assemble 1", "assemble 0", "mount"]
    assert machine.stages == ["assemble", "resync", "mount", "verify", "settle"]
    in_sync(tmp_path, "md1")
    assert machine.agent.recover(resync_first_s=0, most_s=0)["settled"]


@pytest.mark.parametrize(("fails", "end"), [("assemble 1", NOT_ASSEMBLED), ("mount", NOT_MOUNTED)])
def test_a_recovery_that_fails_ends_at_that_stage(fails: str, end: str) -> None:
    machine = Machine(fails)
    answer = machine.agent.recover(resync_first_s=0, most_s=0)
    assert (answer["end"], answer["settled"], answer["left"]) == (end, False, "")
    assert "settle" not in machine.stages
