# No pathlib: on the minimal Python of a guest each import takes time.
"""Agent of the workload shared_file: it writes one client's part of a shared file, or checks a part.

The harness copies this file into machines, where it runs on a minimal Python: standard library only. The harness also
imports this file, so that the format is defined once. Run as ``shared_agent.py write CONFIG`` or ``shared_agent.py
check CONFIG``, where CONFIG is a JSON object (`workload.shared_file.agent_config`). The output is a JSON object.
"""

import json
import os
import select
import sys
from array import array
from collections.abc import Iterator
from typing import Any

UNIT = 32
"""Bytes of a unit of data, which contains its own position: four numbers of 8 bytes."""
WORDS = 4  # numbers in a unit: offset in the file, writer, round, seed
ZEROES, STALE, OTHER = "zeroes", "stale", "another writer's"
MISPLACED, GARBAGE, MISSING = "misplaced", "garbage", "missing"
"""The kinds of error of a unit, from `ZEROES` to `MISSING`: only zeroes; data of an earlier round; data of another
writer; data of another offset; no valid form; beyond the end of the file."""
UPTIME = "/proc/uptime"
POLL_S = 0.005
"""Seconds between two reads of another writer's marker file."""
START_S = 30.0
"""Seconds that a writer waits for the other writers to be ready."""


def seconds() -> float:
    """Return this machine's clock in seconds, with 10 ms resolution."""
    with open(UPTIME) as file:
        return float(file.read().split()[0])


def offsets(config: dict[str, Any], writer: int) -> Iterator[int]:
    """Yield the offsets of one writer's records in the file: every n-th record, or those of a contiguous region."""
    record, count = config["record"], config["count"]
    for index in range(count):
        yield record * (index * config["writers"] + writer if config["interleaved"] else writer * count + index)


def blank(config: dict[str, Any], writer: int, turn: int) -> "array[int]":
    """Return a record of one writer and round ``turn`` whose units have offset 0."""
    return array("Q", [0, writer, turn, config["seed"]] * (config["record"] // UNIT))


def place(record: "array[int]", offset: int) -> "array[int]":
    """Set the offset in every unit of a record at ``offset`` in the file, and return the record."""
    record[::WORDS] = array("Q", range(offset, offset + len(record) * 8, UNIT))
    return record


def kind_of(unit: bytes, offset: int, writer: int, turn: int, seed: int, writers: int) -> str:
    """Return the kind of error of a unit that ``writer`` must have written in round ``turn``; empty if correct."""
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
    """Write all of the data at an offset: one pwrite(2) may write less than requested."""
    while data:
        written = os.pwrite(fd, data, offset)
        data, offset = data[written:], offset + written


def wait_for_all(config: dict[str, Any]) -> None:
    """Mark this writer as ready, and wait until all writers are ready; exit after `START_S`."""
    # The marker files exist from the beginning, because an NFS client caches that a name does not exist. It
    # revalidates the content of a file at each open.
    with open(marker(config, config["writer"]), "w") as file:
        file.write("+")
    begun = seconds()
    waiting = [writer for writer in range(config["writers"]) if writer != config["writer"]]
    while waiting:
        if seconds() - begun > START_S:
            sys.exit(f"writers {waiting} are not ready after {START_S:g} s")
        with open(marker(config, waiting[0])) as file:
            if file.read():
                waiting.pop(0)
                continue
        select.select([], [], [], POLL_S)


def marker(config: dict[str, Any], writer: int) -> str:
    """Return the path of a writer's marker file beside the shared file; a ready writer has written to it."""
    return f"{config['path']}.{writer}"


def server_clock(config: dict[str, Any]) -> int:
    """Return the server's time in ns: utime(2) without a time lets the server set the present time."""
    path = marker(config, config["writer"])
    os.utime(path)
    return os.stat(path).st_mtime_ns


def write(config: dict[str, Any]) -> dict[str, Any]:
    """Write this writer's records in each round, with fsync after each; close the file, and return the times."""
    writer = config["writer"]
    fd = os.open(config["path"], os.O_WRONLY)
    wait_for_all(config)
    begun_ns = server_clock(config)
    begun = seconds()
    for turn in range(1, config["rounds"] + 1):
        record = blank(config, writer, turn)
        for offset in offsets(config, writer):
            write_all(fd, memoryview(place(record, offset)).cast("B"), offset)
        os.fsync(fd)
    os.close(fd)
    took = seconds() - begun
    written = config["rounds"] * config["count"] * config["record"]
    return {"seconds": took, "begun_ns": begun_ns, "ended_ns": server_clock(config), "bytes": written}


def check(config: dict[str, Any]) -> dict[str, Any]:
    """Read all records of one writer, and count the units that differ from the data of its last round."""
    writer, turn, size = config["writer"], config["rounds"], config["record"]
    expected = blank(config, writer, turn)
    wrong: dict[str, int] = {}
    first: list[Any] | None = None
    with open(config["path"], "rb", buffering=0) as file:
        for offset in offsets(config, writer):
            data = read_at(file.fileno(), size, offset)
            if data == place(expected, offset).tobytes():
                continue
            for at in range(0, size, UNIT):
                unit = data[at : at + UNIT]
                if kind := kind_of(unit, offset + at, writer, turn, config["seed"], config["writers"]):
                    wrong[kind] = wrong.get(kind, 0) + 1
                    first = first or [offset + at, kind]
    return {"bytes": config["count"] * size, "wrong": wrong, "first": first}


def read_at(fd: int, size: int, offset: int) -> bytes:
    """Return ``size`` bytes of a file at an offset, or fewer at the end of the file."""
    parts = []
    while size and (part := os.pread(fd, size, offset)):
        parts.append(part)
        size, offset = size - len(part), offset + len(part)
    return b"".join(parts)


if __name__ == "__main__":
    print(json.dumps({"write": write, "check": check}[sys.argv[1]](json.loads(sys.argv[2]))))
