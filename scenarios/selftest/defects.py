"""Functions that plant realistic defects in a stack or its disks without the knowledge of the harness.

Each function notes the place of its defect for the scenario, which compares it with what the harness reports.
"""

import mmap
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import ClassVar, NamedTuple

from raidproof.core.layer import found_in
from raidproof.core.units import SECTOR
from raidproof.core.waiting import Deadline, now_ns, pause, wait_until
from raidproof.disk.client import EngineClient
from raidproof.disk.disk_fault import DiskFault, DiskFaultKind, slow_flushes
from raidproof.fault import Fault, FaultContext, FaultEffects, FaultEvent, PowerCut
from raidproof.fault.array import hits, place_of
from raidproof.fault.disk import BLOCK
from raidproof.guest.ledger_writer import HEADER, MAGIC
from raidproof.run.crash_test import LEDGER_DIRECTORY
from raidproof.storage.array.array import Upkeep, create_commands
from raidproof.storage.array.spec import disk_path
from raidproof.storage.array.superblock import OFFSET
from raidproof.storage.stack import StackSpec
from raidproof.workload.ledger import LedgerSpec

LEDGER = LedgerSpec(kinds=("fsync", "o_sync", "close", "metadata"), blocks=48, files=16)
"""A ledger with few blocks, so that each is overwritten many times, and one worker for each promise."""
WORKERS = {worker.file: worker for worker in LEDGER.workers(("client1", "client2"))}
WITHOUT_PARITY = ("disk0", "disk1", "disk2")
"""The members of a RAID4 that hold data; the last member holds parity. The file system chooses the member."""
QUIET = LedgerSpec(kinds=("metadata",))
"""A ledger with one worker a client, whose operations write only to the file system's log."""
AGENT_SIGNAL = ("pkill", "--full", "ledger_writer[.]py ")
DROPPED = 30
"""Number of dropped flushes; about one in five causes a loss, as the log alternates between members and parts of it
are flushed twice."""
BITMAP_HEADER = 256
"""Bytes before the bits of the bitmap (sizeof bitmap_super_s in the kernel's drivers/md/md-bitmap.h)."""
DEADLINE_S = 15.0
ROTS = "client2-1-o_sync"
WORK_S = 0.5
SLOW_FLUSH_MS = 2000
"""Delay of a flush in milliseconds: longer than ``WORK_S``, the time between planting a defect and the cut."""
HEALED_S = 1.5
"""Seconds, longer than the error of a time stamp: an operation lost after this time began after the dropped flush."""
TOLD_S = 0.1
"""Seconds after which a client has received the acknowledgement of data that a drive has just acknowledged."""

Places = dict[str, str]
"""The place of each defect by the name of the plant, in the words that the harness must report."""
PlantDefect = Callable[[FaultContext, Places], None]


def nothing(_scene: FaultContext, _places: Places) -> None:
    """Plant no defect."""


@dataclass(frozen=True)
class TamperedCut(PowerCut):
    """A power cut during which defects are planted."""

    places: Places = field(default_factory=dict)
    at_work: PlantDefect = nothing
    """Called while clients work, just before the cut."""
    without_power: PlantDefect = nothing
    booted: PlantDefect = nothing
    """Called after the server has booted, before the array is assembled."""

    def inject(self, context: FaultContext) -> FaultEvent:
        self.at_work(context, self.places)
        injected = super().inject(context)
        self.without_power(context, self.places)
        return injected

    def heal(self, context: FaultContext) -> None:
        super().heal(context)
        self.booted(context, self.places)


