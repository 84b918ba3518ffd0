# No pathlib: on the minimal Python of a guest each import takes time.
"""Creates, stats and removes files in a machine, and prints the number of operations and the time of each phase.

Python reads this program from standard input, on a minimal Python: standard library only. Run as ``python3 - CONFIG``,
where CONFIG is a JSON object (`workload.metadata.metadata_command`). The output is a JSON object with the number of
operations (``done``) and the ``seconds`` of each phase.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

ENDLESS = 1 << 62
"""Number of operations, or seconds, that no phase reaches."""
UPTIME = "/proc/uptime"
"""The guest's clock, with a resolution of 10 ms: unlike the real-time clock, this clock is never set."""
CACHES = "/proc/sys/vm/drop_caches"
NAMES = b"2\n"
"""Value for `CACHES` that drops directory entries and inodes (proc(5))."""
SCANS = 4
"""Number of drops of the caches: one drop keeps entries that were used since the last one, and may end early."""
CLOCK_EVERY = {"create": 1, "stat": 32, "remove": 1}
"""Operations between two reads of the clock, by phase: more reads would slow a phase with fast operations."""
MOST_PASSES = 25
"""Maximum number of rounds of stat; each adds an independent clock error of 4 ms on average, all together 20 ms."""


class Clock:
    """The guest's clock: seconds since the machine booted."""

    def __init__(self) -> None:
        self.file = os.open(UPTIME, os.O_RDONLY)

    def seconds(self) -> float:
        """Return the time in seconds."""
        return float(os.pread(self.file, 64, 0).split()[0])


class Files:
    """Files of one size, distributed round-robin over directories."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.root = config["directory"]
        self.directories = config["directories"]
        self.content = b"\0" * config["size"]
        self.fsync_file = config["fsync_file"]
        self.fsync_directory = config["fsync_directory"]
        self.open: list[int] = []
        for number in range(self.directories):
            path = os.path.join(self.root, f"d{number}")
            os.makedirs(path, exist_ok=True)
            self.open.append(os.open(path, os.O_RDONLY | os.O_DIRECTORY))

    def path(self, number: int) -> str:
        """Return the path of file number ``number``."""
        return f"{self.root}/d{number % self.directories}/f{number}"

    def create(self, number: int) -> None:
        """Create a file, write its content, and close it."""
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
        """Call fsync on the directory of a file, if the configuration requests this."""
        if self.fsync_directory:
            os.fsync(self.open[number % self.directories])


def phase(name: str, action: Callable[[int], None], most: int, limit_s: float, clock: Clock) -> dict[str, float]:
    """Apply ``action`` to files 0, 1 and so on, up to ``most`` files or ``limit_s`` seconds; return count and time."""
    every, done = CLOCK_EVERY[name], 0
    begun = clock.seconds()
    while done < most:
        action(done)
        done += 1
        if done % every == 0 and clock.seconds() - begun >= limit_s:
            break
    return {"done": done, "seconds": round(clock.seconds() - begun, 2)}


def forget_names() -> None:
    """Drop cached names and attributes, after a sync, because the kernel drops clean entries only."""
    os.sync()
    fd = os.open(CACHES, os.O_WRONLY)
    try:
        for _ in range(SCANS):
            os.write(fd, NAMES)
    finally:
        os.close(fd)


def look_up(files: Files, count: int, config: dict[str, Any], clock: Clock) -> dict[str, float]:
    """Carry out the phase stat: once for each file if their number is set, else until the time is up."""
    if not config["cold"]:
        most = count if config["files"] else ENDLESS
        return phase("stat", lambda number: files.stat(number % count), most, config["phase_s"] or ENDLESS, clock)
    done, seconds = 0.0, 0.0
    for _ in range(1 if config["files"] else MOST_PASSES):
        forget_names()
        found = phase("stat", files.stat, count, (config["phase_s"] or ENDLESS) - seconds, clock)
        done, seconds = done + found["done"], seconds + found["seconds"]
        if seconds >= (config["phase_s"] or ENDLESS):
            break
    return {"done": int(done), "seconds": round(seconds, 2)}


def main(config: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Carry out all phases and return their results; remove the files that remain after the phase remove."""
    files, clock = Files(config), Clock()
    limit_s = config["phase_s"] or ENDLESS
    created = phase("create", files.create, config["files"] or ENDLESS, limit_s, clock)
    count = int(created["done"])
    found = look_up(files, count, config, clock)
    removed = phase("remove", files.remove, count, limit_s, clock)
    for number in range(int(removed["done"]), count):
        files.remove(number)
    return {"create": created, "stat": found, "remove": removed}


if __name__ == "__main__":
    try:
        print(json.dumps(main(json.loads(sys.argv[1]))))
    except OSError as error:
        sys.exit(str(error))
