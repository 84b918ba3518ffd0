"""What kernels report by level and by flags, over several boots."""

from collections.abc import Sequence
from typing import cast

import pytest

from raidproof.core.errors import RigError
from raidproof.machine.kernel_errors import FLAGS, TAINTED, ErrorWatch, Reported, kinds_of, note_usual, reported_by
from raidproof.machine.kernel_log import text_of
from raidproof.machine.machine import Machine

USUAL, ODD = "<3>[    0.300000] lab0: weight 128", "<2>[   12.000001] md/raid:md0: Cannot continue"


class FakeMachine:
    """A machine whose kernel has printed ``lines``."""

    def __init__(self, *lines: str) -> None:
        self.lines = [*lines]
        self.tainted = 0
        self.boot_id = "first"
        self.usual_errors: frozenset[str] | None = None
        self.hangs = False

    def succeed(self, argv: Sequence[str], deadline_s: float) -> str:
        assert argv[0] == "dmesg"
        assert deadline_s
        if self.hangs:
            raise RigError("no reply")
        return "".join(f"{line}\n" for line in self.lines)

    def read_files(self, paths: Sequence[str]) -> dict[str, str]:
        return dict.fromkeys(paths, str(self.tainted))

    def reboot(self, *lines: str) -> None:
        self.boot_id, self.lines, self.tainted = f"{self.boot_id}+", [*lines], 0


@pytest.fixture
def fake() -> FakeMachine:
    return FakeMachine(USUAL)


def watch(fake: FakeMachine) -> ErrorWatch:
    return ErrorWatch({"server": cast("Machine", fake)})


def test_what_the_kernel_reports_later_is_new(fake: FakeMachine) -> None:
    one = watch(fake)
    fake.lines.append(ODD)
    fake.tainted = 1 << 9 | 1 << 12
    one.look()
    one.look()
    assert one.found == {"server": Reported((ODD,), frozenset({"warning"}))}


def test_messages_of_the_boot_are_usual_also_if_the_ring_buffer_has_lost_them(fake: FakeMachine) -> None:
    note_usual([cast("Machine", fake)])
    fake.lines = []
    one = watch(fake)
    fake.reboot(USUAL, ODD)
    one.look()
    assert one.found["server"].errors == (ODD,)


def test_each_flag_that_shows_a_failure_is_named(fake: FakeMachine) -> None:
    fake.tainted = sum(1 << bit for bit in FLAGS)
    assert reported_by(cast("Machine", fake)).tainted == set(FLAGS.values())
    assert TAINTED.startswith("/proc/")


def test_what_was_reported_before_each_end_is_kept(fake: FakeMachine) -> None:
    one = watch(fake)
    fake.lines.append(ODD)
    fake.tainted = 1 << 9
    one.look()
    again = ODD.replace("12.", "13.")
    fake.reboot(again)
    fake.tainted = 1 << 9 | 1 << 7
    one.look()
    assert one.found["server"] == Reported((ODD, again), frozenset({"warning", "oops or BUG"}))


def test_what_a_machine_prints_at_each_boot_is_usual_for_it(fake: FakeMachine) -> None:
    one = watch(fake)
    fake.reboot(USUAL.replace("0.300000", "0.450000").replace("128", "64"))
    one.look()
    assert one.found["server"].errors == ()


def test_what_an_earlier_crash_test_made_it_print_is_not_usual(fake: FakeMachine) -> None:
    watch(fake)
    fake.lines.append(ODD)
    later = watch(fake)
    fake.reboot(USUAL, ODD)
    later.look()
    assert later.found["server"].errors == (ODD,)


def test_a_machine_that_does_not_answer_is_left_out(fake: FakeMachine) -> None:
    one = watch(fake)
    fake.hangs = True
    one.look()
    assert one.found == {}
    assert watch(fake).found == {}


def test_texts_and_kinds() -> None:
    assert text_of(ODD) == "md/raid:md0: Cannot continue"
    assert text_of("<3>no stamp") == "no stamp"
    assert kinds_of([ODD, "sector 0xdeadbeef of 12"]) == {"md/raid:md#: Cannot continue", "sector # of #"}
