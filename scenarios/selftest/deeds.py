"""What is done to a stack behind the harness's back: each deed is a defect that somebody could really have made.

A deed tells nobody but the scenario, for which it notes the place that it struck.
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
from raidproof.fault.array import place_of, struck
from raidproof.fault.disk import BLOCK
from raidproof.guest.ledger_writer import HEADER, MAGIC
from raidproof.run.crash_test import LEDGER_DIRECTORY
from raidproof.storage.array.array import Upkeep, create_commands
from raidproof.storage.array.spec import disk_path
from raidproof.storage.array.superblock import OFFSET
from raidproof.storage.stack import StackSpec
from raidproof.workload.ledger import LedgerSpec

LEDGER = LedgerSpec(kinds=("fsync", "o_sync", "close", "metadata"), blocks=48, files=16)
"""So few blocks that each is written again and again; of each promise one worker."""
WORKERS = {worker.file: worker for worker in LEDGER.workers(("client1", "client2"))}
WITHOUT_PARITY = ("disk0", "disk1", "disk2")
"""The last member of a RAID4 has it. Which of them holds a block is the file system's decision."""
QUIET = LedgerSpec(kinds=("metadata",))
"""One worker a client, of which each operation is in the file system's log and nowhere else."""
AGENT_SIGNAL = ("pkill", "--full", "ledger_writer[.]py ")
DROPPED = 30
"""The log goes from member to member, and parts of it are flushed twice: only about one in five counts."""
BITMAP_HEADER = 256
"""Bytes (sizeof bitmap_super_s in the kernel's drivers/md/md-bitmap.h); the bits follow."""
STRIKE_DEADLINE_S = 15.0
ROTS = "client2-1-o_sync"
WORK_S = 0.5
SLOW_FLUSH_MS = 2000
"""So long clients work on after a deed."""
HEALED_S = 1.5
"""Longer than a stamp may be late: what is lost after it was begun after the lie."""
TOLD_S = 0.1
"""By then a client has been told of what a drive has just acknowledged."""

Places = dict[str, str]
"""What was struck, by the plant's name, in words that the harness is to say."""
Deed = Callable[[FaultContext, Places], None]


def nothing(_scene: FaultContext, _places: Places) -> None:
    """Let everything be."""


@dataclass(frozen=True)
class TamperedCut(PowerCut):
    """A power cut in which somebody has a hand."""

    places: Places = field(default_factory=dict)
    at_work: Deed = nothing
    """Done while clients work, just before the cut."""
    without_power: Deed = nothing
    booted: Deed = nothing
    """Done when the server has power again, and nothing is assembled yet."""

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
    """Something is done when everything has been checked, before the clients begin."""

    deed: Deed
    places: Places = field(default_factory=dict)
    name: ClassVar[str] = "planted"

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Excuse nothing: the judge is to find what was planted."""
        return FaultEffects()

    def inject(self, context: FaultContext) -> FaultEvent:
        self.deed(context, self.places)
        return FaultEvent(self.name, "server", now_ns(), "done")

    def heal(self, context: FaultContext) -> None:
        """Let the disks be honest; what was spoilt stays so."""
        disks_of(context).clear_disk_faults()


def disks_of(context: FaultContext) -> EngineClient:
    """Return what drives the member disks."""
    assert isinstance(context.lab.disks, EngineClient)
    return context.lab.disks


class Held(NamedTuple):
    """A block of the ledger as it lies on a member disk."""

    serial: str
    at: int
    file: int
    block: int

    def is_(self, what: str) -> str:
        """Return what the harness is to say of it."""
        return f"{WORKERS[self.file].path}: block {self.block} is {what}"


def held(context: FaultContext, path: str) -> list[list[Held]]:
    """Return the blocks of a worker's file that are durable, of each member without parity those that it has."""
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
    """Return a block of a worker's file that is durable, as soon as there is one."""
    return wait_until(
        lambda: next((one for member in held(context, path) for one in member), None),
        Deadline.after(STRIKE_DEADLINE_S),
        f"a block of {path}",
    )


def neighbours(context: FaultContext, path: str) -> tuple[Held, Held] | None:
    """Return two blocks of one file that follow each other, both on one member."""
    pairs = (pair for member in held(context, path) for pair in pairwise(sorted(member, key=lambda one: one.block)))
    return next((pair for pair in pairs if pair[1].block == pair[0].block + 1), None)


def strike(context: FaultContext, serial: str, disk_fault: DiskFault, times: int = 1) -> None:
    """Let something be wrong with a drive, and wait until so many requests have met such a thing."""
    disks_of(context).set_disk_fault(serial, disk_fault)
    wait_until(
        lambda: struck(context, serial, disk_fault.kind) >= times or None,
        Deadline.after(STRIKE_DEADLINE_S),
        f"{disk_fault.kind.value} of {serial}",
        0.01,
    )


