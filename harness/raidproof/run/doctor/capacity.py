"""How much this machine has: processors, memory, room on disk."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

from raidproof.core.units import GIB, MIB
from raidproof.run.doctor.finding import Finding, Outcome

MACHINES = 3
MACHINE_MEMORY = 768 * MIB
ENGINE_MEMORY = 512 * MIB
CACHE_ROOM = 3 * GIB
LAB_ROOM = 2 * GIB
RESULTS_ROOM = 256 * MIB
CPUS = 2
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108


def memory_finding(available: int) -> Finding:
    """Judge the available memory, in bytes, against three machines and the disk engine."""
    needed = MACHINES * MACHINE_MEMORY + ENGINE_MEMORY
    reason = f"{available // MIB} MiB available; {MACHINES} machines and their disks take up to {needed // MIB} MiB"
    if available < needed // 2:
        return Finding("memory", Outcome.MISSING, reason, "stop other programs, or add memory")
    if available < needed:
        return Finding("memory", Outcome.WARNING, reason, "stop other programs; swapping would spoil the measurements")
    return Finding("memory", Outcome.OK, reason)


def room_finding(purpose: str, path: Path, free: int, needed: int) -> Finding:
    """Judge the free bytes under a directory."""
    reason = f"{path}: {free // MIB} MiB free, needs {needed // MIB} MiB"
    if free >= needed:
        return Finding(f"room for {purpose}", Outcome.OK, reason)
    return Finding(f"room for {purpose}", Outcome.MISSING, reason, "free some space there")


def shared_memory_finding(path: Path, free: int) -> Finding:
    """Judge the free bytes where the machines' memory is best kept."""
    name, needed = "room for machines' memory", MACHINES * MACHINE_MEMORY
    reason = f"{path}: {free // MIB} MiB free, {MACHINES} machines take up to {needed // MIB} MiB"
    if free > needed:
        return Finding(name, Outcome.OK, reason)
    remedy = f"as root: mount -o remount,size=75% {path}; in a container: --shm-size={needed // MIB + 64}m"
    return Finding(name, Outcome.WARNING, f"{reason}; it goes to files in TMPDIR instead, which is slower", remedy)


def cpu_finding(cpus: int) -> Finding:
    """Judge the number of processors that this process may use."""
    if cpus >= CPUS:
        return Finding("processors", Outcome.OK, str(cpus))
    return Finding("processors", Outcome.WARNING, f"{cpus}; server and clients share it", "rates will be low")


def free_bytes(path: Path) -> int:
    """Return what an ordinary user can still write under a path, which need not exist yet."""
    while not path.exists():
        path = path.parent
    return psutil.disk_usage(str(path)).free


def image_is_built(cache: Path) -> bool:
    """Whether the cache already has an image, so that a run needs little more there."""
    return any(cache.glob("image/*/root.ext4"))


def capacity_findings(cache: Path, results: Path) -> Iterator[Finding]:
    """Check processors, memory, and the disks that hold the cache, the labs and the results."""
    to_build = 0 if image_is_built(cache) else CACHE_ROOM
    yield cpu_finding(len(os.sched_getaffinity(0)))
    yield memory_finding(psutil.virtual_memory().available)
    yield shared_memory_finding(SHARED_MEMORY, free_bytes(SHARED_MEMORY))
    rooms = (("images", cache, to_build), ("labs", Path(tempfile.gettempdir()), LAB_ROOM))
    for purpose, path, needed in (*rooms, ("results", results, RESULTS_ROOM)):
        yield room_finding(purpose, path, free_bytes(path), needed)
