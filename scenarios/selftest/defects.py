"""Functions that plant realistic defects in a stack or its disks; the code of the harness gets no sign of the defect.

Each function stores the place of its defect. The scenario compares this place with the report of the harness.
"""

import mmap
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
from raidproof.fault import Fault, FaultContext, FaultEffects, FaultEvent, KernelPanic, PowerCut
from raidproof.fault.array import hits, place_of
from raidproof.fault.disk import BLOCK
from raidproof.guest.ledger_format import HEADER, MAGIC
from raidproof.guest.ledger_holders import TURNS
from raidproof.storage.array.superblock import OFFSET
from raidproof.storage.filesystem import FilesystemState
from raidproof.storage.member import disk_path
from raidproof.storage.stack import StackSpec
from raidproof.workload.ledger import LEDGER_DIRECTORY, ROUNDS, LedgerSpec

LEDGER = LedgerSpec(kinds=("fsync", "o_sync", "close", "metadata", "removed"), blocks=48, files=16)
"""A ledger with few blocks, so that each block is overwritten many times, and with one worker of each kind."""
WORKERS = {worker.file: worker for worker in LEDGER.workers(("client1", "client2"))}
"""The workers of `LEDGER` by the number that the header of their blocks contains."""
WITHOUT_PARITY = ("disk0", "disk1", "disk2")
"""The members of a RAID4 that hold data; the last member holds parity. The file system chooses a block's member."""
QUIET = LedgerSpec(kinds=("metadata",))
"""A ledger with one worker on each client, whose operations write only to the file system's log."""
AGENT_SIGNAL = ("pkill", "--full", "ledger_writer[.]main")
"""Command that sends a signal, to be appended, to the ledger's program on a client."""
DROPPED = 120
"""Number of dropped flushes. About one in ten causes a loss, as the file system's log alternates between members and
parts of the log are flushed twice. The log stays on one member for many operations, so few drops may cause none."""
BITMAP_HEADER = 256
"""Bytes before the bits of the bitmap (sizeof bitmap_super_s in the kernel's drivers/md/md-bitmap.h)."""
DEADLINE_S = 60.0
ROTS = "client2-1-o_sync"
"""Path of the file of which `block_rots` corrupts a block."""
RENAMES = "client1-3-metadata"
"""Path of the directory of the worker of which `rename_is_undone` undoes a rename."""
OWNED = "client2-3-metadata"
"""Path of the directory of the worker of which `rename_is_undone` changes the owner and the mode of a directory."""
UNNAMED = ".nfs*"
"""Pattern of the names on the server of removed files that are open: NFS clients rename such a file."""
WORK_S = 0.5
"""Seconds during which clients continue to work after some defects were planted."""
SLOW_FLUSH_MS = 2000
"""Delay of a flush in milliseconds: longer than `WORK_S`, after which the power is cut."""
HEALED_S = 1.5
"""Seconds from a dropped flush to the cut: longer than the error of time stamps.

So an operation that is lost shortly before the cut certainly began after the dropped flush.
"""
TOLD_S = 0.1
"""Seconds from a drive's acknowledgement of a flush until the client has certainly received the server's reply."""

Places = dict[str, str]
"""The place of each planted defect, by the name of its `Plant`, as a text that the harness must report."""
PlantDefect = Callable[[FaultContext, Places], None]
"""Plants a defect in a running lab, and stores the place of the defect."""


def nothing(_scene: FaultContext, _places: Places) -> None:
    """Plant no defect."""


@dataclass(frozen=True)
class TamperedCut(PowerCut):
    """A power cut with defects that are planted before, during and after the cut."""

    places: Places = field(default_factory=dict)
    at_work: PlantDefect = nothing
    """Called while clients work, just before the cut."""
    without_power: PlantDefect = nothing
    """Called after the cut, before the server gets power again."""
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
    """Return the lab's connection to the disk engine, which sets disk faults and reads images."""
    assert isinstance(context.lab.disks, EngineClient)
    return context.lab.disks


