"""The filesystem on the array: what is asked, the commands, what is found, and the filesystem of a machine."""

from raidproof.storage.filesystem.filesystem import Filesystem, check_command, mkfs_command, mount_command, parse_check
from raidproof.storage.filesystem.spec import DIRECTORY, Alignment, Ext4Spec, FilesystemSpec, XfsSpec
from raidproof.storage.filesystem.state import FilesystemCheck, FilesystemState, parse_findmnt

__all__ = [
    "DIRECTORY",
    "Alignment",
    "Ext4Spec",
    "Filesystem",
    "FilesystemCheck",
    "FilesystemSpec",
    "FilesystemState",
    "XfsSpec",
    "check_command",
    "mkfs_command",
    "mount_command",
    "parse_check",
    "parse_findmnt",
]
