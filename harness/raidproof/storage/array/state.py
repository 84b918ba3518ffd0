"""The state of an array, from sysfs and from its members' metadata, and the deviations that a fault may leave."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from raidproof.core.errors import RequestError, RigError
from raidproof.core.layer import State, Value, found_in, whole_number
from raidproof.storage.array.level import LEVELS, Level, Part
from raidproof.storage.array.spec import ArraySpec, LevelName, Md, disk_path
from raidproof.storage.array.striping import Assembled, Striping
from raidproof.storage.array.superblock import JOURNAL, OFFSET, SIZE, Superblock, by_device

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
)
_MEMBER_FILES = ("slot", "state", "recovery_start", "bad_blocks")
_QUEUE_FILES = ("minimum_io_size", "optimal_io_size", "write_cache")
# When md assembles an array itself, it accepts a member that is one event behind as current: if the cut fell into a
# superblock update, some members have the new superblock (super_1_validate in drivers/md/md.c).
EVENT_MARGIN = 1
_WHOLE = re.compile(r"^ *Checksum : .*correct$", re.MULTILINE)


class Area(StrEnum):
    """What md stores at a place of a member."""

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
    """The meaning of a byte of a member."""

    area: Area
    role: int | None = None
    """The member's slot in the array."""
    stripe: int | None = None
    chunk: int | None = None
    """The chunk of the array's data that contains the byte; None for parity and metadata."""
    array_offset: int | None = None
    """Offset of the byte in the array; None for parity and metadata."""

    def __str__(self) -> str:
        if self.stripe is None:
            return self.area.value
        said = f"stripe {self.stripe}, {self.area.value}"
        return said if self.array_offset is None else f"{said} chunk {self.chunk}, array byte {self.array_offset}"


def place_of(superblock: Superblock, offset: int) -> Place:
    """Return the meaning of a byte of the member with this superblock.

    Raises:
        RequestError: the array's level or layout is not supported.
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
        # Only the bitmap itself contains its length; here the next area ends it.
        begin = superblock.bitmap_offset
        ends = [start for start, _, _ in areas if start > begin]
        areas.append((begin, min([*ends, superblock.data_offset]), Area.BITMAP))
    return areas


def members_at(array: Assembled, offset: int) -> tuple[tuple[int, int], ...]:
    """Return (member, offset on it) of each copy of a byte of an array, without missing members.

    Raises:
        RequestError: the offset is beyond the end of the array.
    """
    if not 0 <= offset < array.striping.capacity:
        raise RequestError(f"the array has {array.striping.capacity} bytes, none at {offset}")
    return tuple(
        (array.members[role], array.data_offsets[role] + at)
        for role, at in array.striping.places(offset)
        if role in array.members
    )


class MemberState(State):
    """One device in an array."""

    device: str
    """The path by which the device was requested."""
    kernel_name: str
    slot: int | None
    """Its role among the members; None for a spare or journal."""
    state: tuple[str, ...]
    """The kernel's terms: in_sync, spare, faulty, write_mostly, journal, ..."""
    recovery_start: int | None = None
    """Sectors up to which it is rebuilt; None if it needs no rebuild."""
    bad_blocks: str = ""
    """Bad blocks that md has recorded: first sector and number of sectors, of the last range if there are several."""


class MdState(State):
    """The effective state of one md device."""

    device: str
    level: LevelName
    raid_disks: int
    chunk_size: int | None
    layout: str | None
    metadata_version: str
    component_size: int
    """Bytes of each member that hold data."""
    array_state: str
    degraded: int
    """Members that are missing or not yet rebuilt."""
    sync_action: str
    last_sync_action: str | None
    resynced: bool
    """Whether no part waits for a resync."""
    reshape_position: int | None = None
    """Sectors of the array that have their new shape; None if no reshape runs."""
    mismatch_cnt: int
    """Sectors that the last check or repair found to differ."""
    consistency_policy: str
    bitmap: str | None
    """Location of the bitmap, or None."""
    bitmap_chunk: int | None = None
    """Bytes that one bit of the bitmap covers (bitmap/chunksize in Documentation/admin-guide/md.rst)."""
    minimum_io_size: int
    optimal_io_size: int
    write_cache: str
    members: tuple[MemberState, ...]

    @property
    def raid(self) -> Level:
        """The level with these members and this layout."""
        return LEVELS[self.level].of(self.raid_disks, self.layout)

    @property
    def clean(self) -> bool:
        """Whether the md device is online, complete and in sync."""
        return (
            self.degraded == 0
            and self.resynced
            and self.reshape_position is None
            and self.sync_action == "idle"
            and self.array_state in {"clean", "active", "active-idle", "write-pending", "read-auto"}
        )


