"""The effective state of an array, from sysfs and the members' superblocks, and deviations that a fault may leave."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from pydantic import SerializeAsAny

from raidproof.core.errors import RequestError, RigError
from raidproof.core.layer import State, Value, found_in, whole_number
from raidproof.storage.array.level import LEVELS, Level, LevelName, Part
from raidproof.storage.array.mdadm import Md
from raidproof.storage.array.striping import Assembled, Striping
from raidproof.storage.array.superblock import JOURNAL, OFFSET, SIZE, Superblock, by_device
from raidproof.storage.member import serial_of

_FILES = (
    "level",
    "raid_disks",
    "chunk_size",
    "layout",
    "metadata_version",
    "component_size",
    "array_state",
    "degraded",
    "sync_action",
    "last_sync_action",
    "resync_start",
    "reshape_position",
    "mismatch_cnt",
    "consistency_policy",
    "bitmap/location",
    "bitmap/chunksize",
    "bitmap/backlog",
)
_MEMBER_FILES = ("slot", "state", "recovery_start", "bad_blocks")
_QUEUE_FILES = ("minimum_io_size", "optimal_io_size", "write_cache")
EVENT_MARGIN = 1
"""Largest number of events by which md accepts a member as current although its superblock is behind.

If a power cut interrupts an update of the superblocks, only some members have the new superblock (super_1_validate in
drivers/md/md.c).
"""
_WHOLE = re.compile(r"^ *Checksum : .*correct$", re.MULTILINE)


class Area(StrEnum):
    """What md stores in a byte of a member: a kind of metadata, data, or parity."""

    SUPERBLOCK = "md superblock"
    BITMAP = "write-intent bitmap"
    BAD_BLOCKS = "list of bad blocks"
    PPL = "partial parity log"
    JOURNAL = "array's journal"
    DATA = "data"
    P = "parity"
    Q = "Q"
    UNUSED = "not used by md"


_PARTS = {Part.DATA: Area.DATA, Part.P: Area.P, Part.Q: Area.Q, Part.UNUSED: Area.UNUSED}


@dataclass(frozen=True)
class Place:
    """What md stores in a byte of a member, and the position of the byte in the array."""

    area: Area
    role: int | None = None
    """The member's slot in the array; None for metadata."""
    stripe: int | None = None
    """Number of the stripe; None for metadata."""
    chunk: int | None = None
    """Number of the chunk in the array; None for parity and metadata."""
    array_offset: int | None = None
    """Offset of the byte in the array; None for parity and metadata."""

    def __str__(self) -> str:
        if self.stripe is None:
            return self.area.value
        text = f"stripe {self.stripe}, {self.area.value}"
        return text if self.array_offset is None else f"{text} chunk {self.chunk}, array byte {self.array_offset}"


def place_of(superblock: Superblock, offset: int) -> Place:
    """Return what md stores in the byte at an offset of the member that has this superblock.

    Raises:
        RequestError: the array's level or layout is not supported, or a reshape runs.
    """
    inside = offset - superblock.data_offset
    if 0 <= inside < superblock.data_size:
        if superblock.role == JOURNAL:
            return Place(Area.JOURNAL)
        if superblock.role >= superblock.raid_disks:
            return Place(Area.UNUSED)
        chunk = Striping.of(superblock).chunk(superblock.role, inside)
        if chunk.part is Part.UNUSED:
            return Place(Area.UNUSED, superblock.role)
        return Place(_PARTS[chunk.part], superblock.role, chunk.stripe, chunk.number, chunk.offset)
    areas = sorted(_metadata(superblock))
    held = [area for start, end, area in areas if start <= offset < end]
    return Place(held[-1] if held else Area.UNUSED)


