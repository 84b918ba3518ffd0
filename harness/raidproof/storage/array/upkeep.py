"""What an administrator does to an array that is online: exchange a member, resync, check, reshape."""

import re
from typing import Literal, NamedTuple

from raidproof.core.errors import RequestError
from raidproof.core.layer import read_files
from raidproof.core.waiting import Deadline, wait_until
from raidproof.storage.array.array import Array
from raidproof.storage.array.command import (
    add_command,
    fail_command,
    grow_command,
    re_add_command,
    remove_command,
    zero_command,
)
from raidproof.storage.array.spec import Level, Md, disk_path

Action = Literal["check", "repair", "resync"]
START_DEADLINE_S = 20.0


class Progress(NamedTuple):
    """How far md has come with what it does in the background."""

    action: str
    """``resync``, ``recover``, ``check``, ``repair``, ``reshape``; ``idle`` is nothing."""
    done: int
    """Sectors of each member."""
    total: int


def parse_progress(action: str, completed: str) -> Progress:
    """Read md's sync_action and sync_completed: ``1280 / 587776``, ``none`` or ``delayed``."""
    match = re.fullmatch(r"(\d+) / (\d+)", completed.strip())
    return Progress(action.strip(), *(map(int, match.groups()) if match else (0, 0)))


class Upkeep:
    """One md device of an array, under an administrator's hands."""

    def __init__(self, array: Array, md: Md) -> None:
        self.md = md
        self._machine = array.machine
        self._files = f"/sys/block/{md.name}/md"

    @classmethod
    def with_member(cls, array: Array, serial: str) -> "Upkeep":
        """Return the md device that has this disk as a member.

        Raises:
            RequestError: none has, or it keeps nothing twice.
        """
        for md in array.spec.devices:
            if disk_path(serial) in md.members:
                return cls(array, md).require_redundancy()
        raise RequestError(f"{serial} is no member of the array: {', '.join(array.spec.members)}")

    def require_redundancy(self) -> "Upkeep":
        """Raise RequestError if the md device keeps nothing twice."""
        if self.md.level is Level.RAID0:
            raise RequestError(f"{self.md.device} is a RAID0: nothing in it can be missed, resynced or checked")
        return self

    def take_out(self, serial: str) -> None:
        """Declare a member faulty and take it out.

        Raises:
            DeadlineExceeded: md does not let go of it.
        """
        path = disk_path(serial)
        self._machine.succeed(fail_command(self.md, path))
        # Busy as long as a request to it is on its way.
        wait_until(
            lambda: self._machine.run(remove_command(self.md, path)).ok,
            Deadline.after(START_DEADLINE_S),
            f"{self.md.device} to let go of {serial}",
        )

    def take_back(self, serial: str) -> None:
        """Take a former member back: with a bitmap, what has been written since is rebuilt."""
        self._machine.succeed(re_add_command(self.md, disk_path(serial)))

    def put_in(self, serial: str) -> None:
        """Put a disk in as if it were a new one: all of it is rebuilt, and it gets another Device UUID."""
        path = disk_path(serial)
        self._machine.succeed(zero_command([path]))
        self._machine.succeed(add_command(self.md, path))

    def grow(self, members: int) -> None:
        """Begin to reshape it to more members."""
        self._machine.succeed(grow_command(self.md, members))

    def begin(self, action: Action) -> None:
        """Let it check, repair, or resync all of itself; returns at once."""
        if action == "resync":
            # As after a crash without a bitmap: nothing of it counts as being in sync (md.rst, resync_start).
            self._write("sync_action", "frozen")
            self._write("resync_start", "0")
        self._write("sync_action", action)

    def throttle(self, kib_s: int | None) -> None:
        """Let what runs in the background run at this rate on each member, idle or not; None is the system's own."""
        word = "system" if kib_s is None else str(kib_s)
        self._write("sync_speed_min", word)
        self._write("sync_speed_max", word)

    def progress(self) -> Progress:
        """Return what it does in the background, and how far it has come."""
        action, completed = f"{self._files}/sync_action", f"{self._files}/sync_completed"
        content = read_files(self._machine, [action, completed])
        return parse_progress(content[action], content[completed])

    def wait_for(self, *actions: str) -> Progress:
        """Wait until it does one of these.

        Raises:
            DeadlineExceeded: it does not.
        """

        def doing() -> Progress | None:
            now = self.progress()
            return now if now.action in actions and now.total else None

        what = f"{self.md.device} to {' or '.join(actions)}"
        return wait_until(doing, Deadline.after(START_DEADLINE_S), what)

    def _write(self, file: str, word: str) -> None:
        self._machine.put(f"{word}\n", f"{self._files}/{file}")


def ended_in(log: str, md: Md) -> str | None:
    """Return the line with which a kernel says that what ran in the background ended, or None if it says none.

    ``md: md0: recover done.``, before Linux 6.11 ``md: md0: recovery done.`` (md_do_sync in drivers/md/md.c).
    """
    match = re.search(rf"^.*md: {md.name}: .* (?:done|interrupted)\.", log, re.MULTILINE)
    return match[0] if match else None
