# A minimal Python, where each import costs: no pathlib.
"""Creates, stats and removes files in a machine, and prints how many in how many seconds.

The program is read from standard input and runs on a minimal Python: standard library only. It judges nothing. Run as
``python3 - ORDERS``, a JSON object. It prints one JSON object: for each phase the number of operations and the
seconds.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

ENDLESS = 1 << 62
UPTIME = "/proc/uptime"
"""The guest's clock, with 10 ms resolution: it is never set and never stops."""
CACHES = "/proc/sys/vm/drop_caches"
NAMES = b"2\n"
"""Value that drops directory entries and inodes."""
SCANS = 4
"""The kernel spares entries that were used since its last scan, and may give up early: one scan is not enough."""
LOOK_EVERY = {"create": 1, "stat": 32, "remove": 1}
"""Operations between two reads of the clock: for fast operations the read itself would distort the result."""


MOST_PASSES = 25
"""Each pass adds an independent clock error, 4 ms on average: 20 ms over all passes."""


class Clock:
    """Seconds since the machine booted."""

    def __init__(self) -> None:
        self.file = os.open(UPTIME, os.O_RDONLY)

    def seconds(self) -> float:
        """Return the guest's clock in seconds."""
        return float(os.pread(self.file, 64, 0).split()[0])


class Files:
    """Files of one size, distributed round-robin over directories."""

    def __init__(self, orders: dict[str, Any]) -> None:
        self.root = orders["directory"]
        self.directories = orders["directories"]
        self.content = b"\0" * orders["size"]
        self.fsync_file = orders["fsync_file"]
        self.fsync_directory = orders["fsync_directory"]
        self.open: list[int] = []
        for number in range(self.directories):
            path = os.path.join(self.root, f"d{number}")
            os.makedirs(path, exist_ok=True)
            self.open.append(os.open(path, os.O_RDONLY | os.O_DIRECTORY))

    def path(self, number: int) -> str:
        """Return the path of a file."""
        return f"{self.root}/d{number % self.directories}/f{number}"

    def create(self, number: int) -> None:
        """Create a file, and close it."""
        fd = os.open(self.path(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            if self.content:
                os.write(fd, self.content)
            if self.fsync_file:
                os.fsync(fd)
        finally:
            os.close(fd)
        self.changed(number)

    def stat(self, number: int) -> None:
        """Read the attributes of a file."""
        os.stat(self.path(number))

    def remove(self, number: int) -> None:
        """Remove a file."""
        os.unlink(self.path(number))
        self.changed(number)

    def changed(self, number: int) -> None:
        """Make the change of the file's directory durable, if requested."""
        if self.fsync_directory:
            os.fsync(self.open[number % self.directories])


def phase(name: str, action: Callable[[int], None], most: int, limit_s: float, clock: Clock) -> dict[str, float]:
    """Apply an action to one file after another, until all are done or the time is up."""
    every, done = LOOK_EVERY[name], 0
    begun = clock.seconds()
    while done < most:
        action(done)
        done += 1
        if done % every == 0 and clock.seconds() - begun >= limit_s:
            break
    return {"done": done, "seconds": round(clock.seconds() - begun, 2)}


def forget_names() -> None:
    """Write back, because only clean entries can be dropped; then drop cached names and attributes."""
    os.sync()
    fd = os.open(CACHES, os.O_WRONLY)
    try:
        for _ in range(SCANS):
            os.write(fd, NAMES)
    finally:
        os.close(fd)


def look_up(files: Files, count: int, orders: dict[str, Any], clock: Clock) -> dict[str, float]:
    """Stat the files: once if their number is given, else repeatedly until the time is up."""
    if not orders["cold"]:
        most = count if orders["files"] else ENDLESS
        return phase("stat", lambda number: files.stat(number % count), most, orders["phase_s"] or ENDLESS, clock)
    done, seconds = 0.0, 0.0
    for _ in range(1 if orders["files"] else MOST_PASSES):
        forget_names()
        found = phase("stat", files.stat, count, (orders["phase_s"] or ENDLESS) - seconds, clock)
        done, seconds = done + found["done"], seconds + found["seconds"]
        if seconds >= (orders["phase_s"] or ENDLESS):
            break
    return {"done": int(done), "seconds": round(seconds, 2)}


def main(orders: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Run all phases; files that the remove phase had no time for are removed untimed."""
    files, clock = Files(orders), Clock()
    limit_s = orders["phase_s"] or ENDLESS
    created = phase("create", files.create, orders["files"] or ENDLESS, limit_s, clock)
    count = int(created["done"])
    found = look_up(files, count, orders, clock)
    removed = phase("remove", files.remove, count, limit_s, clock)
    for number in range(int(removed["done"]), count):
        files.remove(number)
    return {"create": created, "stat": found, "remove": removed}


if __name__ == "__main__":
    try:
        print(json.dumps(main(json.loads(sys.argv[1]))))
    except OSError as error:
        sys.exit(str(error))
