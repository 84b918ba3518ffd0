"""One member disk in its array, as its server's kernel sees it: found, provoked, pulled out, plugged in."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from raidproof.core.errors import RigError
from raidproof.core.layer import read_files, whole_number
from raidproof.core.waiting import Deadline, wait_until
from raidproof.disk.flaw import FlawKind
from raidproof.fault.fault import FaultContext
from raidproof.storage.array.spec import disk_path
from raidproof.storage.array.upkeep import Upkeep

ALARMS = (r"I/O error, dev vd", r"Disk failure on", r"read error (?:not )?correct")
"""Patterns of what a kernel says of a member that fails: it says the same of each, and nothing else is excused."""
NOTICE_DEADLINE_S = 60.0
FAST_KIB_S = 1_000_000
"""While clients work, md rebuilds at a thousandth of this."""
DRIVERS = "/sys/bus/virtio/drivers/virtio_blk"
DEVICES = "/sys/bus/virtio/devices"


class Place(NamedTuple):
    """Where a member is found in sysfs."""

    md: str
    disk: str
    """The kernel's name of the disk."""

    @property
    def directory(self) -> str:
        """What md says of the member."""
        return f"/sys/block/{self.md}/md/dev-{self.disk}"

    def words(self, context: FaultContext) -> tuple[str, ...]:
        """Return the kernel's words for the member's state; none if md has it no more."""
        path = f"{self.directory}/state"
        found = context.lab.server.read_files([path])
        return tuple(found[path].split(",")) if path in found else ()

    def degraded(self, context: FaultContext) -> int:
        """Return how many members the array misses."""
        path = f"/sys/block/{self.md}/md/degraded"
        return whole_number(read_files(context.lab.server, [path])[path].strip(), "degraded")


def place_of(context: FaultContext, serial: str) -> Place:
    """Return where a member is.

    Raises:
        RequestError: the array has no such member, or keeps nothing twice.
    """
    md = Upkeep.with_member(context.stack.array, serial).md
    found = context.lab.server.succeed(["realpath", "--canonicalize-missing", disk_path(serial)])
    return Place(md.name, found.strip().removeprefix("/dev/"))


def struck(context: FaultContext, serial: str, kind: FlawKind) -> int:
    """Return how many requests to a disk a flaw has struck."""
    return context.lab.disks.counters()[serial].struck_by(kind)


def provoke(context: FaultContext, noticed: Callable[[], bool], what: str) -> None:
    """Let the file system write on every member until something is noticed: an idle array notices nothing.

    Raises:
        DeadlineExceeded: it is not.
    """
    server, path = context.lab.server, f"{context.stack.filesystem.directory}/.provoked"
    write = ["dd", "if=/dev/zero", f"of={path}", "bs=1M", "count=2", "oflag=direct", "conv=fsync", "status=none"]

    def once() -> bool | None:
        server.run(write)
        return noticed() or None

    wait_until(once, Deadline.after(NOTICE_DEADLINE_S), what, 0.2)
    server.run(["rm", "--force", path])


@contextmanager
def fast(context: FaultContext, serial: str) -> Iterator[None]:
    """Let md do what it does in the background as fast as it can, clients or not."""
    upkeep = Upkeep.with_member(context.stack.array, serial)
    upkeep.throttle(FAST_KIB_S)
    try:
        yield
    finally:
        upkeep.throttle(None)


def drop(context: FaultContext, serial: str) -> None:
    """Take a faulty member out of its array, also one whose block device is gone.

    Raises:
        DeadlineExceeded: md does not let go of it.
    """
    place, server = place_of(context, serial), context.lab.server

    def gone() -> bool | None:
        # Busy as long as a request to it is on its way.
        server.put_all({f"{place.directory}/state": "remove\n"})
        return not place.words(context) or None

    wait_until(gone, Deadline.after(NOTICE_DEADLINE_S), f"{place.md} to let go of {serial}", 0.1)


def detach(context: FaultContext, place: Place) -> None:
    """Pull a disk out: take it away from its driver.

    Raises:
        RigError: its block device is still there.
    """
    server, block = context.lab.server, f"/sys/block/{place.disk}"
    (path,) = server.resolve([f"{block}/device"])
    device = path.rpartition("/")[2]
    server.put(f"{device}\n", f"{DRIVERS}/unbind")
    if server.exists(block):
        raise RigError(f"{server.name}: {place.disk} was unbound, and {block} is still there")


def attach(context: FaultContext, serial: str) -> None:
    """Plug a disk in again that `detach` has pulled out: the only one without a driver.

    Raises:
        RigError: there is not one such disk, its block device does not appear, or it would not be flushed.
    """
    server = context.lab.server
    listed = server.succeed(["find", f"{DEVICES}/", "-mindepth", "1", "-maxdepth", "1", "-printf", "%f\\n"]).split()
    idle = [one for one in listed if not server.exists(f"{DEVICES}/{one}/driver")]
    if len(idle) != 1:
        raise RigError(f"{server.name}: one disk should be without a driver, found {', '.join(idle) or 'none'}")
    server.put(f"{idle[0]}\n", f"{DRIVERS}/bind")
    names = server.succeed(
        ["find", f"{DEVICES}/{idle[0]}/block/", "-mindepth", "1", "-maxdepth", "1", "-printf", "%f"]
    )
    # A vhost-user disk comes up "write through" in User-mode Linux: then the guest would send no flush at all.
    server.put("write back\n", f"/sys/block/{names}/cache_type")
    cache = server.get(f"/sys/block/{names}/queue/write_cache").strip()
    if cache != "write back":
        raise RigError(f"{server.name}: {serial} ({names}) has its cache {cache}: nothing would be flushed")
    server.succeed(["ln", "--symbolic", "--force", "--no-dereference", f"/dev/{names}", disk_path(serial)])
