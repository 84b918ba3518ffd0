# A minimal Python, where each import costs: no pathlib.
"""Agent of the monitor in a machine: samples kernel counters into memory at each interval, and prints them at the end.

The harness copies this file into machines, where it runs on a minimal Python: standard library only. It judges
nothing. Run as ``monitor_agent.py INTERVAL_S LIMIT_BYTES FILE``. When its input ends, the agent takes one last sample
and prints all.

The output is made of frames: ``@ UPTIME`` begins a sample, ``= PATH LENGTH`` and the content is a file, ``! PATH
ERRNO`` is a file that could not be read, ``.`` ends the sample. The last line is ``end``, with the number of samples
left out.
"""

import os
import select
import sys
from collections.abc import Iterator

UPTIME = "/proc/uptime"
"""The guest's clock, with 10 ms resolution: it is never set and never stops."""
FILES = (
    "/proc/diskstats",
    "/proc/mdstat",
    "/proc/self/mountstats",
    "/proc/net/rpc/nfsd",
    "/proc/net/dev",
    "/proc/stat",
    "/proc/meminfo",
)
DISKS = "/dev/disk/by-id"
PREFIX = "raidproof-"
BLOCK = "/sys/block"
LAYOUT = "layout"
"""Name of a generated file, which exists in no file system: serial numbers of disks, components of md arrays."""
LONGEST_S = 6 * 3600.0


def layout() -> bytes:
    """Return lines ``disk SERIAL NAME``, ``part ARRAY NAME`` and ``limit ARRAY KIB``, for all disks and arrays."""
    links = [name for name in listed(DISKS) if name.startswith(PREFIX)]
    lines = [f"disk {name[len(PREFIX) :]} {os.readlink(f'{DISKS}/{name}').rpartition('/')[2]}" for name in links]
    for array in listed(BLOCK):
        if array.startswith("md"):
            lines.extend(f"part {array} {part}" for part in listed(f"{BLOCK}/{array}/slaves"))
            limit = content(f"{BLOCK}/{array}/queue/max_sectors_kb").decode().strip()
            lines.append(f"limit {array} {limit}")
    return "".join(line + "\n" for line in lines).encode()


def listed(directory: str) -> list[str]:
    """Return the names in a directory; empty if it does not exist."""
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def content(path: str) -> bytes:
    """Return the whole content of a kernel file."""
    with open(path, "rb", buffering=0) as file:
        return file.readall()


def printable(data: bytes) -> bytes:
    """Replace non-ASCII bytes, so that lengths in characters and bytes are equal."""
    return data.decode("ascii", "replace").replace("\ufffd", "?").encode()


def look() -> bytes:
    """Return one frame: every file, as it is now."""
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
    """Yield at each interval until the input ends; on a fixed grid, so that a late sample does not delay the next."""
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
    """Sample into memory until standard input ends, then print all."""
    os.makedirs(path.rpartition("/")[0], exist_ok=True)
    size, left_out = 0, 0
    with open(path, "w+b") as file:
        first = look()
        file.write(first)
        file.flush()
        size += len(first)
        for _ in ticks(interval_s):
            if size >= limit:
                left_out += 1
                continue
            frame = look()
            file.write(frame)
            size += len(frame)
        file.write(look() + b"end %d\n" % left_out)
        file.seek(0)
        sys.stdout.buffer.write(file.read())
    os.unlink(path)


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
