# No pathlib: on the minimal Python of a guest each import takes time.
"""Agent of the monitor in a machine: it samples kernel counters at intervals, and prints all samples at the end.

The harness copies this file into machines, where it runs on a minimal Python: standard library only. Run as
``monitor_agent.py INTERVAL_S LIMIT_BYTES FILE``. The agent stores samples in FILE, on a tmpfs, up to LIMIT_BYTES. When
its input ends, the agent takes a last sample and prints all of them.

The line ``@ UPTIME`` begins a sample. In it, ``= PATH LENGTH`` and the content stand for a file, and ``! PATH ERRNO``
for a file that could not be read. The line ``.`` ends the sample. The last line is ``end`` with the number of samples
that were left out because of the limit.
"""

import os
import select
import sys
from collections.abc import Iterator

UPTIME = "/proc/uptime"
"""The guest's clock, with a resolution of 10 ms: unlike the real-time clock, this clock is never set."""
FILES = (
    "/proc/diskstats",
    "/proc/mdstat",
    "/proc/self/mountstats",
    "/proc/net/rpc/nfsd",
    "/proc/net/dev",
    "/proc/stat",
    "/proc/meminfo",
)
"""Paths of the files whose content a sample contains."""
DISKS = "/dev/disk/by-id"
PREFIX = "raidproof-"
"""Beginning of the names of raidproof's disks in `DISKS`; the rest is the serial number."""
BLOCK = "/sys/block"
LAYOUT = "layout"
"""Name, in a sample, of the result of the function `layout`; no file has this name."""
LONGEST_S = 6 * 3600.0
"""Seconds after which the agent stops sampling, even if its input has not ended."""


def layout() -> bytes:
    """Return lines ``disk SERIAL NAME`` for disks, ``part DEVICE NAME`` and ``limit DEVICE KIB``.

    A part is a device of which the device consists; the limit is the largest request in KiB (queue/max_sectors_kb).
    """
    links = [name for name in listed(DISKS) if name.startswith(PREFIX)]
    lines = [f"disk {name[len(PREFIX) :]} {os.readlink(f'{DISKS}/{name}').rpartition('/')[2]}" for name in links]
    for array in listed(BLOCK):
        if parts := listed(f"{BLOCK}/{array}/slaves"):
            lines.extend(f"part {array} {part}" for part in parts)
            limit = content(f"{BLOCK}/{array}/queue/max_sectors_kb").decode().strip()
            lines.append(f"limit {array} {limit}")
    return "".join(line + "\n" for line in lines).encode()


def listed(directory: str) -> list[str]:
    """Return the sorted names in a directory; empty if the directory cannot be read."""
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def content(path: str) -> bytes:
    """Return the content of a file in /proc or /sys."""
    with open(path, "rb", buffering=0) as file:
        return file.readall()


def printable(data: bytes) -> bytes:
    """Replace each non-ASCII byte by ``?``, so that a text has as many characters as bytes."""
    return data.decode("ascii", "replace").replace("\ufffd", "?").encode()


def sample() -> bytes:
    """Return one sample: the present content of every file."""
    parts = [b"@ " + content(UPTIME).split()[0] + b"\n"]
    for path in (*FILES, LAYOUT):
        try:
            data = printable(layout() if path == LAYOUT else content(path))
            parts.append(b"= %s %d\n%s\n" % (path.encode(), len(data), data))
        except OSError as error:
            parts.append(b"! %s %d\n" % (path.encode(), error.errno or 0))
    parts.append(b".\n")
    return b"".join(parts)


def seconds() -> float:
    """Return the guest's clock in seconds."""
    return float(content(UPTIME).split()[0])


def ticks(interval_s: float) -> Iterator[None]:
    """Yield at fixed times until the input ends: a late sample does not delay the next sample."""
    begun = seconds()
    due = begun + interval_s
    while due < begun + LONGEST_S:
        ready, _, _ = select.select([0], [], [], max(0.0, due - seconds()))
        if ready and not os.read(0, 1 << 12):
            return
        if seconds() >= due:
            yield
            while due <= seconds():
                due += interval_s


def main(interval_s: float, limit: int, path: str) -> None:
    """Take samples until standard input ends, then print them."""
    os.makedirs(path.rpartition("/")[0], exist_ok=True)
    size, left_out = 0, 0
    with open(path, "w+b") as file:
        first = sample()
        file.write(first)
        file.flush()
        size += len(first)
        for _ in ticks(interval_s):
            if size >= limit:
                left_out += 1
                continue
            taken = sample()
            file.write(taken)
            size += len(taken)
        file.write(sample() + b"end %d\n" % left_out)
        file.seek(0)
        sys.stdout.buffer.write(file.read())
    os.unlink(path)


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
