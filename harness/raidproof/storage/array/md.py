"""Arrays of Linux md through mdadm: the request, and the array of a machine."""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Literal, Self

from pydantic import model_validator

from raidproof.core.command import CommandFailed
from raidproof.core.errors import NotEffective, RequestError, RigError
from raidproof.core.layer import HOMEHOST, Machine, one_of, power_of_two, read_files, require_effective
from raidproof.core.units import Size, format_size
from raidproof.core.waiting import Deadline, wait_until
from raidproof.guest.assembled import SYSFS_MD
from raidproof.storage.array.array import SYNC_DEADLINE_S, Array, Checking, Scrub, Serial, asked_of
from raidproof.storage.array.level import LEVELS, listed
from raidproof.storage.array.mdadm import (
    Md,
    assemble_command,
    check_command,
    create_commands,
    new_bitmap_commands,
    readwrite_command,
    repair_command,
    run_command,
    stop_command,
    zero_command,
)
from raidproof.storage.array.member_flags import FlaggedSpec
from raidproof.storage.array.state import (
    Identity,
    MdArrayState,
    MdState,
    examine_command,
    found_of,
    parse_examine,
    parse_md,
    state_paths,
)
from raidproof.storage.array.superblock import (
    LARGEST_CHUNK,
    LEAST_CHUNK,
    Bitmap,
    Read,
    Superblock,
    examine_bitmap_command,
    least_chunk,
    parse_bitmaps,
    small_chunk,
    superblock_of,
)
from raidproof.storage.array.upkeep import Upkeep, at_full_speed
from raidproof.storage.member import AnyMemberLayer, Assembly, disk_path, serial_of
from raidproof.storage.member.disk import DiskLayer

START_DIRTY = "/sys/module/md_mod/parameters/start_dirty_degraded"
"""The kernel parameter that lets md start a dirty and degraded array (Documentation/admin-guide/md.rst)."""
_POLL_S = 0.1


