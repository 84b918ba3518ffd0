"""The file system on the array: its request, its effective state, its check, and the kinds of file system."""

from raidproof.storage.filesystem.btrfs import BtrfsSpec
from raidproof.storage.filesystem.ext4 import Ext4Spec
from raidproof.storage.filesystem.f2fs import F2fsSpec
from raidproof.storage.filesystem.filesystem import (
    DIRECTORY,
    FILESYSTEMS,
    USUAL,
    Alignment,
    AnyFilesystem,
    Filesystem,
    FilesystemSpec,
    Owner,
    check_command,
    mkfs_command,
    mount_command,
    parse_check,
    read_write_back,
    usual,
)
from raidproof.storage.filesystem.placement import Extent, Placement
from raidproof.storage.filesystem.state import (
    FilesystemCheck,
    FilesystemState,
    Mounted,
    Superblock,
    parse_findmnt,
    state_of,
)
from raidproof.storage.filesystem.xfs import XfsSpec

__all__ = [
    "DIRECTORY",
    "FILESYSTEMS",
    "USUAL",
    "Alignment",
    "AnyFilesystem",
    "BtrfsSpec",
    "Ext4Spec",
    "Extent",
    "F2fsSpec",
    "Filesystem",
    "FilesystemCheck",
    "FilesystemSpec",
    "FilesystemState",
    "Mounted",
    "Owner",
    "Placement",
    "Superblock",
    "XfsSpec",
    "check_command",
    "mkfs_command",
    "mount_command",
    "parse_check",
    "parse_findmnt",
    "read_write_back",
    "state_of",
    "usual",
]
