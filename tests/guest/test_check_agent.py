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
    differing,
)

CONFIG: dict[str, Any] = {
    "assemble": [
        {"device": "/dev/md1", "command": ["assemble", "1"], "interface": "sysfs-md", "name": "md1"},
        {"device": "/dev/md0", "command": ["assemble", "0"], "interface": "sysfs-md", "name": "md0"},
    ],
    "mount": ["mount"],
    "unmount": ["umount"],
    "fsck": ["fsck"],
    "stop": [["stop"]],
    "ledger": {"root": "/ledger"},
    "permitting": [],
    "scrub": False,
    "nfsd": {"mount": [["chmod"], ["mount", "nfs"]], "unmount": ["umount", "nfs"], "root": "/nfs/ledger"},
}
FOUND = {"worker": [1, 2], "other": [3]}


class Device:
    """A fake device of an array that lacks a number of members, and may remain after it was stopped."""

    def __init__(self, name: str, ran: list[str]) -> None:
        self.name, self.ran = name, ran
        self.lacks = 0
        self.left = False
        self.in_sync = True
        self.differ: int | None = 0

    def write_enable(self) -> None:
        self.ran.append(f"write-enable {self.name}")

    def settled(self) -> bool:
        return self.in_sync

    def scrub(self, most_s: float) -> int | None:
        self.ran.append(f"scrub {self.name}")
        return self.differ

    def freeze(self) -> None:
        self.ran.append(f"freeze {self.name}")

    def missing(self) -> int:
        return self.lacks

    def remains(self) -> bool:
        return self.left


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
        self.refuses = ""
        """Why the server does not serve the state."""
        self.messages: list[str] = []
        """What the kernel writes with level err or worse."""
        self.frozen: list[str] = []
        self.devices = [Device(one["name"], self.frozen) for one in CONFIG["assemble"]]
        self.agent = CheckAgent(CONFIG, self.devices, self.run, self.stages.append, self.scan, self, self.errors)

    def release(self) -> None:
        self.ran.append("server releases")
        if "umount" in self.ran:
            self.fails = self.fails_later

    def serve(self) -> str:
        self.ran.append("server serves")
        return self.refuses

    def run(self, argv: list[str]) -> tuple[int, str]:
        self.ran.append(" ".join(argv))
        return (1, "no") if " ".join(argv) in self.fails else (0, "")

    def errors(self) -> list[str]:
        told, self.messages = self.messages, []
        return told

    def scan(self, root: str) -> dict[str, Any]:
        self.roots.append(root)
        return self.by_nfs if root == "/nfs/ledger" else FOUND


def test_all_stages() -> None:
    machine = Machine()
    assert machine.agent.check() == {"end": READ, "said": "", "found": FOUND, "left": "", "errors": []}
    assert machine.ran == ["assemble 1", "assemble 0", "mount", "umount", "stop"]
    assert machine.stages == ["assemble", "mount", "verify", "unmount", "stop"]


def test_what_does_not_assemble_is_stopped_and_never_mounted() -> None:
    machine = Machine("assemble 0")
    answer = machine.agent.check()
    assert (answer["end"], answer["said"], answer["found"]) == (NOT_ASSEMBLED, "assemble 0: status 1: no", None)
    assert machine.ran == ["assemble 1", "assemble 0", "stop"]


class Refusing(Machine):
    """A fake whose kernel refuses to start an array unless the file has the text 1; ``broken``: even then."""

    def __init__(self, file: Path, *, broken: bool = False) -> None:
        super().__init__()
        file.write_text("0\n")
        self.file, self.broken = file, broken
        self.agent.config = {**CONFIG, "permitting": [[str(file), "1"]]}

    def run(self, argv: list[str]) -> tuple[int, str]:
        refused = argv[0] == "assemble" and (self.broken or self.file.read_text() != "1")
        ended = super().run(argv)
        return (1, "dirty and degraded") if refused else ended


def test_what_the_kernel_refuses_is_noted_and_started_with_permission(tmp_path: Path) -> None:
    machine = Refusing(tmp_path / "start_dirty_degraded")
    answer = machine.agent.check()
    assert (answer["end"], answer["refused"]) == (READ, "assemble 1: status 1: dirty and degraded")
    assert machine.ran[:4] == ["assemble 1", "stop", "assemble 1", "assemble 0"]
    assert machine.file.read_text() == "0\n", "the next state must be refused again"


def test_what_does_not_start_with_permission_was_not_refused(tmp_path: Path) -> None:
    machine = Refusing(tmp_path / "start_dirty_degraded", broken=True)
    answer = machine.agent.check()
    assert (answer["end"], "refused" in answer) == (NOT_ASSEMBLED, False)
    assert machine.file.read_text() == "0\n"


def test_without_permission_a_refused_array_is_not_assembled(tmp_path: Path) -> None:
    machine = Refusing(tmp_path / "start_dirty_degraded")
    machine.agent.config = CONFIG
    assert machine.agent.check()["end"] == NOT_ASSEMBLED


def test_arrays_are_scrubbed_after_fsck_if_that_is_asked() -> None:
    machine = Machine()
    machine.devices[0].differ, machine.devices[1].differ = None, 8
    assert "scrubbed" not in machine.agent.check(fsck=True)
    machine.agent.config = {**CONFIG, "scrub": True}
    assert "scrubbed" not in machine.agent.check()
    assert machine.agent.check(fsck=True)["scrubbed"] == {"/dev/md0": 8}
    assert machine.stages[-3:] == ["fsck", "scrub", "stop"]


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
def test_leftovers_are_reported(command: str) -> None:
    machine = Machine(command)
    machine.devices[1].left = True
    assert machine.agent.check()["left"] == f"{command}: status 1: no"


