# No pathlib: on the minimal Python of a guest each import takes time.
"""Reads a drive and prints the times of the reads; it opens the drive read-only, and writes nothing anywhere.

The harness runs this file on the machine with the drive: ``python3 - facts DEVICE`` prints what the kernel reports
about the drive, as a JSON object. ``python3 - read DEVICE`` reads from standard input a JSON object: ``reads``, a list
of [offset, length, pause before the read in us]; ``depth``, the number of reads in progress; ``share``, the greatest
share of the time in which reads are in progress. It prints a JSON object: the lists ``begun`` and ``ended`` in ns, in
the order of the reads; ``processor`` and ``waited``, the time in ns in which the program used a processor, and in
which it waited for one. All reads bypass the page cache.
"""

import json
import mmap
import os
import stat
import sys
import threading
import time

BURST_NS = 100_000_000
"""Time of reads after which the program pauses if the share is less than 1."""


def content(path: str) -> str:
    """Return the content of a file in /sys; empty if the file cannot be read."""
    try:
        with open(path, errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def facts(path: str) -> dict[str, object]:
    """Return what the kernel reports about a device, or about the device below the file system of a file."""
    found = os.stat(path)
    block = stat.S_ISBLK(found.st_mode)
    if not block and not stat.S_ISREG(found.st_mode):
        raise OSError(f"{path} is neither a block device nor a file")
    number = found.st_rdev if block else found.st_dev
    home = os.path.realpath(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if os.path.exists(f"{home}/partition"):
        home = os.path.dirname(home)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.lseek(descriptor, 0, os.SEEK_END)
    finally:
        os.close(descriptor)
    cache = content(f"{home}/queue/write_cache")
    return {
        "size": size,
        "rotational": content(f"{home}/queue/rotational") == "1",
        "known": os.path.isdir(f"{home}/queue"),
        "model": content(f"{home}/device/model"),
        "serial": content(f"{home}/serial") or content(f"{home}/device/serial"),
        "write_back": {"write back": True, "write through": False}.get(cache),
        "sector": max(int(content(f"{home}/queue/logical_block_size") or 512), 512),
        "largest": int(content(f"{home}/queue/max_sectors_kb") or 1024) * 1024,
    }


def schedule() -> tuple[int, int]:
    """Return the time in ns in which this thread used a processor, and in which it waited for one."""
    words = content("/proc/thread-self/schedstat").split()
    return (int(words[0]), int(words[1])) if len(words) > 1 else (0, 0)


class Reader:
    """Reads a drive with several threads, each of which has one read in progress."""

    def __init__(self, path: str, reads: list[list[int]], share: float) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
        self._reads = reads
        self._share = share
        self._next = 0
        self._lock = threading.Lock()
        self._spent = 0
        self.begun = [0] * len(reads)
        self.ended = [0] * len(reads)
        self.processor = 0
        self.waited = 0
        self.error: OSError | None = None

    def work(self) -> None:
        """Read until no read remains or one fails, and add the processor time of this thread."""
        processor, waited = schedule()
        try:
            self._read_all()
        finally:
            after = schedule()
            with self._lock:
                self.processor += after[0] - processor
                self.waited += after[1] - waited

    def _read_all(self) -> None:
        # The memory of a mapping is aligned to pages, as O_DIRECT requires.
        buffer = mmap.mmap(-1, max(length for _, length, _ in self._reads))
        view = memoryview(buffer)
        while self.error is None:
            with self._lock:
                number = self._next
                self._next += 1
            if number >= len(self._reads):
                return
            offset, length, pause_us = self._reads[number]
            if pause_us:
                time.sleep(pause_us / 1e6)
            try:
                begun = time.monotonic_ns()
                done = os.preadv(self._file, [view[:length]], offset)
                ended = time.monotonic_ns()
            except OSError as error:
                self.error = error
                return
            if done != length:
                self.error = OSError(f"a read of {length} bytes at {offset} returned {done} bytes")
                return
            self.begun[number], self.ended[number] = begun, ended
            self._rest(ended - begun)

    def _rest(self, busy_ns: int) -> None:
        """Pause after a burst of reads, so that reads are in progress for at most the share of the time."""
        if self._share >= 1:
            return
        self._spent += busy_ns
        if self._spent > BURST_NS:
            time.sleep(self._spent * (1 / self._share - 1) / 1e9)
            self._spent = 0


def read(path: str, depth: int, reads: list[list[int]], share: float) -> dict[str, object]:
    """Execute the reads of a probe, and return their times."""
    reader = Reader(path, reads, share if depth == 1 else 1)
    threads = [threading.Thread(target=reader.work, daemon=True) for _ in range(depth - 1)]
    for thread in threads:
        thread.start()
    reader.work()
    for thread in threads:
        thread.join()
    if reader.error is not None:
        raise reader.error
    return {
        "begun": reader.begun,
        "ended": reader.ended,
        "processor": reader.processor,
        "waited": reader.waited,
    }


def main(order: str, path: str) -> None:
    """Carry out an order, and print its result."""
    try:
        result = facts(path) if order == "facts" else read(path, **json.load(sys.stdin))
    except OSError as error:
        sys.exit(f"{path}: {error.strerror or error}")
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
