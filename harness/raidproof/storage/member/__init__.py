"""The layer between a disk and the array that has it as a member. Each kind of layer is one file."""

from raidproof.storage.member.member import (
    LAYERED,
    MAPPER,
    MEMBER_LAYERS,
    AnyMemberLayer,
    Assembly,
    MemberLayer,
    disk_path,
    kernel_name,
    serial_of,
)

__all__ = [
    "LAYERED",
    "MAPPER",
    "MEMBER_LAYERS",
    "AnyMemberLayer",
    "Assembly",
    "MemberLayer",
    "disk_path",
    "kernel_name",
    "serial_of",
]