def _metadata(superblock: Superblock) -> list[tuple[int, int, Area]]:
    areas = [(OFFSET, OFFSET + SIZE, Area.SUPERBLOCK)]
    if superblock.bad_blocks_offset is not None:
        start = superblock.bad_blocks_offset
        areas.append((start, start + superblock.bad_blocks_size, Area.BAD_BLOCKS))
    if superblock.ppl_offset is not None:
        areas.append((superblock.ppl_offset, superblock.ppl_offset + superblock.ppl_size, Area.PPL))
    if superblock.bitmap_offset is not None:
        # The superblock does not have the bitmap's length. Here the bitmap ends where the next area begins.
        begin = superblock.bitmap_offset
        ends = [start for start, _, _ in areas if start > begin]
        areas.append((begin, min([*ends, superblock.data_offset]), Area.BITMAP))
    return areas


def members_at(array: Assembled, offset: int) -> tuple[tuple[int, int], ...]:
    """Return for each copy of a byte of an array: (number of the member, offset on the member) in bytes.

    Copies on missing members are left out.

    Raises:
        RequestError: the offset is negative, or beyond the end of the array.
    """
    if not 0 <= offset < array.striping.capacity:
        raise RequestError(f"array offset {offset} is outside the array, which has {array.striping.capacity} bytes")
    return tuple(
        (array.members[role], array.data_offsets[role] + at)
        for role, at in array.striping.places(offset)
        if role in array.members
    )


class MemberState(State):
    """The effective state of a member, spare or journal in an md device, from sysfs."""

    device: str
    """The device path in the request."""
    kernel_name: str
    """The kernel's name of the device: ``vdb``."""
    slot: int | None
    """The slot in the array; None for a spare or journal."""
    state: tuple[str, ...]
    """The flags in the member's file ``state``: in_sync, spare, faulty, write_mostly, journal, ..."""
    recovery_start: int | None = None
    """Sectors of the member that md has rebuilt; None if the member needs no rebuild."""
    bad_blocks: str = ""
    """The last range in md's bad block list of the member: first sector and number of sectors; empty without any."""


class DeviceState(State):
    """The effective state of a device of an array. A kind of array adds its own fields in a subclass."""

    device: str
    level: LevelName
    raid_disks: int
    """Number of members; during a reshape, the number after the reshape."""
    chunk_size: int | None
    """Bytes; None for a mirror."""
    layout: str | None
    """Name of the layout in mdadm; None for a level without layouts."""
    degraded: int
    """Number of members that are missing or not yet rebuilt."""
    sync_action: str
    """The background work of md, in the words of md/sync_action: ``idle``, ``resync``, ``check``, ..."""
    resynced: bool
    """Whether no part of the device needs a resync."""
    mismatch_cnt: int
    """Sectors that the last check or repair found to differ."""
    minimum_io_size: int
    optimal_io_size: int
    write_cache: str
    members: tuple[MemberState, ...]
    checksummed: bool = False
    """Whether checksums show which copy is wrong if copies differ, so that no difference is allowed."""

    @property
    def raid(self) -> Level:
        """The device's level with its number of members and its layout."""
        return LEVELS[self.level].of(self.raid_disks, self.layout)

    @property
    def failed(self) -> bool:
        """Whether the device has lost more members than its level tolerates, as far as the kernel reports that."""
        return False

    @property
    def clean(self) -> bool:
        """Whether the device is online and idle, has all members, and is in sync."""
        return self.degraded == 0 and self.resynced and self.sync_action == "idle"


class MdState(DeviceState):
    """The effective state of an md device, from sysfs. Most fields have names of Documentation/admin-guide/md.rst."""

    metadata_version: str
    component_size: int
    """Bytes of each member that hold data."""
    array_state: str
    last_sync_action: str | None
    reshape_position: int | None = None
    """Sectors of the array that md has reshaped; None if no reshape runs."""
    consistency_policy: str
    bitmap: str | None
    """Content of the file bitmap/location; None without a bitmap."""
    bitmap_chunk: int | None = None
    """Bytes that one bit of the bitmap covers (bitmap/chunksize); None without a bitmap."""
    write_behind: int | None = None
    """Writes that write-mostly members may lack when md acknowledges (bitmap/backlog); None: without a bitmap."""

    def with_flag(self, flag: str) -> tuple[str, ...]:
        """Return the device paths, sorted, of the members that have a flag in their file ``state``."""
        return tuple(sorted(member.device for member in self.members if flag in member.state))

    @property
    def failed(self) -> bool:
        """Whether md reports the state ``broken``."""
        return self.array_state == "broken"

    @property
    def clean(self) -> bool:
        """Whether the md device is online and idle, has all members, and is in sync."""
        states = {"clean", "active", "active-idle", "write-pending", "read-auto"}
        return super().clean and self.reshape_position is None and self.array_state in states