class MdSpec(FlaggedSpec):
    """The requested array of Linux md, created and assembled by mdadm."""

    forcing: ClassVar[frozenset[str]] = frozenset({"--run", f"--homehost={HOMEHOST}"})
    packages: ClassVar[tuple[str, ...]] = ("mdadm",)
    in_page: ClassVar[bool] = True
    keeps_out: ClassVar[bool] = True
    md_files: ClassVar[bool] = True
    moves: ClassVar[bool] = True
    damage: ClassVar[str] = r"md/raid.*(?:NOT corrected|unrecoverable)|bitmap (?:\(-|file super)|not importing!"
    lost: ClassVar[str] = r"md/raid\S*: (?:cannot start|starting) dirty degraded array"
    axes: ClassVar[Mapping[str, str]] = {"member_layer": "layer between a disk and md: disk, integrity, crypt"}

    type: Literal["md"] = "md"

    spares: tuple[Serial, ...] = ()
    """The spare disks."""
    journal: Serial | None = None
    """The disk with md's journal of a RAID4, 5 or 6 (md(4)); None without a journal."""
    layout: str | None = None
    """Name of the layout in mdadm; None requests mdadm's default."""
    legs: int | None = None
    """Number of inner arrays of a nested array.

    They are the mirrors of a 1+0, by default of two members each, or the stripes of a 0+1, by default two stripes.
    """
    bitmap: Literal["none", "internal"] | None = None
    """Whether the array, or each mirror of a nested array, has a write-intent bitmap; None: as `policy` requires."""
    bitmap_chunk: Size | None = None
    """Bytes that one bit of the bitmap covers: of each member, or for RAID10 of the array.

    None leaves the choice to mdadm (64 MiB, or more on large members), but on small members requests `small_chunk`.
    """
    consistency_policy: Literal["resync", "bitmap", "journal", "ppl"] | None = None
    """How md keeps copies and parity consistent after a crash (md(4)); None requests the default, see `policy`."""
    member_layer: AnyMemberLayer = DiskLayer()
    """The layer between each disk and the array: ``disk`` is none."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        self._refuse_spares()
        self._refuse_legs()
        if self.layout is not None:
            self._refuse_layout(self.layout)
        self._refuse_policy()
        if self.bitmap_chunk is not None:
            self._refuse_bitmap_chunk(self.bitmap_chunk)
        return self

    def _refuse_spares(self) -> None:
        if self.spares and not self.kind.redundant:
            raise RequestError(
                f"RAID{self.level} has no redundancy, so that md could not use a spare: {', '.join(self.spares)}"
            )
        if self.spares and self.kind.parts:
            raise RequestError(
                f"a spare of RAID{self.level} could replace members of one inner array only: {', '.join(self.spares)}",
                remedy="use RAID10, whose spares replace any member",
            )

    def _refuse_legs(self) -> None:
        if not self.kind.parts:
            if self.legs is not None:
                nested = listed(lambda kind: kind.parts is not None)
                raise RequestError(f"RAID{self.level} has no legs: only {nested} have")
            return
        if self.leg_count < 2 or len(self.members) % self.leg_count or len(self.members) // self.leg_count < 2:
            raise RequestError(
                f"RAID{self.level}: {len(self.members)} members do not make {self.leg_count} legs: at least two legs "
                "of equal size with two or more members each are needed"
            )

    def _refuse_layout(self, layout: str) -> None:
        if not (known := self.kind.layouts(len(self.members))):
            others = listed(lambda kind: kind.default_layout is not None)
            raise RequestError(f"layout {layout}: RAID{self.level} has no layout to choose, only RAID{others} have")
        one_of(f"layout of RAID{self.level} with {len(self.members)} members", layout, known)

    def _refuse_policy(self) -> None:
        policy, logs = self.consistency_policy, self.kind.logs
        if not self.kind.redundant and (policy or self.bitmap == "internal"):
            requested = f"consistency policy {policy}" if policy else "bitmap internal"
            raise RequestError(f"{requested}: RAID{self.level} has no redundancy that md could keep consistent")
        if policy == "ppl" and "ppl" not in logs:
            others = listed(lambda kind: "ppl" in kind.logs)
            raise RequestError(
                f"consistency policy ppl: a partial parity log exists for RAID{others} only, not for RAID{self.level}"
            )
        if (policy == "journal" or self.journal) and "journal" not in logs:
            others = listed(lambda kind: "journal" in kind.logs)
            raise RequestError(f"RAID{self.level} has no journal: a journal device is for RAID{others} only")
        if policy == "journal" and not self.journal:
            raise RequestError("consistency policy journal needs a journal device: request journal = a disk's serial")
        if self.journal and policy not in {None, "journal"}:
            raise RequestError(f"consistency policy {policy} makes no use of a journal device, {self.journal}")
        contradiction = "none" if policy == "bitmap" else "internal" if policy or self.journal else None
        if self.bitmap is not None and self.bitmap == contradiction:
            raise RequestError(f"consistency policy {policy or 'journal'} contradicts bitmap {self.bitmap}")

    def _refuse_bitmap_chunk(self, chunk: int) -> None:
        if self.policy != "bitmap":
            raise RequestError(
                f"bitmap chunk {format_size(chunk)}: the array has no bitmap (consistency policy {self.policy})"
            )
        if not power_of_two(chunk) or not LEAST_CHUNK <= chunk <= LARGEST_CHUNK:
            bounds = f"{format_size(LEAST_CHUNK)} to {format_size(LARGEST_CHUNK)}"
            raise RequestError(f"bitmap chunk {format_size(chunk)} is not a power of two from {bounds}")

    def refuse_size(self, member_size: int) -> None:
        """Check that the bitmap fits into the space that mdadm reserves on members of ``member_size`` bytes.

        Raises:
            RequestError: the bitmap chunk is so small that the bitmap would not fit.
        """
        if self.bitmap_chunk is None:
            return
        synced, member = self.raid.synced(member_size)
        if self.bitmap_chunk < (least := least_chunk(synced, member)):
            raise RequestError(
                f"bitmap chunk {format_size(self.bitmap_chunk)} is too small: on members of {format_size(member)} "
                f"mdadm has room for chunks of {format_size(least)} or more"
            )

    def for_members_of(self, size: int) -> Self:
        """Return the request with the bitmap's chunk for members of ``size`` bytes, if none is requested."""
        chosen = self.policy == "bitmap" and self.bitmap_chunk is None
        return self.model_copy(update={"bitmap_chunk": small_chunk(*self.raid.synced(size))} if chosen else {})

    @property
    def layout_name(self) -> str | None:
        """The name of the layout in mdadm; None for the level's default layout."""
        return self.layout

    @property
    def leg_count(self) -> int:
        """The number of inner arrays of a nested array; 1 if the array is not nested."""
        return self.kind.usual_legs(len(self.members)) if self.legs is None else self.legs

    @property
    def policy(self) -> str:
        """The consistency policy to request, with the default filled in, as the kernel names it.

        The default is ``bitmap``, also for small arrays: mdadm gives a bitmap to every redundant array of more than
        100 GB, and deployed arrays are larger.
        """
        if not self.kind.redundant:
            return "none"
        if self.journal:
            return "journal"
        return self.consistency_policy or ("resync" if self.bitmap == "none" else "bitmap")

    @property
    def disks(self) -> tuple[str, ...]:
        """The serials of members, spares and journal."""
        return (*self.members, *self.spares, *((self.journal,) if self.journal else ()))

    def duties(self) -> dict[str, str]:
        """Return the duty of each disk of the array, by serial: ``MEMBER-1``, ``SPARE-1``, ``JOURNAL-DISK``."""
        spares = {serial: f"SPARE-{number}" for number, serial in enumerate(self.spares, 1)}
        return {**super().duties(), **spares, **({self.journal: "JOURNAL-DISK"} if self.journal else {})}

    @property
    def device_paths(self) -> tuple[str, ...]:
        """The paths of the md devices, the legs first, md0 over the legs last."""
        return tuple(md.device for md in self.devices)

    def create_commands(self) -> list[list[str]]:
        """Return the commands that create all md devices of the array, in order."""
        return create_commands(self.devices, assume_clean=self.skips_resync)

    def changed_in_place(self, before: Self) -> list[list[str]] | None:
        """Return the mdadm commands that change the bitmap of an array; None if more than the bitmap differs."""
        if self._without_bitmap() != before._without_bitmap():
            return None
        pairs = zip(self.devices, before.devices, strict=True)
        return [command for pair in pairs for command in new_bitmap_commands(*pair)]

    def _without_bitmap(self) -> Self:
        policy = None if self.policy in {"bitmap", "resync"} else self.consistency_policy
        return self.model_copy(update={"bitmap": None, "bitmap_chunk": None, "consistency_policy": policy})

    def checking(
        self,
        *,
        starts_dirty: bool = False,
        without: Sequence[str] = (),
        log: str | None = None,  # noqa: ARG002
    ) -> Checking:
        """Return how a checker assembles and stops the md devices, without --force."""
        layer, disks = self.member_layer, [serial for serial in self.layered if serial not in without]
        lost = [layer.path(serial) for serial in without]
        commands = ((md, assemble_command(md, starts_dirty=starts_dirty, without=lost)) for md in self.devices)
        arrays = (Assembly(md.device, tuple(argv), SYSFS_MD, md.name) for md, argv in commands)
        closing = () if layer.direct else tuple(tuple(layer.close_command(serial)) for serial in disks)
        return Checking(
            assemble=(*layer.assembly(disks), *arrays),
            stop=(tuple(stop_command(reversed(self.device_paths))), *closing),
            parameters=layer.parameters,
            permitting=((START_DIRTY, "1"),) if starts_dirty else (),
        )

    @property
    def skips_resync(self) -> bool:
        """Whether the first resync is skipped: not if blank disks do not give equal members."""
        return self.assume_clean and self.member_layer.keeps_content

    @property
    def old_data(self) -> bool:
        """Whether the disks may hold old data in blocks that were never written."""
        return self.member_layer.direct

    @property
    def layered(self) -> tuple[str, ...]:
        """The serials of the disks below the member layer: all but the journal."""
        return (*self.members, *self.spares)

    @property
    def encrypts(self) -> bool:
        """Whether the member layer encrypts."""
        return self.member_layer.encrypts

    @property
    def unreadable(self) -> str | None:
        """The reason why the members' content cannot be read from the disks; None if it can."""
        return self.member_layer.opaque

    def caveats(self) -> tuple[str, ...]:
        """Return the differences from a deployed array that affect the meaning of results."""
        return (*super().caveats(), *self.member_layer.caveats())

    def superblock(self, read: Read) -> Superblock | None:
        """Return the superblock of format 1.2 of a member."""
        return superblock_of(read)

    def array(self, machine: Machine) -> "MdArray":
        """Return the object that controls the array on a machine."""
        return MdArray(self, machine)

    @property
    def needs_raid6(self) -> bool:
        """Whether one of the md devices has a second parity."""
        return any(LEVELS[md.level].parity > 1 for md in self.devices)

    @property
    def devices(self) -> tuple[Md, ...]:
        """The md devices of the array in the order of their creation: the legs first, md0 over the legs last."""
        members = tuple(map(self.member_layer.path, self.members))
        if self.kind.parts is None:
            top = Md(
                number=0,
                level=self.level,
                members=members,
                spares=tuple(map(self.member_layer.path, self.spares)),
                journal=disk_path(self.journal) if self.journal else None,
                chunk_size=self.chunk_size,
                layout=self.layout or self.kind.default_layout,
                consistency_policy=self.policy,
                bitmap_chunk=self.bitmap_chunk,
                **self.flags(members),
            )
            return (top,)
        inner, outer = self.kind.parts
        size = len(members) // self.leg_count
        legs = tuple(
            self._part(number + 1, inner, members[number * size : (number + 1) * size])
            for number in range(self.leg_count)
        )
        return (*legs, self._part(0, outer, tuple(leg.device for leg in legs)))

    def _part(self, number: int, level: str, members: tuple[str, ...]) -> Md:
        """Return the requested md device for one leg of a nested array, or for the md device over the legs."""
        kind = LEVELS[level]
        return Md(
            number=number,
            level=level,
            members=members,
            chunk_size=self.chunk_size if kind.chunked else None,
            consistency_policy=self.policy if kind.redundant else "none",
            bitmap_chunk=self.bitmap_chunk if kind.redundant else None,
        )