class ArrayState(State):
    """The effective state of an array: its md devices, md0 last."""

    devices: tuple[MdState, ...]

    @property
    def top(self) -> MdState:
        """The md device with the filesystem."""
        return self.devices[-1]

    @property
    def clean(self) -> bool:
        """Whether every part is complete and in sync."""
        return all(device.clean for device in self.devices)


def state_paths(md: Md, names: Mapping[str, str]) -> list[str]:
    """Return the files with the state of an md device; ``names`` has the kernel's name of each of its inputs."""
    top = f"/sys/block/{md.name}"
    inputs = [f"{top}/md/dev-{names[path]}/{word}" for path in md.inputs for word in _MEMBER_FILES]
    return [
        *(f"{top}/md/{file}" for file in _FILES),
        *(f"{top}/queue/{file}" for file in _QUEUE_FILES),
        *inputs,
    ]


def parse_md(md: Md, names: Mapping[str, str], content: Mapping[str, str]) -> MdState:
    """Parse one md device from the content of its files.

    Raises:
        RigError: a value is missing or invalid.
    """
    top = f"/sys/block/{md.name}"

    def word(file: str) -> str:
        try:
            return content[f"{top}/md/{file}"]
        except KeyError:
            raise RigError(f"{md.device} is not online, or its {file} could not be read") from None

    def number(file: str) -> int:
        return whole_number(word(file), f"{md.name} {file}")

    def queue(file: str) -> str:
        try:
            return content[f"{top}/queue/{file}"]
        except KeyError:
            raise RigError(f"{md.device} has no queue/{file}") from None

    kind = next((kind for _, kind in LEVELS.items() if kind.kernel_name == word("level")), None)
    if kind is None:
        raise RigError(f"{md.name}: unknown level {word('level')!r}")
    redundant = kind.redundant
    bitmap = content.get(f"{top}/md/bitmap/location", "none")
    # "4 (3)" during a reshape from 3 to 4.
    raid_disks = whole_number(word("raid_disks").partition(" ")[0], f"{md.name} raid_disks")
    return MdState(
        device=md.device,
        level=kind.name,
        raid_disks=raid_disks,
        chunk_size=number("chunk_size") or None,
        # mdadm 4.2 gives RAID0 no layout, and the kernel then reports -1.
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
        # A member that fell out of the array has no directory: `degraded` counts it.
        if slot is not None and state is not None:
            yield MemberState(
                device=path,
                kernel_name=names[path],
                slot=int(slot) if slot.isdecimal() else None,
                state=tuple(state.split(",")),
                recovery_start=_position(content.get(f"{directory}/recovery_start")),
                bad_blocks=content.get(f"{directory}/bad_blocks", ""),
            )


def asked_of(md: Md, spec: ArraySpec) -> dict[str, Value]:
    """Return what was requested of one md device, under the names of its state."""
    geometry = spec.geometry if md.number == 0 else None
    return {
        "level": md.level,
        "raid_disks": len(md.members),
        "chunk_size": md.chunk_size,
        "layout": md.layout,
        "consistency_policy": md.consistency_policy,
        "bitmap": "internal" if md.consistency_policy == "bitmap" else "none",
        "bitmap_chunk": md.bitmap_chunk,
        "inputs": tuple(sorted(md.inputs)),
        "stripe_width": geometry.stripe_unit * geometry.data_disks if geometry else None,
    }


def found_of(state: MdState) -> dict[str, Value]:
    """Return the effective values of one md device, under the names of ``asked_of``."""
    return {
        "level": state.level,
        "raid_disks": state.raid_disks,
        "chunk_size": state.chunk_size,
        "layout": state.layout,
        "consistency_policy": state.consistency_policy,
        "bitmap": "internal" if state.bitmap else "none",
        "bitmap_chunk": state.bitmap_chunk,
        "inputs": tuple(sorted(member.device for member in state.members)),
        "stripe_width": state.optimal_io_size,
    }


class Identity(State):
    """The metadata of one member (version 1.2)."""

    array_uuid: str
    created: str
    """As mdadm prints it."""
    device_uuid: str
    role: str
    """``Active device 2``, ``spare``, ``Journal``."""
    events: int
    state: str
    """``clean`` or ``active``: whether a write may have been in flight."""
    recovery_offset: int | None = None
    """Sectors up to which the member is rebuilt; None if it needs no rebuild."""
    reshape_position: int | None = None
    """KiB of the array that have their new shape; None if no reshape runs."""

    @property
    def slot(self) -> int | None:
        """The member's slot, or None for a spare or a journal."""
        word, _, number = self.role.rpartition(" ")
        return int(number) if word == "Active device" else None


def examine_command(paths: Iterable[str]) -> list[str]:
    """Return the command that reads the metadata of members."""
    return ["mdadm", "--examine", *paths]


def parse_examine(text: str) -> dict[str, Identity]:
    """Parse ``mdadm --examine`` of several devices, by their paths; leave out devices without complete metadata.

    Raises:
        RigError: a line is missing, or the output was cut off.
    """
    found = by_device(text, r"^(/\S+):\n")
    return {path: _identity(part, path) for path, part in found.items() if _WHOLE.search(part)}


def serial_of(path: str) -> str:
    """Return the serial of a member disk; for a leg of a nested array, its path."""
    return path.removeprefix(disk_path(""))


def stale(members: Mapping[str, Identity]) -> dict[str, int]:
    """Return the members whose metadata is behind that of their array, and by how many events."""
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
    """The allowed deviations of an array that is assembled again. Members are named by their serials."""

    absent: frozenset[str] = frozenset()
    """Members that may be missing."""
    rebuilding: frozenset[str] = frozenset()
    """Members that may be in their slot and not yet rebuilt."""
    renewed: frozenset[str] = frozenset()
    """Members whose metadata was rewritten on purpose, so that their Device UUID differs."""
    raid_disks: int | None = None
    """Number of members that the array has, or is being reshaped to, instead of the requested number."""
    starts_dirty: bool = False
    """Permit a start of the dirty and degraded array, which md and mdadm refuse.

    Unless something closes the write hole, a stripe that was being written may then return garbage for a block that
    was not written.
    """

    def plus(self, **more: frozenset[str]) -> Self:
        """Return this deviation with further serials."""
        return replace(self, **{word: getattr(self, word) | serials for word, serials in more.items()})

    def minus(self, *serials: str) -> Self:
        """Return this deviation with these members expected whole again; ``renewed`` stays."""
        gone = frozenset(serials)
        return replace(self, absent=self.absent - gone, rebuilding=self.rebuilding - gone)

    def accepted(self, md: Md, asked: Mapping[str, Value], found: Mapping[str, Value]) -> dict[str, Value]:
        """Return what to require of one md device, given its effective state."""
        changed: dict[str, Value] = {}
        missing = set(md.inputs) - set(_words(found["inputs"]))
        if missing and missing <= {disk_path(serial) for serial in self.absent}:
            changed["inputs"] = tuple(sorted(set(md.inputs) - missing))
        if self.raid_disks is not None and md.number == 0:
            # Some whole stripes, whose size the queue reports, have the old width and some the new.
            changed |= {"raid_disks": self.raid_disks, "stripe_width": None}
        return {**asked, **changed}

    def unexpected(self, found: MdState) -> list[str]:
        """Return the members that are in their slot but unexpectedly not in sync."""
        expected = {disk_path(serial) for serial in self.rebuilding | self.absent}
        return [
            member.device
            for member in found.members
            if member.slot is not None and "in_sync" not in member.state and member.device not in expected
        ]


def _words(value: Value) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()