def flushes_of(context: FaultContext, serial: str) -> int:
    """Return how many flushes a drive has carried out."""
    return disks_of(context).counters()[serial].flushes


# Of drives.


def writes_go_astray(context: FaultContext, places: Places) -> None:
    """Let a member of a RAID4 lose each write of a block, and one put those of a block onto the one before it."""
    lost = first_held(context, "client2-0-fsync")
    # What is to rot without power must be there before.
    first_held(context, ROTS)
    before, astray = wait_until(
        lambda: neighbours(context, "client1-0-fsync"), Deadline.after(STRIKE_DEADLINE_S), "two blocks"
    )
    # The one that goes astray comes last: a round of its worker later the neighbour is written again.
    strike(context, lost.serial, DiskFault(DiskFaultKind.LOST_WRITES, lost.at, BLOCK))
    strike(context, astray.serial, DiskFault(DiskFaultKind.MISDIRECTED, astray.at, BLOCK, shift=before.at - astray.at))
    # The cut takes what was not flushed. One flush may have been under way.
    durable = flushes_of(context, astray.serial) + 2
    wait_until(
        lambda: flushes_of(context, astray.serial) >= durable, Deadline.after(STRIKE_DEADLINE_S), "it to be flushed"
    )
    pause(TOLD_S)
    places["old-generation"] = lost.is_("stale")
    places["neighbour"] = before.is_("misplaced")


def flushes_are_dropped(context: FaultContext, places: Places) -> None:
    """Let one member drop a flush now and then; each one but these is honest, also that which comes next.

    Only one client works meanwhile: with others, their flushes come before it is told of anything.
    """
    context.lab.clients[1].succeed([*AGENT_SIGNAL, "-STOP"])
    for turn in range(1, DROPPED + 1):
        strike(context, "disk1", DiskFault(DiskFaultKind.DROP_FLUSHES, count=1), turn)
        pause(0.03)
    places["flush-dropped"] = "the disks: disk1 acknowledged flushes and kept nothing"


def one_flush_is_dropped(context: FaultContext, places: Places) -> None:
    """Let one member drop a single flush, and make good for it with the next one, long before anything is lost."""
    strike(context, "disk1", DiskFault(DiskFaultKind.DROP_FLUSHES, count=1))
    durable = flushes_of(context, "disk1") + 2
    wait_until(lambda: flushes_of(context, "disk1") >= durable, Deadline.after(STRIKE_DEADLINE_S), "it to be flushed")
    pause(HEALED_S)
    places["careless-after-a-lie"] = "the stack"


def flushes_take_long(context: FaultContext, _places: Places) -> None:
    """Let every flush take longer than the time to the cut, so that it interrupts an operation of every worker."""
    for member in context.stack.array.spec.members:
        disks_of(context).set_disk_fault(member, slow_flushes(SLOW_FLUSH_MS))
    pause(WORK_S)


def disks_are_sound(context: FaultContext, _places: Places) -> None:
    """Let the disks be as they were."""
    disks_of(context).clear_disk_faults()


def clients_go_on(context: FaultContext, _places: Places) -> None:
    """Let the client work again that was kept from it."""
    context.lab.clients[1].succeed([*AGENT_SIGNAL, "-CONT"])