class ArrayState(State):
    """The effective state of an array, which is one device, or several if the array is nested."""

    devices: tuple[SerializeAsAny[DeviceState], ...]
    """The devices; the last carries the file system."""

    @property
    def top(self) -> DeviceState:
        """The device that carries the file system."""
        return self.devices[-1]

    @property
    def clean(self) -> bool:
        """Whether every device is online and idle, has all members, and is in sync."""
        return all(device.clean for device in self.devices)


class MdArrayState(ArrayState):
    """The effective state of an array of md devices; the last is md0, which carries the file system."""

    devices: tuple[MdState, ...]

    @property
    def top(self) -> MdState:
        """The md device that carries the file system."""
        return self.devices[-1]


def state_paths(md: Md, names: Mapping[str, str]) -> list[str]:
    """Return the paths of the sysfs files with the state of an md device.

    ``names`` has the kernel's name of each member, spare and journal, by device path.
    """
    top = f"/sys/block/{md.name}"
    inputs = [f"{top}/md/dev-{names[path]}/{word}" for path in md.inputs for word in _MEMBER_FILES]
    return [
        *(f"{top}/md/{file}" for file in _FILES),
        *(f"{top}/queue/{file}" for file in _QUEUE_FILES),
        *inputs,
    ]


def parse_md(md: Md, names: Mapping[str, str], content: Mapping[str, str]) -> MdState:
    """Parse the state of an md device from the ``content`` of its sysfs files by path; ``names`` as in `state_paths`.

    Raises:
        RigError: a file is missing (the md device may be offline) or malformed, or the level is unknown.
    """
    top = f"/sys/block/{md.name}"

    def word(file: str) -> str:
        try:
            return content[f"{top}/md/{file}"]
        except KeyError:
            raise RigError(f"{md.device} is not online, or {top}/md/{file} cannot be read") from None

    def number(file: str) -> int:
        return whole_number(word(file), f"{md.name} {file}")

    def queue(file: str) -> str:
        try:
            return content[f"{top}/queue/{file}"]
        except KeyError:
            raise RigError(f"{md.device} is not online, or {top}/queue/{file} cannot be read") from None

    kind = next((kind for _, kind in LEVELS.items() if kind.kernel_name == word("level")), None)
    if kind is None:
        raise RigError(f"{md.device} has an unknown level: {word('level')!r}")
    redundant = kind.redundant
    bitmap = content.get(f"{top}/md/bitmap/location", "none")
    # During a reshape from 3 to 4 members, the file contains "4 (3)".
    raid_disks = whole_number(word("raid_disks").partition(" ")[0], f"{md.name} raid_disks")
    return MdState(
        device=md.device,
        level=kind.name,
        raid_disks=raid_disks,
        chunk_size=number("chunk_size") or None,
        # A RAID0 has no layout here: for one of mdadm 4.2, the kernel reports -1.
        layout=_layout_name(kind, raid_disks, number("layout")) if kind.default_layout else None,
        metadata_version=word("metadata_version"),
        component_size=number("component_size") * 1024,
        array_state=word("array_state"),
        degraded=number("degraded") if redundant else 0,
        sync_action=word("sync_action") if redundant else "idle",
        last_sync_action=content.get(f"{top}/md/last_sync_action"),
        resynced=word("resync_start") == "none" if redundant else True,
        reshape_position=_position(content.get(f"{top}/md/reshape_position")),
        mismatch_cnt=number("mismatch_cnt") if redundant else 0,
        consistency_policy=word("consistency_policy"),
        bitmap=None if bitmap == "none" else bitmap,
        bitmap_chunk=_position(content.get(f"{top}/md/bitmap/chunksize")) if bitmap != "none" else None,
        write_behind=_position(content.get(f"{top}/md/bitmap/backlog")) if bitmap != "none" else None,
        minimum_io_size=whole_number(queue("minimum_io_size"), "minimum_io_size"),
        optimal_io_size=whole_number(queue("optimal_io_size"), "optimal_io_size"),
        write_cache=queue("write_cache"),
        members=tuple(_members(md, names, content)),
    )