class MdArray(Array):
    """The md array of one machine, with the commands that create, assemble, check, stop and erase it."""

    spec: MdSpec

    def create(self) -> None:
        """Create and start the array, and verify that the effective state is as requested.

        Raises:
            NotEffective: an effective value differs from the requested one.
        """
        self._require_kernel()
        self.spec.member_layer.create(self.machine, self.spec.layered)
        paths = map(self.spec.member_layer.path, self.spec.members)
        sizes = self.machine.succeed(["blockdev", "--getsize64", *paths])
        self.spec = self.spec.for_members_of(min(map(int, sizes.split())))
        for command in self.spec.create_commands():
            self.machine.succeed(command)
        self.require_effective()

    def activate(self) -> MdArrayState:
        """Assemble the existing array from the members that are found on its disks, as at the boot of a server.

        Nothing is forced. An array that lacks a member for the first time is started with the others.

        Raises:
            CommandFailed: mdadm or md does not start the array.
            NotEffective: an effective value differs from the requested one, or a member is not in sync although no
                expected deviation allows it.
        """
        self._require_kernel()
        if dirty := self.expected_deviation.starts_dirty:
            self.machine.put("1\n", START_DIRTY)
        self.spec.member_layer.activate(self.machine, self.spec.layered)
        for md in self.spec.devices:
            self._assemble(md, dirty=dirty)
        state = self.require_effective()
        if behind := [path for found in state.devices for path in self.expected_deviation.unexpected(found)]:
            raise NotEffective(
                f"{self.device} is assembled, but these members are not in sync: {', '.join(map(serial_of, behind))}"
            )
        return state

    def _assemble(self, md: Md, *, dirty: bool) -> None:
        """Assemble an md device from the members that can be read, as udev does at boot: mdadm aborts at any other."""
        there = self._superblocks(md.inputs)
        assembled = self.machine.run(assemble_command(md.only(there) if there else md, starts_dirty=dirty))
        if not assembled.ok and not self.machine.run(run_command(md)).ok:
            raise CommandFailed(assembled)

    def deactivate(self) -> None:
        """Stop the array."""
        self.machine.succeed(stop_command(md.device for md in reversed(self.spec.devices)))
        self.spec.member_layer.deactivate(self.machine, self.spec.layered)

    def destroy(self) -> None:
        """Stop the array, and erase the superblocks from its members."""
        *legs, top = self.spec.devices
        self.machine.succeed(stop_command([top.device]))
        # Superblocks of md0 lie in the legs, which must be online so that mdadm can erase these superblocks.
        self.machine.succeed(zero_command(top.inputs))
        if legs:
            self.machine.succeed(stop_command(leg.device for leg in legs))
            self.machine.succeed(zero_command(path for leg in legs for path in leg.inputs))
        self.spec.member_layer.destroy(self.machine, self.spec.layered)

    def state(self) -> MdArrayState:
        """Read the effective state of the array from sysfs.

        Raises:
            RigError: the array is not online.
        """
        return self._state(self._names())

    def _state(self, names: Mapping[str, str]) -> MdArrayState:
        paths = [path for md in self.spec.devices for path in state_paths(md, names)]
        content = read_files(self.machine, paths)
        return MdArrayState(devices=tuple(parse_md(md, names, content) for md in self.spec.devices))

    def require_effective(self) -> MdArrayState:
        """Verify that the effective state of the array is as requested, or deviates as expected, and return it.

        Raises:
            NotEffective: an effective value differs from the requested one, and no expected deviation allows it.
        """
        state = self.state()
        for md, found in zip(self.spec.devices, state.devices, strict=True):
            values = found_of(found)
            require_effective(md.device, self.expected_deviation.accepted(md, asked_of(md, self.spec), values), values)
        return state

    def identities(self, *, online: bool = False) -> dict[str, Identity]:
        """Read the superblock of each disk of the array, by serial. Disks without a superblock are left out.

        With ``online``, the result also has the superblocks on the legs of a nested array (its inner arrays), by path.
        """
        paths = [path for md in self.spec.devices for path in md.inputs if online or serial_of(path) != path]
        self.spec.member_layer.open_readable(self.machine, self.spec.layered)
        return {serial_of(path): one for path, one in self._superblocks(paths).items()}

    def _superblocks(self, paths: Sequence[str]) -> dict[str, Identity]:
        # mdadm ends with status 1 if a device has no superblock. The callers judge that, so the status is ignored.
        return parse_examine(self.machine.run(examine_command(paths)).stdout)

    def bitmaps(self) -> dict[str, Bitmap]:
        """Read the write-intent bitmap on each disk of the array, by serial. The array may be offline."""
        disks = [path for md in self.spec.devices if md.consistency_policy == "bitmap" for path in md.inputs]
        paths = [path for path in disks if serial_of(path) != path]
        self.spec.member_layer.open_readable(self.machine, self.spec.layered)
        # One member a call: mdadm crashes if one of several cannot be read (docs/findings.md).
        examined = "".join(self.machine.run(examine_bitmap_command([path])).stdout for path in paths)
        return {serial_of(path): one for path, one in parse_bitmaps(examined).items()}

    def wait_clean(self, deadline_s: float = SYNC_DEADLINE_S) -> MdArrayState:
        """Wait until every md device is idle, has all members, and is in sync; return the state of the array.

        Raises:
            DeadlineExceeded: the rebuild or resync takes longer than ``deadline_s`` seconds.
        """
        state = self._leave_read_auto()
        return self._wait(lambda device: device.clean, Deadline.after(deadline_s), "to be in sync", state)

    def scrub(self, deadline_s: float = SYNC_DEADLINE_S) -> Scrub:
        """Let md check the copies or parity of the whole array at full speed, and wait for the end.

        A resync that is pending after a power cut runs first, and its corrections are counted separately. A check
        before the resync would do harm: md marks what the check reads as resynced, although the check corrects nothing
        (md_do_sync in drivers/md/md.c; observed with Linux 6.12 and 7.2). If the check finds differences, a repair and
        a second check follow.

        Raises:
            DeadlineExceeded: resync, check and repair together take longer than ``deadline_s`` seconds.
            RigError: md did not run the check.
        """
        with at_full_speed(self.machine, [md.name for md in self.spec.devices]):
            return self._scrub(Deadline.after(deadline_s))

    def _scrub(self, deadline: Deadline) -> Scrub:
        state = self._wait(_settled, deadline, "to end its resync", self._leave_read_auto())
        unchecked = {
            found.device: reason
            for md, found in zip(self.spec.devices, state.devices, strict=True)
            if (reason := why_unchecked(md, found))
        }
        checked = [md.device for md in self.spec.devices if md.device not in unchecked]
        if not checked:
            return Scrub(mismatch_cnt={}, unchecked=unchecked)
        resynced = {
            found.device: found.mismatch_cnt
            for found in state.devices
            if found.device in checked and found.last_sync_action == "resync"
        }
        counted = self._count(checked, deadline)
        repaired: dict[str, int] = {}
        if differing := [device for device, count in counted.items() if count]:
            self.machine.succeed(repair_command(differing))
            self._wait(_settled, deadline, "to end its repair")
            repaired = self._count(differing, deadline)
        return Scrub(mismatch_cnt=counted, unchecked=unchecked, resynced=resynced, repaired=repaired)

    def _count(self, devices: list[str], deadline: Deadline) -> dict[str, int]:
        """Let md check the md devices with these paths; return the 512-byte sectors that differ, by path."""
        self.machine.succeed(check_command(devices))
        ended = self._wait(_settled, deadline, "to end its check")
        counted = [found for found in ended.devices if found.device in devices]
        if other := [f"{one.device}: {one.last_sync_action}" for one in counted if one.last_sync_action != "check"]:
            raise RigError(f"md did not run the requested check; last_sync_action is not 'check': {', '.join(other)}")
        return {found.device: found.mismatch_cnt for found in counted}

    def _leave_read_auto(self) -> MdArrayState | None:
        """Make read-auto md devices read-write. Return the array's state, or None if an md device was read-auto."""
        # After assembly an md device is read-auto until the first write, and until then does not resync.
        state = self.state()
        waiting = [device.device for device in state.devices if device.array_state == "read-auto"]
        if not waiting:
            return state
        self.machine.succeed(readwrite_command(waiting))
        return None

    def upkeep(self, serial: str | None = None) -> Upkeep:
        """Return the object that maintains the md device with this member; None: the one with the file system.

        Raises:
            RequestError: no md device has this member, or the md device has no redundancy.
        """
        return self._upkeep(serial) if self.spec.member_layer.direct else super().upkeep(serial)

    def _upkeep(self, serial: str | None) -> Upkeep:
        path = self.spec.member_layer.path
        if serial is None:
            return Upkeep(self.machine, self.spec.devices[-1], path).require_redundancy()
        for md in self.spec.devices:
            if path(serial) in md.members:
                return Upkeep(self.machine, md, path).require_redundancy()
        raise RequestError(f"{serial} is no member of the array; its members: {', '.join(self.spec.members)}")

    def take_out(self, serial: str) -> None:
        """Declare the member faulty and remove it. A device of the member layer stays open.

        Raises:
            RequestError: no md device has this member, the md device has no redundancy, or a spare would replace it.
        """
        self._upkeep(serial).require_no_spare(serial).take_out(serial)

    def take_back(self, serial: str) -> None:
        """Add the member again: with a bitmap, md rebuilds only regions written meanwhile, else all of the member."""
        upkeep = self._upkeep(serial)
        if upkeep.md.consistency_policy == "bitmap":
            upkeep.take_back(serial)
        else:
            upkeep.put_in(serial)
            self.expected_deviation = self.expected_deviation.plus(renewed=frozenset({serial}))

    def _wait(
        self, condition: Callable[[MdState], bool], deadline: Deadline, what: str, state: MdArrayState | None = None
    ) -> MdArrayState:
        """Wait until every md device is idle and meets a condition; ``state`` is the array's state if already read.

        ``what`` completes the message "waiting for /dev/md0 ...".
        """
        if state is not None and all(map(condition, state.devices)):
            return state
        # Once is enough: the kernel's names do not change during the wait.
        names = self._names()
        actions = [f"/sys/block/{md.name}/md/sync_action" for md in self.spec.devices]

        def reached() -> MdArrayState | None:
            # While md works, read one file of each md device only: reading dozens of files slows the work down.
            if any(action != "idle" for action in self.machine.read_files(actions).values()):
                return None
            found = self._state(names)
            return found if all(map(condition, found.devices)) else None

        return wait_until(reached, deadline, f"{self.device} {what}", _POLL_S)

    def _names(self) -> dict[str, str]:
        """Return the kernel's name of each member, spare and journal by path. The names may change at each boot."""
        journal = [disk_path(self.spec.journal)] if self.spec.journal else []
        resolved = self.machine.resolve(journal) if journal else []
        plain = {path: real.removeprefix("/dev/") for path, real in zip(journal, resolved, strict=True)}
        members = self.spec.member_layer.kernel_names(self.machine, self.spec.layered)
        legs = {md.device: md.name for md in self.spec.devices[:-1]}
        return {**members, **plain, **legs}


def _settled(device: MdState) -> bool:
    """Return whether no background work of an md device runs or is pending. A member may be missing."""
    return device.sync_action == "idle" and device.resynced and device.reshape_position is None


def why_unchecked(md: Md, found: MdState) -> str | None:
    """Return the reason why md cannot check an md device; None if md can."""
    if not LEVELS[md.level].redundant:
        return f"RAID{md.level} has no copies or parity to compare"
    if found.degraded:
        return f"degraded: {found.degraded} members are missing or not rebuilt, so that md cannot compare"
    return None