def block_rots(context: FaultContext, places: Places) -> None:
    """Let half a block change on one member, with nobody reading or writing it."""
    disks_of(context).clear_disk_faults()
    rotten = first_held(context, ROTS)
    disks_of(context).corrupt(rotten.serial, rotten.at + BLOCK // 2, BLOCK // 2)
    places["silent-corruption"] = rotten.is_("garbage")


def parity_is_lost(context: FaultContext, places: Places) -> None:
    """Let the last member of a RAID4 lose all that is written to its data, which is parity."""
    path = f"{place_of(context, 'disk3').directory}/offset"
    begin = int(context.lab.server.get(path)) * SECTOR
    disks_of(context).set_disk_fault("disk3", DiskFault(DiskFaultKind.LOST_WRITES, begin))
    places["parity-not-updated"] = context.stack.array.device


def stripe_is_torn(context: FaultContext, _places: Places) -> None:
    """Let the parity of blocks differ, as after writes that the cut fell into: a resync would write it anew.

    Of more than one: the client goes on with its file, and a write may well compute a block's parity anew.
    """
    for at in {block.at for member in held(context, "client1-0-fsync") for block in member}:
        disks_of(context).corrupt("disk3", at, BLOCK)


def bitmap_is_cleared(context: FaultContext, places: Places) -> None:
    """Let the bitmap on each member say that all stripes agree."""
    for serial in context.stack.array.spec.members:
        path = disk_path(serial)
        said = context.lab.server.succeed(["mdadm", "--examine", path])
        sectors = int(found_in(r"Internal Bitmap : (\d+) sectors from superblock", said, "bitmap"))
        bits = OFFSET + sectors * SECTOR + BITMAP_HEADER
        clear = ["dd", "if=/dev/zero", f"of={path}", f"bs={BLOCK - BITMAP_HEADER}", "count=1", f"seek={bits}"]
        context.lab.server.succeed([*clear, "oflag=seek_bytes", "conv=notrunc,fsync", "status=none"])
    places["bitmap-cleared"] = context.stack.array.device


def superblock_is_torn(context: FaultContext, places: Places) -> None:
    """Let half of what one member's superblock says of the array be rubbish."""
    disks_of(context).corrupt("disk1", OFFSET + 128, 128)
    places["torn-superblock"] = "disk1"


def serials_are_swapped(context: FaultContext, places: Places) -> None:
    """Let two drives be plugged into each other's places."""
    disks_of(context).swap("disk1", "disk2")
    places["serials-swapped"] = "disk1 carries the metadata of disk2"


# Of the server's kernel and its administrator.


def server_panics(context: FaultContext, _places: Places) -> None:
    """Let the server's kernel panic as soon as an array is assembled."""
    array, server = context.stack.array, context.lab.server
    assemble = array.activate

    def panic() -> None:
        assemble()
        server.put("1", "/proc/sys/kernel/panic_on_oops")
        server.run(["tee", "/proc/sysrq-trigger"], stdin="c", deadline_s=STRIKE_DEADLINE_S)

    setattr(array, "activate", panic)  # noqa: B010  mypy knows it as a method


def flushes_stop_above_the_members(context: FaultContext, places: Places) -> None:
    """Let the server believe of one member that it has no cache, so that it is never flushed.

    Never is what the checker can see: that some flush reached each member. Fewer than there should be it does not see.
    """
    disk = place_of(context, "disk1").disk
    context.lab.server.succeed(["tee", f"/sys/block/{disk}/queue/write_cache"], stdin="write through\n")
    places["flushes-swallowed"] = "disk1"


def export_is_made_async(context: FaultContext, places: Places) -> None:
    """Let the server answer before its disks have anything."""
    spec, path = context.stack.spec.export, context.stack.export.path
    options = ",".join("async" if word == "sync" else word for word in spec.options())
    context.lab.server.succeed(["exportfs", "-o", options, f"{spec.network}:{path}"])
    places["export-async"] = path


def member_falls_behind(context: FaultContext, _places: Places) -> None:
    """Let a member be taken out, and writing go on without it."""
    Upkeep.with_member(context.stack.array, "disk1").take_out("disk1")
    pause(WORK_S)


def stale_member_is_forced_in(context: FaultContext, places: Places) -> None:
    """Let the array be put together by force, of a member that had fallen behind and without one that had not."""
    array = context.stack.array
    members = [disk_path(serial) for serial in array.spec.members if serial != "disk2"]
    command = ["mdadm", "--assemble", "--force", "--run", array.device, *members]
    setattr(array, "activate", lambda: context.lab.server.succeed(command))  # noqa: B010  mypy knows it as a method
    places["stale-member"] = "disk1"


def array_is_created_anew(context: FaultContext, places: Places) -> None:
    """Let the array be created over its members instead of assembled: its content is all there."""
    array = context.stack.array

    def create() -> None:
        for command in create_commands(array.spec):
            context.lab.server.succeed(command)

    setattr(array, "activate", create)  # noqa: B010  mypy knows it as a method
    places["array-re-created"] = "disk0"


def first_directory_is_done(context: FaultContext, _places: Places) -> None:
    """Wait until a worker has begun its second directory: the first has been through every change."""
    path = f"{context.stack.filesystem.directory}/{LEDGER_DIRECTORY}/client1-3-metadata/d1"
    wait_until(
        lambda: context.lab.server.run(["test", "-d", path]).ok,
        Deadline.after(STRIKE_DEADLINE_S),
        "a second directory",
    )


def rename_is_undone(context: FaultContext, places: Places) -> None:
    """Let the last rename that a client was told of be undone, before anybody looks."""
    filesystem, server = context.stack.filesystem, context.lab.server
    mount, worker = filesystem.activate, "client1-3-metadata"

    def undo() -> None:
        mount()
        root = f"{filesystem.directory}/{LEDGER_DIRECTORY}/{worker}"
        names = server.succeed(["find", root, "-name", "[bc]", "-printf", "%P\n"]).split()
        # Where a later operation has removed `b` too, the rename had certainly been told of.
        done = {name[:-2] for name in names if name.endswith("/c")} - {name[:-2] for name in names if name[-1] == "b"}
        last = max(int(re.sub(r"\D", "", name)) for name in done)
        server.succeed(["mv", f"{root}/d{last}/c", f"{root}/d{last}/a"])
        places["rename-undone"] = f"{worker}: rename of {last} "

    setattr(filesystem, "activate", undo)  # noqa: B010  mypy knows it as a method