def _layout_name(kind: type[Level], members: int, number: int) -> str:
    known = {value: name for name, value in kind.layouts(members).items()}
    return known.get(number, str(number))


def _position(word: str | None) -> int | None:
    return int(word) if word is not None and word.isdecimal() else None


def _members(md: Md, names: Mapping[str, str], content: Mapping[str, str]) -> Iterable[MemberState]:
    for path in md.inputs:
        directory = f"/sys/block/{md.name}/md/dev-{names[path]}"
        slot, state = content.get(f"{directory}/slot"), content.get(f"{directory}/state")
        # A member that md has removed has no directory; the file `degraded` counts it.
        if slot is not None and state is not None:
            yield MemberState(
                device=path,
                kernel_name=names[path],
                slot=int(slot) if slot.isdecimal() else None,
                state=tuple(state.split(",")),
                recovery_start=_position(content.get(f"{directory}/recovery_start")),
                bad_blocks=content.get(f"{directory}/bad_blocks", ""),
            )


def found_of(state: MdState) -> dict[str, Value]:
    """Return the effective values of an md device by name, to compare with those of `array.asked_of`."""
    return {
        "level": state.level,
        "raid_disks": state.raid_disks,
        "chunk_size": state.chunk_size,
        "layout": state.layout,
        "consistency_policy": state.consistency_policy,
        "bitmap": "internal" if state.bitmap else "none",
        "bitmap_chunk": state.bitmap_chunk,
        "inputs": tuple(sorted(member.device for member in state.members)),
        "write_mostly": state.with_flag("write_mostly"),
        "write_behind": state.write_behind or 0,
        "failfast": state.with_flag("failfast"),
        "stripe_width": state.optimal_io_size,
    }


class Identity(State):
    """The superblock (version 1.2) of one member, as ``mdadm --examine`` reports it."""

    array_uuid: str
    created: str
    """Creation time of the array, as mdadm prints it."""
    device_uuid: str
    role: str
    """``Active device 2``, ``spare`` or ``Journal``."""
    events: int
    """Number of updates of the array's superblocks, up to this superblock."""
    state: str
    """``clean``, or ``active`` if a write may have been in flight."""
    recovery_offset: int | None = None
    """Sectors of the member that md has rebuilt; None if the member needs no rebuild."""
    reshape_position: int | None = None
    """KiB of the array that md has reshaped; None if no reshape runs."""

    @property
    def slot(self) -> int | None:
        """The member's slot in the array; None for a spare or a journal."""
        kind, _, number = self.role.rpartition(" ")
        return int(number) if kind == "Active device" else None


def examine_command(paths: Iterable[str]) -> list[str]:
    """Return the command that prints the superblocks of the devices with these paths."""
    return ["mdadm", "--examine", *paths]


def parse_examine(text: str) -> dict[str, Identity]:
    """Parse the output of ``mdadm --examine`` into the superblock of each device, by path.

    Devices without a superblock whose checksum is correct are left out.

    Raises:
        RigError: a line of a superblock is missing, so that the output is truncated or malformed.
    """
    found = by_device(text, r"^(/\S+):\n")
    return {path: _identity(part, path) for path, part in found.items() if _WHOLE.search(part)}


