from collections.abc import Sequence

import pytest

from raidproof.core.command import Completed
from raidproof.core.errors import RequestError
from raidproof.core.units import KIB
from raidproof.storage.array import MdArray, MdSpec, Upkeep
from raidproof.storage.array.upkeep import Progress, ended_in, parse_progress
from tests.guest_files import FilesByCommands

PATH = "/dev/disk/by-id/raidproof-"


class Typist(FilesByCommands):
    """A fake machine that records commands, and refuses the first ``busy`` removals."""

    name = "server"
    address = "10.77.0.10"

    def __init__(self, busy: int = 0, progress: str = "check", completed: str = "128 / 1024") -> None:
        self.typed: list[str] = []
        self.busy = busy
        self.answer = f"/sys/block/md0/md/sync_action:{progress}\n/sys/block/md0/md/sync_completed:{completed}\n"

    def run(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = 1.0) -> Completed:
        words = [word.replace(PATH, "").replace("/sys/block/md0/md/", "") for word in argv]
        self.typed.append(" ".join([*words, *([f"< {stdin.strip()}"] if stdin else [])]))
        if "--remove" in argv and self.busy:
            self.busy -= 1
            return Completed(tuple(argv), 1, "", "hot remove failed: Device or resource busy", self.name)
        return Completed(tuple(argv), 0, self.answer if argv[0] == "grep" else "", "", self.name)

    def succeed(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = 1.0) -> str:
        return self.run(argv, stdin=stdin, deadline_s=deadline_s).stdout


def upkeep(machine: Typist) -> Upkeep:
    return MdArray(MdSpec(members=("disk0", "disk1", "disk2")), machine).upkeep("disk1")


def test_a_member_is_removed_as_soon_as_md_permits_it() -> None:
    machine = Typist(busy=2)
    upkeep(machine).take_out("disk1")
    assert machine.typed == ["mdadm /dev/md0 --fail disk1", *["mdadm /dev/md0 --remove disk1"] * 3]


def test_a_new_member_has_no_metadata() -> None:
    machine = Typist()
    upkeep(machine).put_in("disk1")
    assert machine.typed == ["mdadm --zero-superblock disk1", "mdadm /dev/md0 --add disk1"]


def test_a_former_member_keeps_its_metadata() -> None:
    machine = Typist()
    upkeep(machine).take_back("disk1")
    assert machine.typed == ["mdadm /dev/md0 --re-add disk1"]


def test_a_resync_begins_where_nothing_counts_as_in_sync() -> None:
    machine = Typist()
    upkeep(machine).begin("resync")
    assert machine.typed == ["tee sync_action < frozen", "tee resync_start < 0", "tee sync_action < resync"]


def test_a_throttle_holds_for_an_idle_array_too() -> None:
    machine = Typist()
    upkeep(machine).throttle(1000)
    upkeep(machine).throttle(None)
    wanted = ["sync_speed_min < 1000", "sync_speed_max < 1000", "sync_speed_min < system", "sync_speed_max < system"]
    assert machine.typed == [f"tee {one}" for one in wanted]


def test_growing_takes_the_spares() -> None:
    machine = Typist()
    upkeep(machine).grow(4)
    assert machine.typed == ["mdadm --grow /dev/md0 --raid-devices=4"]


def test_what_runs_is_waited_for() -> None:
    assert upkeep(Typist()).wait_for("check", "repair") == Progress("check", 128, 1024)


@pytest.mark.parametrize(
    ("action", "completed", "expected"),
    [
        ("recover\n", "1280 / 587776\n", Progress("recover", 1280, 587776)),
        ("idle", "none", Progress("idle", 0, 0)),
        ("resync", "delayed", Progress("resync", 0, 0)),
    ],
)
def test_progress(action: str, completed: str, expected: Progress) -> None:
    assert parse_progress(action, completed) == expected


def test_the_leg_that_has_the_member_is_the_one() -> None:
    nested = {"level": "1+0", "members": ("disk0", "disk1", "disk2", "disk3"), "chunk_size": 64 * KIB}
    array = MdArray(MdSpec.model_validate(nested), Typist())
    assert array.upkeep("disk3").md.device == "/dev/md2"


@pytest.mark.parametrize(
    ("level", "serial", "reason"), [("5", "disk9", "disk9 is no member"), ("0", "disk1", "RAID0")]
)
def test_what_cannot_be_missed_is_refused(level: str, serial: str, reason: str) -> None:
    array = MdArray(MdSpec.model_validate({"level": level, "members": ("disk0", "disk1", "disk2")}), Typist())
    with pytest.raises(RequestError, match=reason):
        array.upkeep(serial)


MD = MdSpec(members=("disk0", "disk1", "disk2")).devices[0]


@pytest.mark.parametrize(
    "line",
    [
        "md: md0: recover done.",
        "md: md0: recovery done.",
        "[    6.910000] md: md0: data-check done.",
        "md: md0: requested-resync interrupted.",
    ],
)
def test_the_end_of_a_sync_action_is_read_from_the_kernel_log(line: str) -> None:
    assert ended_in(f"md: recover of RAID array md0\n{line}\nXFS (md0): Ending clean mount\n", MD) == line


@pytest.mark.parametrize("line", ["md: recover of RAID array md0", "md: md1: recover done.", "md: md0 stopped.", ""])
def test_an_unfinished_sync_action_has_no_end_in_the_kernel_log(line: str) -> None:
    assert ended_in(f"{line}\n", MD) is None
