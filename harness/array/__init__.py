"""The RAID array: what is asked, the commands, what is found, and the array of a machine."""

from harness.array.array import SYNC_DEADLINE_S, Array, Scrub
from harness.array.command import (
    assemble_command,
    check_command,
    create_command,
    create_commands,
    readwrite_command,
    stop_command,
    zero_command,
)
from harness.array.spec import ArraySpec, Geometry, Level, Md, capacity, data_disks, disk_path
from harness.array.state import ArrayState, MdState, MemberState, parse_md

__all__ = [
    "SYNC_DEADLINE_S",
    "Array",
    "ArraySpec",
    "ArrayState",
    "Geometry",
    "Level",
    "Md",
    "MdState",
    "MemberState",
    "Scrub",
    "assemble_command",
    "capacity",
    "check_command",
    "create_command",
    "create_commands",
    "data_disks",
    "disk_path",
    "parse_md",
    "readwrite_command",
    "stop_command",
    "zero_command",
]