@dataclass(frozen=True)
class Before(Fault):
    """Plants a defect after the stack was built and verified, before the clients begin."""

    plant: PlantDefect
    places: Places = field(default_factory=dict)
    name: ClassVar[str] = "planted"

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Declare no effects, so that the judge reports the planted defect."""
        return FaultEffects()

    def inject(self, context: FaultContext) -> FaultEvent:
        self.plant(context, self.places)
        return FaultEvent(self.name, "server", now_ns(), "done")

    def heal(self, context: FaultContext) -> None:
        """Clear all disk faults; data that are corrupt stay corrupt."""
        disks_of(context).clear_disk_faults()


def disks_of(context: FaultContext) -> EngineClient:
    """Return the client of the disk engine."""
    assert isinstance(context.lab.disks, EngineClient)
    return context.lab.disks


class Held(NamedTuple):
    """A durable block of the ledger on a member disk."""

    serial: str
    at: int
    file: int
    block: int

    def is_(self, what: str) -> str:
        """Return the words with which the harness must report this block."""
        return f"{WORKERS[self.file].path}: block {self.block} is {what}"


def held(context: FaultContext, path: str) -> list[list[Held]]:
    """Return the durable blocks of a worker's file, for each member without parity."""
    with tempfile.TemporaryDirectory(prefix="image-") as folder:
        return [list(held_by(context, serial, path, Path(folder, serial))) for serial in WITHOUT_PARITY]


