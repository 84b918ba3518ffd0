"""What the kernel says of an array: read from sysfs, whose files are the interface that md documents."""

from collections.abc import Iterable, Mapping

from raidproof.core.errors import RigError
from raidproof.core.layer import State, Value, whole_number
from raidproof.storage.array.spec import ArraySpec, Level, Md, layouts

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
_LEVELS = {f"raid{level}": level for level in Level if level.isdecimal()}


class MemberState(State):
    """One device in an array."""

    device: str
    """The path by which it was asked for."""
    kernel_name: str
    slot: int | None
    """Its role among the members; None for a spare or journal."""
    state: tuple[str, ...]
    """The kernel's words: in_sync, spare, faulty, write_mostly, journal, ..."""
    recovery_start: int | None = None
    """Sectors up to which it is rebuilt; None for one that needs no rebuild."""
    bad_blocks: str = ""
    """What md knows that it cannot read here: first sector and how many, of the last range if there are several."""


class MdState(State):
    """One md device, as found."""

    device: str
    level: Level
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
    """Whether no part of it waits for a resync."""
    reshape_position: int | None = None
    """Sectors of the array that have their new shape; None if it is not being reshaped."""
    mismatch_cnt: int
    """Sectors that the last check or repair found to differ."""
    consistency_policy: str
    bitmap: str | None
    """Where the bitmap lies, or None."""
    bitmap_chunk: int | None = None
    """Bytes that one of its bits stands for (bitmap/chunksize in Documentation/admin-guide/md.rst)."""
    minimum_io_size: int
    optimal_io_size: int
    write_cache: str
    members: tuple[MemberState, ...]

    @property
    def clean(self) -> bool:
        """Whether it is online, complete and in sync."""
        return (
            self.degraded == 0
            and self.resynced
            and self.reshape_position is None
            and self.sync_action == "idle"
            and self.array_state in {"clean", "active", "active-idle", "write-pending", "read-auto"}
        )


class ArrayState(State):
    """An array as found: the md devices that make it, md0 last."""

    devices: tuple[MdState, ...]

    @property
    def top(self) -> MdState:
        """The md device that carries the filesystem."""
        return self.devices[-1]

    @property
    def clean(self) -> bool:
        """Whether every part is complete and in sync."""
        return all(device.clean for device in self.devices)


def state_paths(md: Md, names: Mapping[str, str]) -> list[str]:
    """The files that say all about an md device; ``names`` has the kernel's name of each of its inputs."""
    top = f"/sys/block/{md.name}"
    inputs = [f"{top}/md/dev-{names[path]}/{word}" for path in md.inputs for word in _MEMBER_FILES]
    return [
        *(f"{top}/md/{file}" for file in _FILES),
        *(f"{top}/queue/{file}" for file in _QUEUE_FILES),
        *inputs,
    ]


def parse_md(md: Md, names: Mapping[str, str], content: Mapping[str, str]) -> MdState:
    """Read one md device from the content of its files.

    Raises:
        RigError: something is missing or makes no sense.
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

    level = _LEVELS.get(word("level"))
    if level is None:
        raise RigError(f"{md.name}: unknown level {word('level')!r}")
    redundant = level is not Level.RAID0
    bitmap = content.get(f"{top}/md/bitmap/location", "none")
    # "4 (3)" while it is reshaped from 3 to 4.
    raid_disks = whole_number(word("raid_disks").partition(" ")[0], f"{md.name} raid_disks")
    return MdState(
        device=md.device,
        level=level,
        raid_disks=raid_disks,
        chunk_size=number("chunk_size") or None,
        # mdadm 4.2 gives RAID0 none, and the kernel then says -1.
        layout=_layout_name(level, raid_disks, number("layout")) if layouts(level, raid_disks) else None,
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


def _layout_name(level: Level, members: int, number: int) -> str:
    known = {value: name for name, value in layouts(level, members).items()}
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
    """What was asked of one md device, in the words of its state."""
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
    """What was found of one md device, in the words of ``asked_of``."""
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
