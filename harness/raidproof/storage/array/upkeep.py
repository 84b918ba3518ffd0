"""The maintenance of one md device: replacing members, starting and throttling background work."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple

from raidproof.core.errors import RequestError
from raidproof.core.layer import Machine, read_files
from raidproof.core.waiting import Deadline, wait_until
from raidproof.storage.array.level import LEVELS
from raidproof.storage.array.mdadm import (
    Md,
    add_command,
    fail_command,
    grow_command,
    re_add_command,
    remove_command,
    zero_command,
)
from raidproof.storage.member import disk_path, serial_of

Action = Literal["check", "repair", "resync"]
"""Background work that `Upkeep.begin` starts; the words of the sysfs file md/sync_action."""
START_DEADLINE_S = 20.0
"""Time limit in seconds for background work to start, and for md to release a faulty member."""
FULL_SPEED = {"stripe_cache_size": 4096, "sync_speed_max": 2_000_000}
"""The values to which `at_full_speed` raises two sysfs files of an md device, if their values are lower.

The first is the number of stripes in md's cache, the second is in KiB/s of each member. With the default of 256
stripes, md sleeps most of the time (raid5_sync_request in drivers/md/raid5.c sleeps while all stripes are in use). The
default speed limit is 200,000 KiB/s.
"""
_SYSTEM = "system"


@contextmanager
def at_full_speed(machine: Machine, names: Sequence[str]) -> Iterator[None]:
    """Let the md devices with these kernel names work at full speed while the body runs; then restore the settings."""
    paths = {f"/sys/block/{name}/md/{file}": least for name in names for file, least in FULL_SPEED.items()}
    # `read_files` leaves out the files that a level does not have.
    before = machine.read_files(paths)
    slow = {path: value for path, value in before.items() if int(value.split()[0]) < paths[path]}
    # The kernel may refuse a value for lack of memory. md then works at its former speed.
    refused = machine.put_all({path: f"{paths[path]}\n" for path in slow})
    try:
        yield
    finally:
        for path, value in slow.items():
            if path not in refused:
                machine.put(f"{_SYSTEM if f'({_SYSTEM})' in value else value.split()[0]}\n", path)


class Progress(NamedTuple):
    """The background work of an md device, and its progress."""

    action: str
    """The content of md/sync_action: ``resync``, ``recover``, ``check``, ``repair``, ``reshape``, or ``idle``."""
    done: int
    """Sectors of each member that the work has finished."""
    total: int
    """Sectors of each member that the work covers in total; 0 if md does not report progress."""


def parse_progress(action: str, completed: str) -> Progress:
    """Parse the content of md/sync_action and md/sync_completed (``1280 / 587776``, ``none`` or ``delayed``)."""
    match = re.fullmatch(r"(\d+) / (\d+)", completed.strip())
    return Progress(action.strip(), *(map(int, match.groups()) if match else (0, 0)))


class Upkeep:
    """An administrator's actions on one md device: replacing members, starting and throttling background work.

    ``path`` returns the device path of the member on the disk with a serial.
    """

    def __init__(self, machine: Machine, md: Md, path: Callable[[str], str] = disk_path) -> None:
        self.md = md
        self._path = path
        self._machine = machine
        self._files = f"/sys/block/{md.name}/md"

    def require_redundancy(self) -> "Upkeep":
        """Return this object if the md device has redundancy.

        Raises:
            RequestError: the md device has no redundancy.
        """
        if not LEVELS[self.md.level].redundant:
            raise RequestError(
                f"{self.md.device} is a RAID{self.md.level}, which has no redundancy: no member may be missing, and "
                "md cannot resync or check it"
            )
        return self

    def require_no_spare(self, serial: str) -> "Upkeep":
        """Return this object if no spare would replace the member with this serial as soon as it is removed.

        Raises:
            RequestError: the md device has a spare.
        """
        if self.md.spares:
            spares = ", ".join(map(serial_of, self.md.spares))
            raise RequestError(
                f"a spare would take the place of {serial} at once: {spares}",
                remedy="request the array without spares",
            )
        return self

    def take_out(self, serial: str) -> None:
        """Declare the member with this serial faulty, and remove it.

        Raises:
            DeadlineExceeded: md does not release the member within `START_DEADLINE_S` seconds.
        """
        path = self._path(serial)
        self._machine.succeed(fail_command(self.md, path))
        # mdadm fails while a request to the member is in flight.
        wait_until(
            lambda: self._machine.run(remove_command(self.md, path)).ok,
            Deadline.after(START_DEADLINE_S),
            f"{self.md.device} to release the faulty member {serial}",
        )

    def take_back(self, serial: str) -> None:
        """Re-add the former member with this serial. With a bitmap, md rebuilds only regions written meanwhile."""
        self._machine.succeed(re_add_command(self.md, self._path(serial)))

    def put_in(self, serial: str) -> None:
        """Add the disk with this serial as a new member: md assigns another Device UUID, and rebuilds all of it."""
        path = self._path(serial)
        self._machine.succeed(zero_command([path]))
        self._machine.succeed(add_command(self.md, path))

    def grow(self, members: int) -> None:
        """Start a reshape to this number of members, which must be larger than before."""
        self._machine.succeed(grow_command(self.md, members))

    def begin(self, action: Action) -> None:
        """Start a check, repair or resync of the whole md device, without waiting for its end."""
        if action == "resync":
            # As after a crash of an array without a bitmap: no part is in sync (md.rst, resync_start).
            self._write("sync_action", "frozen")
            self._write("resync_start", "0")
        self._write("sync_action", action)

    def throttle(self, kib_s: int | None) -> None:
        """Set the rate of background work in KiB/s of each member, equal with and without other load.

        None restores the system's default.
        """
        rate = "system" if kib_s is None else str(kib_s)
        self._write("sync_speed_min", rate)
        self._write("sync_speed_max", rate)

    def progress(self) -> Progress:
        """Return the background work of the md device now, and its progress."""
        action, completed = f"{self._files}/sync_action", f"{self._files}/sync_completed"
        content = read_files(self._machine, [action, completed])
        return parse_progress(content[action], content[completed])

    def wait_for(self, *actions: str) -> Progress:
        """Wait until one of these actions (words of md/sync_action) runs; return its progress.

        Raises:
            DeadlineExceeded: none of the actions runs within `START_DEADLINE_S` seconds.
        """

        def running() -> Progress | None:
            now = self.progress()
            return now if now.action in actions and now.total else None

        what = f"{self.md.device} to start {' or '.join(actions)}"
        return wait_until(running, Deadline.after(START_DEADLINE_S), what)

    def _write(self, file: str, word: str) -> None:
        self._machine.put(f"{word}\n", f"{self._files}/{file}")


def ended_in(log: str, md: Md) -> str | None:
    """Return the line of the kernel log that reports the end of an md device's background work; None without one.

    Linux 6.11 and later log ``md: md0: recover done.``, older kernels ``md: md0: recovery done.`` (md_do_sync in
    drivers/md/md.c).
    """
    match = re.search(rf"^.*md: {md.name}: .* (?:done|interrupted)\.", log, re.MULTILINE)
    return match[0] if match else None