def held_by(context: FaultContext, serial: str, path: str, image: Path) -> Iterator[Held]:
    """Yield the blocks of a worker's file that are durable on one member."""
    disks_of(context).image(serial, image)
    with image.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        at = data.find(MAGIC)
        while at >= 0:
            _, number, position, _, _ = HEADER.unpack_from(data, at)
            if at % BLOCK == 0 and WORKERS[number].path == path:
                yield Held(serial, at, number, position // BLOCK)
            at = data.find(MAGIC, at + BLOCK)


def first_held(context: FaultContext, path: str) -> Held:
    """Wait for a durable block of a worker's file, and return it."""
    return wait_until(
        lambda: next((one for member in held(context, path) for one in member), None),
        Deadline.after(DEADLINE_S),
        f"a block of {path}",
    )


def neighbours(context: FaultContext, path: str) -> tuple[Held, Held] | None:
    """Return two consecutive blocks of a file on the same member; None if there are none."""
    pairs = (pair for member in held(context, path) for pair in pairwise(sorted(member, key=lambda one: one.block)))
    return next((pair for pair in pairs if pair[1].block == pair[0].block + 1), None)


def trigger(context: FaultContext, serial: str, disk_fault: DiskFault, times: int = 1) -> None:
    """Set a disk fault, and wait until it has affected at least ``times`` requests."""
    disks_of(context).set_disk_fault(serial, disk_fault)
    wait_until(
        lambda: hits(context, serial, disk_fault.kind) >= times or None,
        Deadline.after(DEADLINE_S),
        f"{disk_fault.kind.value} of {serial}",
        0.01,
    )


def flushes_of(context: FaultContext, serial: str) -> int:
    """Return the number of flushes that a drive has executed."""
    return disks_of(context).counters()[serial].flushes


# Defects of drives.


def writes_go_astray(context: FaultContext, places: Places) -> None:
    """Make one member of a RAID4 lose all writes to a block, and another one write a block to the previous place."""
    lost = first_held(context, "client2-0-fsync")
    # The block that `block_rots` corrupts later must exist before the cut.
    first_held(context, ROTS)
    before, astray = wait_until(
        lambda: neighbours(context, "client1-0-fsync"), Deadline.after(DEADLINE_S), "two blocks"
    )
    # The misdirected write comes last, as the worker overwrites the neighbour in its next round.
    trigger(context, lost.serial, DiskFault(DiskFaultKind.LOST_WRITES, lost.at, BLOCK))
    trigger(
        context, astray.serial, DiskFault(DiskFaultKind.MISDIRECTED, astray.at, BLOCK, shift=before.at - astray.at)
    )
    # The cut loses unflushed data. One flush may have been in progress, so wait for two.
    durable = flushes_of(context, astray.serial) + 2
    wait_until(lambda: flushes_of(context, astray.serial) >= durable, Deadline.after(DEADLINE_S), "it to be flushed")
    pause(TOLD_S)
    places["old-generation"] = lost.is_("stale")
    places["neighbour"] = before.is_("misplaced")


def flushes_are_dropped(context: FaultContext, places: Places) -> None:
    """Make one member drop single flushes; it executes all other flushes, including the one after a dropped one.

    The second client is stopped meanwhile: its flushes would make the first client's data durable before their
    acknowledgement.
    """
    context.lab.clients[1].succeed([*AGENT_SIGNAL, "-STOP"])
    for times in range(1, DROPPED + 1):
        trigger(context, "disk1", DiskFault(DiskFaultKind.DROP_FLUSHES, count=1), times)
        pause(0.03)
    places["flush-dropped"] = "the disks: disk1 acknowledged flushes and kept nothing"


def one_flush_is_dropped(context: FaultContext, places: Places) -> None:
    """Make one member drop a single flush; its next flush makes the data durable long before the cut."""
    trigger(context, "disk1", DiskFault(DiskFaultKind.DROP_FLUSHES, count=1))
    durable = flushes_of(context, "disk1") + 2
    wait_until(lambda: flushes_of(context, "disk1") >= durable, Deadline.after(DEADLINE_S), "it to be flushed")
    pause(HEALED_S)
    places["careless-after-a-lie"] = "the stack"


def flushes_take_long(context: FaultContext, _places: Places) -> None:
    """Make every flush take longer than the time to the cut, which then interrupts an operation of every worker."""
    for member in context.stack.array.spec.members:
        disks_of(context).set_disk_fault(member, slow_flushes(SLOW_FLUSH_MS))
    pause(WORK_S)


def disks_are_sound(context: FaultContext, _places: Places) -> None:
    """Clear all disk faults."""
    disks_of(context).clear_disk_faults()


def clients_go_on(context: FaultContext, _places: Places) -> None:
    """Let the stopped client continue."""
    context.lab.clients[1].succeed([*AGENT_SIGNAL, "-CONT"])


def block_rots(context: FaultContext, places: Places) -> None:
    """Corrupt half a block on one member while the server has no power."""
    disks_of(context).clear_disk_faults()
    rotten = first_held(context, ROTS)
    disks_of(context).corrupt(rotten.serial, rotten.at + BLOCK // 2, BLOCK // 2)
    places["silent-corruption"] = rotten.is_("garbage")


def parity_is_lost(context: FaultContext, places: Places) -> None:
    """Make the last member of a RAID4, which holds the parity, lose all writes to its data area."""
    path = f"{place_of(context, 'disk3').directory}/offset"
    begin = int(context.lab.server.get(path)) * SECTOR
    disks_of(context).set_disk_fault("disk3", DiskFault(DiskFaultKind.LOST_WRITES, begin))
    places["parity-not-updated"] = context.stack.array.device


def stripe_is_torn(context: FaultContext, _places: Places) -> None:
    """Corrupt the parity of blocks, as a cut during writes does; a resync would correct it.

    The parity of several blocks is corrupted, as a later write of the client may recompute the parity of one of them.
    """
    for at in {block.at for member in held(context, "client1-0-fsync") for block in member}:
        disks_of(context).corrupt("disk3", at, BLOCK)


def bitmap_is_cleared(context: FaultContext, places: Places) -> None:
    """Clear the bitmap on each member, so that it marks no stripe."""
    for serial in context.stack.array.spec.members:
        path = disk_path(serial)
        said = context.lab.server.succeed(["mdadm", "--examine", path])
        sectors = int(found_in(r"Internal Bitmap : (\d+) sectors from superblock", said, "bitmap"))
        bits = OFFSET + sectors * SECTOR + BITMAP_HEADER
        clear = ["dd", "if=/dev/zero", f"of={path}", f"bs={BLOCK - BITMAP_HEADER}", "count=1", f"seek={bits}"]
        context.lab.server.succeed([*clear, "oflag=seek_bytes", "conv=notrunc,fsync", "status=none"])
    places["bitmap-cleared"] = context.stack.array.device


def superblock_is_torn(context: FaultContext, places: Places) -> None:
    """Corrupt half of the array's description in one member's superblock."""
    disks_of(context).corrupt("disk1", OFFSET + 128, 128)
    places["torn-superblock"] = "disk1"


def serials_are_swapped(context: FaultContext, places: Places) -> None:
    """Swap two drives."""
    disks_of(context).swap("disk1", "disk2")
    places["serials-swapped"] = "disk1 carries the metadata of disk2"


# Defects of the server's kernel and configuration.


def server_panics(context: FaultContext, _places: Places) -> None:
    """Make the server's kernel panic as soon as the array is assembled."""
    array, server = context.stack.array, context.lab.server
    assemble = array.activate

    def panic() -> None:
        assemble()
        server.put("1", "/proc/sys/kernel/panic_on_oops")
        server.run(["tee", "/proc/sysrq-trigger"], stdin="c", deadline_s=DEADLINE_S)

    setattr(array, "activate", panic)  # noqa: B010  mypy knows it as a method


def flushes_stop_above_the_members(context: FaultContext, places: Places) -> None:
    """Set one member's write cache to write-through on the server, so that the kernel never flushes the member.

    The checker can find a member without any flush. It cannot find a member with too few flushes.
    """
    disk = place_of(context, "disk1").disk
    context.lab.server.succeed(["tee", f"/sys/block/{disk}/queue/write_cache"], stdin="write through\n")
    places["flushes-swallowed"] = "disk1"


def export_is_made_async(context: FaultContext, places: Places) -> None:
    """Export with async instead of sync, so that the server replies before the data are on its disks."""
    spec, path = context.stack.spec.export, context.stack.export.path
    options = ",".join("async" if word == "sync" else word for word in spec.options())
    context.lab.server.succeed(["exportfs", "-o", options, f"{spec.network}:{path}"])
    places["export-async"] = path


def member_falls_behind(context: FaultContext, _places: Places) -> None:
    """Remove a member from the array while clients continue to write."""
    Upkeep.with_member(context.stack.array, "disk1").take_out("disk1")
    pause(WORK_S)


def stale_member_is_forced_in(context: FaultContext, places: Places) -> None:
    """Assemble the array by force, with the removed, outdated member and without a current one."""
    array = context.stack.array
    members = [disk_path(serial) for serial in array.spec.members if serial != "disk2"]
    command = ["mdadm", "--assemble", "--force", "--run", array.device, *members]
    setattr(array, "activate", lambda: context.lab.server.succeed(command))  # noqa: B010  mypy knows it as a method
    places["stale-member"] = "disk1"


def array_is_created_anew(context: FaultContext, places: Places) -> None:
    """Create the array on its members instead of assembling it; its content stays complete."""
    array = context.stack.array

    def create() -> None:
        for command in create_commands(array.spec):
            context.lab.server.succeed(command)

    setattr(array, "activate", create)  # noqa: B010  mypy knows it as a method
    places["array-re-created"] = "disk0"


def first_directory_is_done(context: FaultContext, _places: Places) -> None:
    """Wait until a worker has begun its second directory; the first one has then had every kind of change."""
    path = f"{context.stack.filesystem.directory}/{LEDGER_DIRECTORY}/client1-3-metadata/d1"
    wait_until(
        lambda: context.lab.server.run(["test", "-d", path]).ok,
        Deadline.after(DEADLINE_S),
        "a second directory",
    )


def rename_is_undone(context: FaultContext, places: Places) -> None:
    """Undo the last rename that was acknowledged to a client, before the directory is read back."""
    filesystem, server = context.stack.filesystem, context.lab.server
    mount, worker = filesystem.activate, "client1-3-metadata"

    def undo() -> None:
        mount()
        root = f"{filesystem.directory}/{LEDGER_DIRECTORY}/{worker}"
        names = server.succeed(["find", root, "-name", "[bc]", "-printf", "%P\n"]).split()
        # If a later operation has removed `b` too, the rename was certainly acknowledged.
        done = {name[:-2] for name in names if name.endswith("/c")} - {name[:-2] for name in names if name[-1] == "b"}
        last = max(int(re.sub(r"\D", "", name)) for name in done)
        server.succeed(["mv", f"{root}/d{last}/c", f"{root}/d{last}/a"])
        places["rename-undone"] = f"{worker}: rename of {last} "

    setattr(filesystem, "activate", undo)  # noqa: B010  mypy knows it as a method
