from typing import cast

import pytest

from raidproof.core.errors import RigError
from raidproof.machine import kernel_log
from raidproof.machine.kernel_log import stuck_tasks, waiting
from raidproof.machine.machine import Machine

HEAD = "    PID STAT WCHAN                                TIME COMMAND\n"
MOUNT = "    301 D+   xlog_wait_on_iclog               00:00:01 mount /dev/md0 /srv/data\n"
THREAD = "     40 D    md_thread                        00:00:00 [md0_raid5]\n"
IDLE = "      1 Ss   do_wait                          00:00:00 /sbin/init\n"
SAID = "301 D+ xlog_wait_on_iclog 00:00:01 mount /dev/md0 /srv/data"


class Listing:
    """A fake machine that lists its tasks, or fails to."""

    def __init__(self, *lists: str) -> None:
        self.lists = list(lists)

    def succeed(self, _argv: list[str], *, deadline_s: float) -> str:
        assert deadline_s > 0
        if not self.lists:
            raise RigError("no answer")
        return self.lists.pop(0)


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_log, "pause", lambda _: None)


def stuck(*lists: str, writes: tuple[int, int] = (5, 5)) -> str | None:
    done = iter(writes)
    return stuck_tasks(cast("Machine", Listing(*lists)), lambda: {"disk0": next(done)})


def test_programs_in_uninterruptible_sleep_wait() -> None:
    assert waiting(HEAD + IDLE + THREAD + MOUNT) == {SAID}


def test_what_waits_while_no_disk_works_hangs() -> None:
    assert stuck(HEAD + MOUNT, HEAD + MOUNT) == SAID


def test_what_waits_for_a_disk_that_works_is_slow() -> None:
    assert stuck(HEAD + MOUNT, HEAD + MOUNT, writes=(5, 6)) is None


def test_what_has_gone_on_does_not_hang() -> None:
    assert stuck(HEAD + MOUNT, HEAD + MOUNT.replace("00:00:01", "00:00:02")) is None
    assert stuck(HEAD + MOUNT, HEAD + IDLE) is None


def test_a_machine_that_does_not_answer_gives_no_result() -> None:
    assert stuck() is None
    assert stuck(HEAD + MOUNT) is None


def test_disks_without_counters_prove_nothing() -> None:
    assert stuck_tasks(cast("Machine", Listing(HEAD + MOUNT, HEAD + MOUNT)), dict) is None
