"""The RAID array: what is asked, the commands, what is found, and the array of a machine."""

from raidproof.storage.array.array import SYNC_DEADLINE_S, Array, Scrub
from raidproof.storage.array.bitmap import Bitmap, examine_bitmap_command, parse_bitmaps
from raidproof.storage.array.command import (
    assemble_command,
    check_command,
    create_command,
    create_commands,
    readwrite_command,
    stop_command,
    zero_command,
)
from raidproof.storage.array.expected_deviation import ExpectedDeviation
from raidproof.storage.array.member import EVENT_MARGIN, Identity, examine_command, parse_examine, serial_of, stale
from raidproof.storage.array.old_data import holders_of_old_data
from raidproof.storage.array.spec import ArraySpec, Geometry, Level, Md, capacity, data_disks, disk_path
from raidproof.storage.array.state import ArrayState, MdState, MemberState, parse_md
from raidproof.storage.array.upkeep import Upkeep

__all__ = [
    "EVENT_MARGIN",
    "SYNC_DEADLINE_S",
    "Array",
    "ArraySpec",
    "ArrayState",
    "Bitmap",
    "ExpectedDeviation",
    "Geometry",
    "Identity",
    "Level",
    "Md",
    "MdState",
    "MemberState",
    "Scrub",
    "Upkeep",
    "assemble_command",
    "capacity",
    "check_command",
    "create_command",
    "create_commands",
    "data_disks",
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
    "zero_command",
]
