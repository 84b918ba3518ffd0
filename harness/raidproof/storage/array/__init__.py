"""The RAID array: its request, its effective state, and the bytes on its members. Each kind of array is one file."""

from raidproof.storage.array.array import SYNC_DEADLINE_S, Array, Scrub, waits_for_flush
from raidproof.storage.array.level import LEVELS, Level
from raidproof.storage.array.md import MdArray, MdSpec
from raidproof.storage.array.mdadm import (
    Md,
    assemble_command,
    bitmap_command,
    check_command,
    create_command,
    create_commands,
    readwrite_command,
    stop_command,
    zero_command,
)
from raidproof.storage.array.spec import ARRAYS, AnyArray, ArraySpec, Geometry, capacity, holders_of_old_data
from raidproof.storage.array.state import (
    EVENT_MARGIN,
    ArrayState,
    DeviceState,
    ExpectedDeviation,
    Identity,
    MdArrayState,
    MdState,
    MemberState,
    examine_command,
    parse_examine,
    parse_md,
    stale,
)
from raidproof.storage.array.superblock import Bitmap, examine_bitmap_command, parse_bitmaps
from raidproof.storage.array.upkeep import Upkeep
from raidproof.storage.member import disk_path, serial_of

__all__ = [
    "ARRAYS",
    "EVENT_MARGIN",
    "LEVELS",
    "SYNC_DEADLINE_S",
    "AnyArray",
    "Array",
    "ArraySpec",
    "ArrayState",
    "Bitmap",
    "DeviceState",
    "ExpectedDeviation",
    "Geometry",
    "Identity",
    "Level",
    "Md",
    "MdArray",
    "MdArrayState",
    "MdSpec",
    "MdState",
    "MemberState",
    "Scrub",
    "Upkeep",
    "assemble_command",
    "bitmap_command",
    "capacity",
    "check_command",
    "create_command",
    "create_commands",
    "disk_path",
    "examine_bitmap_command",
    "examine_command",
    "holders_of_old_data",
    "parse_bitmaps",
    "parse_examine",
    "parse_md",
    "readwrite_command",
    "serial_of",
    "stale",
    "stop_command",
    "waits_for_flush",
    "zero_command",
]