class Held(NamedTuple):
    """The place of a durable block of the ledger on a member disk."""

    serial: str
    at: int
    """Offset in bytes on the member."""
    file: int
    """Number of the worker, from the header of the block."""
    block: int
    """Number of the block in its file."""

    @property
    def named(self) -> str:
        """The beginning of the line with which the harness must report this block as damaged."""
        return f"{WORKERS[self.file].path}: block {self.block} "


def held(context: FaultContext, path: str) -> list[list[Held]]:
    """Return the durable blocks of a worker's file, in one list for each member without parity."""
    with tempfile.TemporaryDirectory(prefix="image-") as folder:
        return [list(held_by(context, serial, path, Path(folder, serial))) for serial in WITHOUT_PARITY]


def held_by(context: FaultContext, serial: str, path: str, image: Path) -> Iterator[Held]:
    """Yield the durable blocks of a worker's file on one member; ``image`` is the path for the member's content."""
    disks_of(context).image(serial, image)
    with image.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        at = data.find(MAGIC)
        while at >= 0:
            _, number, position, _, _ = HEADER.unpack_from(data, at)
            if at % BLOCK == 0 and WORKERS[number].path == path:
                yield Held(serial, at, number, position // BLOCK)
            at = data.find(MAGIC, at + BLOCK)


def first_held(context: FaultContext, path: str) -> Held:
    """Wait until a block of a worker's file is durable, and return the block."""
    return wait_until(
        lambda: next((one for member in held(context, path) for one in member), None),
        Deadline.after(DEADLINE_S),
        f"a durable block of {path}",
    )


def neighbours(context: FaultContext, path: str) -> tuple[Held, Held] | None:
    """Return two consecutive durable blocks of a file on the same member; None if no member has two."""
    pairs = (pair for member in held(context, path) for pair in pairwise(sorted(member, key=lambda one: one.block)))
    return next((pair for pair in pairs if pair[1].block == pair[0].block + 1), None)


def trigger(context: FaultContext, serial: str, disk_fault: DiskFault, times: int = 1) -> None:
    """Set a disk fault, and wait until it has affected at least ``times`` requests."""
    disks_of(context).set_disk_fault(serial, disk_fault)
    wait_until(
        lambda: hits(context, serial, disk_fault.kind) >= times or None,
        Deadline.after(DEADLINE_S),
        f"disk fault {disk_fault.kind.value} of {serial} to affect {times} requests",
        0.01,
    )


def flushes_of(context: FaultContext, serial: str) -> int:
    """Return the number of flushes that a drive has executed."""
    return disks_of(context).counters()[serial].flushes


# Defects of drives.


def writes_go_astray(context: FaultContext, places: Places) -> None:
    """Make a drive lose all writes to one block, and a drive write one block to the place of the block before."""
    lost = first_held(context, "client2-0-fsync")
    # The block that `block_rots` corrupts later must exist before the cut.
    first_held(context, ROTS)
    before, astray = wait_until(
        lambda: neighbours(context, "client1-0-fsync"),
        Deadline.after(DEADLINE_S),
        "two consecutive durable blocks of client1-0-fsync on one member",
    )
    # The misdirected write is planted last, as the worker overwrites the block before in its next round.
    trigger(context, lost.serial, DiskFault(DiskFaultKind.LOST_WRITES, lost.at, BLOCK))
    trigger(
        context, astray.serial, DiskFault(DiskFaultKind.MISDIRECTED, astray.at, BLOCK, shift=before.at - astray.at)
    )
    # The cut loses unflushed data. One flush may have been in progress before the fault, so wait for two.
    durable = flushes_of(context, astray.serial) + 2
    wait_until(lambda: flushes_of(context, astray.serial) >= durable, Deadline.after(DEADLINE_S), "it to be flushed")
    pause(TOLD_S)
    places["old-generation"] = lost.named
    places["neighbour"] = before.named


def flushes_are_dropped(context: FaultContext, places: Places) -> None:
    """Make one member drop single flushes; it executes all others, also the one after each dropped flush.

    The second client is stopped meanwhile: flushes for its data would make the first client's data durable too.
    """
    context.lab.clients[1].succeed([*AGENT_SIGNAL, "-STOP"])
    for times in range(1, DROPPED + 1):
        trigger(context, "disk1", DiskFault(DiskFaultKind.DROP_FLUSHES, count=1), times)
        pause(0.03)
    places["flush-dropped"] = "the disks: disk1 acknowledged flushes and did not make the data durable"


def one_flush_is_dropped(context: FaultContext, places: Places) -> None:
    """Make one member drop a single flush; the next flush of the member makes the data durable long before the cut."""
    trigger(context, "disk1", DiskFault(DiskFaultKind.DROP_FLUSHES, count=1))
    durable = flushes_of(context, "disk1") + 2
    wait_until(lambda: flushes_of(context, "disk1") >= durable, Deadline.after(DEADLINE_S), "it to be flushed")
    pause(HEALED_S)
    places["careless-after-a-lie"] = "the stack"


def flushes_take_long(context: FaultContext, _places: Places) -> None:
    """Make every flush take longer than the time to the cut, so that each worker has an operation in progress then."""
    for member in context.stack.array.spec.members:
        disks_of(context).set_disk_fault(member, slow_flushes(SLOW_FLUSH_MS))
    pause(WORK_S)


def disks_are_sound(context: FaultContext, _places: Places) -> None:
    """Clear all disk faults."""
    disks_of(context).clear_disk_faults()


def clients_go_on(context: FaultContext, _places: Places) -> None:
    """Continue the ledger of the second client, which `flushes_are_dropped` has stopped."""
    context.lab.clients[1].succeed([*AGENT_SIGNAL, "-CONT"])


def block_rots(context: FaultContext, places: Places) -> None:
    """Corrupt the second half of a block of the ledger on one member while the server has no power."""
    disks_of(context).clear_disk_faults()
    rotten = first_held(context, ROTS)
    disks_of(context).corrupt(rotten.serial, rotten.at + BLOCK // 2, BLOCK // 2)
    places["silent-corruption"] = rotten.named


def parity_is_lost(context: FaultContext, places: Places) -> None:
    """Make the last member of a RAID4, which holds the parity, lose all writes to its data area."""
    path = f"{place_of(context, 'disk3').directory}/offset"
    begin = int(context.lab.server.get(path)) * SECTOR
    disks_of(context).set_disk_fault("disk3", DiskFault(DiskFaultKind.LOST_WRITES, begin))
    places["parity-not-updated"] = context.stack.array.device


def stripe_is_torn(context: FaultContext, _places: Places) -> None:
    """Corrupt the parity of several blocks, as a cut during writes does; a resync would correct the parity.

    Several blocks, because a later write of the client may recompute the parity of one of them.
    """
    for at in {block.at for member in held(context, "client1-0-fsync") for block in member}:
        disks_of(context).corrupt("disk3", at, BLOCK)


def bitmap_is_cleared(context: FaultContext, places: Places) -> None:
    """Clear the write-intent bitmap on each member, so that md resyncs no stripe."""
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
    """Exchange the contents of disk1 and disk2, as if each drive had the serial number of the other one."""
    disks_of(context).swap("disk1", "disk2")
    places["serials-swapped"] = "disk1 carries the md metadata of disk2"


# Defects of the server's kernel and configuration.


def server_panics(context: FaultContext, _places: Places) -> None:
    """Make the server's kernel panic as soon as the array is assembled."""
    array, server = context.stack.array, context.lab.server
    assemble = array.activate

    def panic() -> None:
        assemble()
        server.put("1", "/proc/sys/kernel/panic_on_oops")
        KernelPanic().inject(context)
        server.run(["true"], deadline_s=1.0)

    setattr(array, "activate", panic)  # noqa: B010  mypy knows it as a method


def flushes_stop_above_the_members(context: FaultContext, places: Places) -> None:
    """Set one member's write cache to write-through on the server, so that the kernel never flushes the member.

    The verdict can find a member without any flush. It cannot find a member with too few flushes.
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
    """Remove a member from the array while clients continue to write, so that the member becomes outdated."""
    context.stack.array.upkeep("disk1").take_out("disk1")
    pause(WORK_S)


def stale_member_is_forced_in(context: FaultContext, places: Places) -> None:
    """Assemble the array by force with the outdated member, and without a member whose content is current."""
    array = context.stack.array
    members = [disk_path(serial) for serial in array.spec.members if serial != "disk2"]
    command = ["mdadm", "--assemble", "--force", "--run", array.device, *members]
    setattr(array, "activate", lambda: context.lab.server.succeed(command))  # noqa: B010  mypy knows it as a method
    places["stale-member"] = "disk1"


def array_is_created_anew(context: FaultContext, places: Places) -> None:
    """Create the array anew on its members (mdadm --create) instead of assembling it; the data stay complete."""
    array = context.stack.array

    def create() -> None:
        for command in array.spec.create_commands():
            context.lab.server.succeed(command)

    setattr(array, "activate", create)  # noqa: B010  mypy knows it as a method
    places["array-re-created"] = "disk0"


def names_are_changed(context: FaultContext, _places: Places) -> None:
    """Wait until a worker has made every kind of change, and another one uses an open file without a name for long.

    The worker of names has done all of its rounds when it has more directories than rounds. A file without a name is
    used `TURNS` times, each time for its next block: one with few blocks is in use until long after the cut.
    """
    root = f"{context.stack.filesystem.directory}/{LEDGER_DIRECTORY}"
    path = f"{root}/{RENAMES}/d{len(ROUNDS['metadata'])}"
    opened = ["find", root, "-name", UNNAMED, "-printf", "%s\\n"]

    def ready() -> bool:
        server = context.lab.server
        # A directory that a client removes meanwhile is an error of find(1), which lists the rest.
        sizes = map(int, server.run(opened).stdout.split()) if server.exists(path) else ()
        return any(2 * BLOCK <= size <= TURNS // 2 * BLOCK for size in sizes)

    wait_until(ready, Deadline.after(DEADLINE_S), f"the directory {path}, and a file in use without a name")


def rename_is_undone(context: FaultContext, places: Places) -> None:
    """Undo the last acknowledged rename of a worker after the mount, before the directory is read back.

    The first directory of another worker gets another owner and more permissions. The kernel also reports an error
    whose text is in no list: a file is no module. The content of removed files that clients have open is changed.
    """
    context.lab.server.run(["insmod", "/etc/hostname"])
    filesystem, server = context.stack.filesystem, context.lab.server
    mount = filesystem.activate

    def undo(options: tuple[str, ...] = ()) -> FilesystemState:
        state = mount(options)
        root = f"{filesystem.directory}/{LEDGER_DIRECTORY}"
        names = server.succeed(["find", f"{root}/{RENAMES}", "-mindepth", "1", "-printf", "%P\\n"]).split()
        # The worker has made every change of a directory before it makes the next directory.
        newest = max(number_of(name) for name in names)
        last = max(number for name in names if name.endswith("/c") and (number := number_of(name)) < newest)
        server.succeed(["mv", f"{root}/{RENAMES}/d{last}/c", f"{root}/{RENAMES}/d{last}/a"])
        places["rename-undone"] = f"{RENAMES}: rename of directory d{last} "
        server.succeed(["chown", "4711", f"{root}/{OWNED}/d0"])
        server.succeed(["chmod", "777", f"{root}/{OWNED}/d0"])
        opened = server.succeed(["find", root, "-name", UNNAMED]).split()
        assert opened, "no client has a removed file open"
        for path in opened:
            server.succeed(["dd", "if=/dev/zero", f"of={path}", "bs=4096", "count=1", "conv=notrunc,fsync"])
        return state

    setattr(filesystem, "activate", undo)  # noqa: B010  mypy knows it as a method


def number_of(name: str) -> int:
    """Return the number of the directory in a path such as ``d7/c``."""
    return int(name.partition("/")[0].removeprefix("d"))