def test_what_never_came_up_needs_no_stop() -> None:
    assert Machine("assemble 1", "stop").agent.check()["left"] == ""


def test_another_folder_can_be_looked_at_meanwhile() -> None:
    machine = Machine()
    machine.agent.up()
    assert machine.agent.scan_below("/mnt") == {"found": FOUND}
    assert machine.roots == ["/ledger", "/mnt"]
    machine.messages = ["XFS (md0): Failed to recover intents"]
    assert machine.agent.down() == {"left": "", "errors": ["XFS (md0): Failed to recover intents"]}
    assert CONFIG["ledger"]["root"] == "/ledger"


def test_nfsd_serves_on_request_and_releases_the_file_system_before_the_unmount() -> None:
    machine = Machine()
    assert machine.agent.check(nfsd=True) == {
        "end": READ,
        "said": "",
        "found": FOUND,
        "through_nfsd": SAME,
        "left": "",
        "errors": [],
    }
    assert machine.ran[2:] == [
        *("mount", "server serves", "chmod", "mount nfs"),
        *("umount nfs", "server releases", "umount", "stop"),
    ]
    assert machine.stages == ["assemble", "mount", "verify", "nfsd", "look", "leave", "forget", "unmount", "stop"]
    assert machine.roots == ["/ledger", "/nfs/ledger"]


def test_a_difference_through_nfsd_is_reported() -> None:
    machine = Machine()
    machine.by_nfs = {"worker": [1, 1], "other": [3]}
    answer = machine.agent.check(nfsd=True)
    assert (answer["end"], answer["through_nfsd"], answer["said"]) == (
        READ,
        DIFFERENT,
        "through the NFS server: worker",
    )
    assert answer["found"] == FOUND


def test_an_nfsd_that_serves_nothing_is_reported() -> None:
    machine = Machine("mount nfs")
    answer = machine.agent.check(nfsd=True)
    assert (answer["end"], answer["through_nfsd"], answer["left"]) == (READ, DIFFERENT, "")
    assert answer["said"] == "through the NFS server: mount nfs: status 1: no"
    assert machine.ran[-4:] == ["mount nfs", "server releases", "umount", "stop"]


def test_a_server_that_does_not_serve_the_state_is_reported() -> None:
    machine = Machine()
    machine.refuses = "ganesha.nfsd ended at its start with status 1"
    answer = machine.agent.check(nfsd=True)
    assert (answer["end"], answer["through_nfsd"], answer["left"]) == (READ, DIFFERENT, "")
    assert answer["said"] == f"through the NFS server: {machine.refuses}"
    assert machine.ran[-4:] == ["server serves", "server releases", "umount", "stop"]


def test_what_is_not_mounted_is_not_served() -> None:
    machine = Machine("mount")
    assert "through_nfsd" not in machine.agent.check(nfsd=True)
    assert "server releases" not in machine.ran


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
    assert machine.ran[-5:] == ["server releases", "umount", "server releases", "umount", "stop"]


def test_the_file_system_is_checked_between_unmount_and_stop() -> None:
    machine = Machine()
    answer = machine.agent.check(fsck=True)
    assert answer == {"end": READ, "said": "", "found": FOUND, "fsck": (0, ""), "left": "", "errors": []}
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
def test_a_degraded_array_is_reported(fails: tuple[str, ...], end: str) -> None:
    machine = Machine(*fails)
    machine.devices[1].lacks = 1
    answer = machine.agent.check()
    assert (answer["end"], answer["degraded"]) == (end, {"/dev/md0": 1})


def test_which_workers_differ() -> None:
    assert differing({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 3}) == ["b", "c"]


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


def test_no_resync_may_begin_before_the_last_look() -> None:
    machine = Machine()
    for device in machine.devices:
        device.ran = machine.ran
    machine.agent.check()
    assert machine.ran == ["assemble 1", "freeze md1", "assemble 0", "freeze md0", "mount", "umount", "stop"]


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


def test_a_recovery_resyncs_reads_and_stops_nothing() -> None:
    machine = Machine()
    machine.devices[0].in_sync = False
    answer = machine.agent.recover(resync_first_s=0.01, most_s=0.01)
    assert answer == {"end": READ, "said": "", "found": FOUND, "left": "", "settled": False, "errors": []}
    assert machine.ran == ["assemble 1", "assemble 0", "mount"]
    assert machine.frozen == ["write-enable md1", "write-enable md0"], "a frozen array would not resync"
    assert machine.stages == ["assemble", "resync", "mount", "verify", "settle"]
    machine.devices[0].in_sync = True
    assert machine.agent.recover(resync_first_s=0, most_s=0)["settled"]


@pytest.mark.parametrize(("fails", "end"), [("assemble 1", NOT_ASSEMBLED), ("mount", NOT_MOUNTED)])
def test_a_recovery_that_fails_ends_at_that_stage(fails: str, end: str) -> None:
    machine = Machine(fails)
    answer = machine.agent.recover(resync_first_s=0, most_s=0)
    assert (answer["end"], answer["settled"], answer["left"], answer["errors"]) == (end, False, "", [])
    assert "settle" not in machine.stages