def stale(members: Mapping[str, Identity]) -> dict[str, int]:
    """Return the members whose superblock is behind the newest of their array: number of events by serial.

    A difference up to `EVENT_MARGIN` does not count.
    """
    newest: dict[str, int] = {}
    for one in members.values():
        newest[one.array_uuid] = max(one.events, newest.get(one.array_uuid, 0))
    behind = {serial: newest[one.array_uuid] - one.events for serial, one in members.items()}
    return {serial: events for serial, events in behind.items() if events > EVENT_MARGIN}


def _identity(text: str, path: str) -> Identity:
    def word(name: str) -> str:
        return found_in(rf"^ *{name} : (.+?) *$", text, f"{name} of {path}")

    def sectors(name: str) -> int | None:
        match = re.search(rf"^ *{name} : (\d+)", text, re.MULTILINE)
        return int(match[1]) if match else None

    return Identity(
        array_uuid=word("Array UUID"),
        created=word("Creation Time"),
        device_uuid=word("Device UUID"),
        role=word("Device Role"),
        events=int(word("Events")),
        state=word("State"),
        recovery_offset=sectors("Recovery Offset"),
        reshape_position=sectors("Reshape pos'n"),
    )


@dataclass(frozen=True)
class ExpectedDeviation:
    """The deviations from the request that a fault may leave in an array. Members are named by serial."""

    absent: frozenset[str] = frozenset()
    """Members that may be missing."""
    rebuilding: frozenset[str] = frozenset()
    """Members that may occupy their slot and not yet be rebuilt."""
    renewed: frozenset[str] = frozenset()
    """Members whose superblock a fault replaced, so that their Device UUID differs from the first one."""
    raid_disks: int | None = None
    """Number of members to which a fault reshapes the array; None if the array has the requested number."""
    starts_dirty: bool = False
    """Whether the array may be started dirty and degraded, which md and mdadm refuse by default.

    Without a partial parity log or a journal, md may then return garbage for an old block (write hole): the block lies
    on the missing member, in a stripe that was being written at the cut.
    """

    def plus(self, **more: frozenset[str]) -> Self:
        """Return a copy with further serials in the fields ``absent``, ``rebuilding`` or ``renewed``."""
        return replace(self, **{name: getattr(self, name) | serials for name, serials in more.items()})

    def minus(self, *serials: str) -> Self:
        """Return a copy without these serials in ``absent`` and ``rebuilding``; ``renewed`` keeps them."""
        whole = frozenset(serials)
        return replace(self, absent=self.absent - whole, rebuilding=self.rebuilding - whole)

    def accepted(self, md: Md, asked: Mapping[str, Value], found: Mapping[str, Value]) -> dict[str, Value]:
        """Return the values to require of an md device: the requested ones, changed by the allowed deviations.

        ``asked`` are the requested values (`array.asked_of`), ``found`` the effective ones (`found_of`).
        """
        changed: dict[str, Value] = {}
        left = self.left(md.inputs, _words(found["inputs"]))
        if len(left) < len(md.inputs):
            flagged = {name: _words(asked[name]) for name in ("inputs", "write_mostly", "failfast")}
            changed |= {name: tuple(path for path in paths if path in left) for name, paths in flagged.items()}
        if self.raid_disks is not None and md.number == 0:
            # During the reshape the queue reports the old or the new stripe width, so neither is required.
            changed |= {"raid_disks": self.raid_disks, "stripe_width": None}
        return {**asked, **changed}

    def left(self, asked: Sequence[str], found: Sequence[str]) -> tuple[str, ...]:
        """Return the device paths of members to require: all of ``asked`` unless the missing ones may be missing."""
        missing = set(asked) - set(found)
        allowed = {serial_of(path) for path in missing} <= self.absent
        return tuple(path for path in asked if path not in missing) if allowed else tuple(asked)

    def unexpected(self, found: DeviceState) -> list[str]:
        """Return the device paths of members that have a slot and are not in sync, although no deviation allows it."""
        expected = self.rebuilding | self.absent
        return [
            member.device
            for member in found.members
            if member.slot is not None and "in_sync" not in member.state and serial_of(member.device) not in expected
        ]


def _words(value: Value) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()
