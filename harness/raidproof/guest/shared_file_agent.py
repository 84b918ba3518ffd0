# A minimal Python, where each import costs: no pathlib.
"""One writer of a file that several machines share, and the check of another writer's part.

The harness copies this file into machines, where it runs on a minimal Python: standard library only. The harness
imports it too, so that the format is defined once. Run as ``shared_agent.py write ORDERS`` or ``shared_agent.py check
ORDERS``, where the orders are JSON.
"""

import json
import os
import select
import sys
from array import array
from collections.abc import Iterator
from typing import Any

UNIT = 32
"""Bytes of a unit, which encodes its own position: four numbers of 8 bytes."""
WORDS = 4  # offset in the file, writer, round, seed
ZEROES, STALE, OTHER = "zeroes", "stale", "another writer's"
MISPLACED, GARBAGE, MISSING = "misplaced", "garbage", "missing"
UPTIME = "/proc/uptime"
POLL_S = 0.005
START_S = 30.0
"""Seconds that a writer waits until the others are ready."""


def seconds() -> float:
    """Return this machine's clock in seconds, with 10 ms resolution."""
    with open(UPTIME) as file:
        return float(file.read().split()[0])


def offsets(orders: dict[str, Any], writer: int) -> Iterator[int]:
    """Yield the offsets of one writer's records: every n-th record of the file, or a contiguous region."""
    record, count = orders["record"], orders["count"]
    for index in range(count):
        yield record * (index * orders["writers"] + writer if orders["interleaved"] else writer * count + index)


def blank(orders: dict[str, Any], writer: int, turn: int) -> "array[int]":
    """Return a record whose units do not contain an offset yet."""
    return array("Q", [0, writer, turn, orders["seed"]] * (orders["record"] // UNIT))


def place(record: "array[int]", offset: int) -> "array[int]":
    """Set the offset in every unit of a record."""
    record[::WORDS] = array("Q", range(offset, offset + len(record) * 8, UNIT))
    return record


def kind_of(unit: bytes, offset: int, writer: int, turn: int, seed: int, writers: int) -> str:
    """Return the kind of error of a unit; empty if the unit is correct."""
    if len(unit) < UNIT:
        return MISSING
    if not any(unit):
        return ZEROES
    its_offset, its_writer, its_turn, its_seed = array("Q", unit)
    if its_seed != seed or its_writer >= writers or not 1 <= its_turn <= turn:
        return GARBAGE
    if its_writer != writer:
        return OTHER
    if its_offset != offset:
        return MISPLACED
    return STALE if its_turn < turn else ""


def write_all(fd: int, data: memoryview, offset: int) -> None:
    """Write a whole record."""
    while data:
        written = os.pwrite(fd, data, offset)
        data, offset = data[written:], offset + written


def wait_for_all(orders: dict[str, Any]) -> None:
    """Mark this writer as ready, and wait until all are."""
    # An NFS client revalidates a file when it is opened, but caches names that it found absent: so the files exist.
    with open(marker(orders, orders["writer"]), "w") as file:
        file.write("+")
    begun = seconds()
    waiting = [writer for writer in range(orders["writers"]) if writer != orders["writer"]]
    while waiting:
        if seconds() - begun > START_S:
            sys.exit(f"writers {waiting} are not ready")
        with open(marker(orders, waiting[0])) as file:
            if file.read():
                waiting.pop(0)
                continue
        select.select([], [], [], POLL_S)


def marker(orders: dict[str, Any], writer: int) -> str:
    """Return the path of a writer's small file beside the shared one."""
    return f"{orders['path']}.{writer}"


def server_clock(orders: dict[str, Any]) -> int:
    """Return the server's time in ns: the server sets "now", so it is the same for all clients."""
    path = marker(orders, orders["writer"])
    os.utime(path)
    return os.stat(path).st_mtime_ns


def write(orders: dict[str, Any]) -> dict[str, Any]:
    """Write this writer's records, round after round, with fsync after each round; then close."""
    writer = orders["writer"]
    fd = os.open(orders["path"], os.O_WRONLY)
    wait_for_all(orders)
    begun_ns = server_clock(orders)
    begun = seconds()
    for turn in range(1, orders["rounds"] + 1):
        record = blank(orders, writer, turn)
        for offset in offsets(orders, writer):
            write_all(fd, memoryview(place(record, offset)).cast("B"), offset)
        os.fsync(fd)
    os.close(fd)
    took = seconds() - begun
    written = orders["rounds"] * orders["count"] * orders["record"]
    return {"seconds": took, "begun_ns": begun_ns, "ended_ns": server_clock(orders), "bytes": written}


def check(orders: dict[str, Any]) -> dict[str, Any]:
    """Read every byte of one writer's records, and count the units that differ from what it wrote last."""
    writer, turn, size = orders["writer"], orders["rounds"], orders["record"]
    expected = blank(orders, writer, turn)
    wrong: dict[str, int] = {}
    first: list[Any] | None = None
    with open(orders["path"], "rb", buffering=0) as file:
        for offset in offsets(orders, writer):
            data = read_at(file.fileno(), size, offset)
            if data == place(expected, offset).tobytes():
                continue
            for at in range(0, size, UNIT):
                unit = data[at : at + UNIT]
                if kind := kind_of(unit, offset + at, writer, turn, orders["seed"], orders["writers"]):
                    wrong[kind] = wrong.get(kind, 0) + 1
                    first = first or [offset + at, kind]
    return {"bytes": orders["count"] * size, "wrong": wrong, "first": first}


def read_at(fd: int, size: int, offset: int) -> bytes:
    """Read a whole record, or as much as the file holds."""
    parts = []
    while size and (part := os.pread(fd, size, offset)):
        parts.append(part)
        size, offset = size - len(part), offset + len(part)
    return b"".join(parts)


if __name__ == "__main__":
    print(json.dumps({"write": write, "check": check}[sys.argv[1]](json.loads(sys.argv[2]))))
