# A minimal Python, where each import costs: no pathlib.
"""Creates, stats and removes files in a machine, and says how many in which time.

It is read from standard input and runs there alone, on a minimal Python: standard library only. It judges nothing.
Run as ``python3 - ORDERS``, a JSON object; prints one: for each phase what was done, and the seconds that it took.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

ENDLESS = 1 << 62
UPTIME = "/proc/uptime"
"""The guest's clock, to 10 ms: it does not stand still and nobody sets it."""
CACHES = "/proc/sys/vm/drop_caches"
NAMES = b"2\n"
"""Directory entries and inodes."""
SCANS = 4
"""The kernel spares what was used since its last scan, and may give up early: one is not enough."""
LOOK_EVERY = {"create": 1, "stat": 32, "remove": 1}
"""Operations from one look at the clock to the next: what is fast must not be measured with the clock's own cost."""


MOST_PASSES = 25
"""Each adds the clock's error, 4 ms on average: 20 ms for so many."""


class Clock:
    """Seconds since the machine began."""

    def __init__(self) -> None:
        self.file = os.open(UPTIME, os.O_RDONLY)

    def seconds(self) -> float:
        """Return the guest's clock."""
        return float(os.pread(self.file, 64, 0).split()[0])


class Files:
    """Files of one size, dealt out to directories in turn."""

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
        """Return where a file is."""
        return f"{self.root}/d{number % self.directories}/f{number}"

    def create(self, number: int) -> None:
        """Make a file that is not there yet, and close it."""
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
        """Ask for a file's attributes."""
        os.stat(self.path(number))

    def remove(self, number: int) -> None:
        """Remove a file."""
        os.unlink(self.path(number))
        self.changed(number)

    def changed(self, number: int) -> None:
        """Make the change of a file's directory durable, if that was asked."""
        if self.fsync_directory:
            os.fsync(self.open[number % self.directories])


def phase(name: str, action: Callable[[int], None], most: int, limit_s: float, clock: Clock) -> dict[str, float]:
    """Do something to one file after the other, until all are done or the time is up."""
    every, done = LOOK_EVERY[name], 0
    begun = clock.seconds()
    while done < most:
        action(done)
        done += 1
        if done % every == 0 and clock.seconds() - begun >= limit_s:
            break
    return {"done": done, "seconds": round(clock.seconds() - begun, 2)}


def forget_names() -> None:
    """Write back, because only what is clean can be forgotten; then forget names and attributes."""
    os.sync()
    fd = os.open(CACHES, os.O_WRONLY)
    try:
        for _ in range(SCANS):
            os.write(fd, NAMES)
    finally:
        os.close(fd)


def look_up(files: Files, count: int, orders: dict[str, Any], clock: Clock) -> dict[str, float]:
    """Stat the files: once if they are counted, else again and again until the time is up."""
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
    """Take all phases; what the last one had no time for is removed untimed."""
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
