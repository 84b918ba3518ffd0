# No pathlib, no argparse: on the minimal Python of a guest each import takes time.
"""Adds a partition of each whole disk in the kernel, and the link to it that udev would make; or removes both.

The harness sends this file to the machine, where it runs on a minimal Python, as root: ``python3 - add PATH...`` or
``python3 - remove PATH...``. PATH is a link to a disk, and ``PATH-part1`` becomes the link to its partition, as in
/dev/disk/by-id of a machine with udev. Nothing is written to the disks: they have no table of partitions, so that
the partitions end with the kernel. A partition has all bytes of its disk: what is written to the partition is at the
same offset of the disk. A partition that exists is left as it is.

The format of the ioctl call is that of linux/blkpg.h.
"""

import ctypes
import fcntl
import os
import struct
import sys

PART = "-part1"
"""The end of the link to a partition."""
BLKPG, ADD, REMOVE = 0x1269, 1, 2
"""The number of the ioctl call, and of two of its operations."""
SECTOR = 512
_CLASS = "/sys/class/block"


def named(disk: str) -> str:
    """Return the kernel's name of the first partition of a disk: ``vdb1``, ``nvme0n1p1``."""
    return disk + ("p1" if disk[-1:].isdigit() else "1")


def control(disk: str, operation: int, length: int = 0) -> None:
    """Add or remove the first partition of a disk by the ioctl call BLKPG.

    Raises:
        OSError: the disk cannot be opened, or the kernel refuses the call.
    """
    # struct blkpg_partition, then struct blkpg_ioctl_arg, which refers to it.
    partition = ctypes.create_string_buffer(struct.pack("=qqi64s64s4x", 0, length, 1, b"", b""))
    argument = struct.pack("@iiiP", operation, 0, len(partition.raw), ctypes.addressof(partition))
    fd = os.open("/dev/" + disk, os.O_RDWR)
    try:
        fcntl.ioctl(fd, BLKPG, argument)
    finally:
        os.close(fd)


def add(path: str) -> None:
    """Add the partition of a disk unless it exists, and the link to it.

    Raises:
        OSError: the disk does not exist, or the kernel refuses the partition.
    """
    disk = os.path.basename(os.path.realpath(path))
    if not os.path.exists("%s/%s" % (_CLASS, named(disk))):
        with open("%s/%s/size" % (_CLASS, disk)) as file:
            control(disk, ADD, int(file.read()) * SECTOR)
    partition, link = "/dev/" + named(disk), path + PART
    if os.path.realpath(link) != partition:
        if os.path.islink(link):
            os.unlink(link)
        os.symlink(partition, link)


def remove(path: str) -> None:
    """Remove the partition of a disk, and the link to it, as far as they exist.

    Raises:
        OSError: the partition is in use.
    """
    disk = os.path.basename(os.path.realpath(path))
    if os.path.exists("%s/%s" % (_CLASS, named(disk))):
        control(disk, REMOVE)
    if os.path.islink(path + PART):
        os.unlink(path + PART)


def main(words: "list[str]") -> None:
    """Run the program; ``words`` are the operation and the paths of the disks."""
    operation = {"add": add, "remove": remove}[words[0]]
    for path in words[1:]:
        try:
            operation(path)
        except OSError as error:
            sys.exit("%s: %s" % (path, error))


if __name__ == "__main__":
    main(sys.argv[1:])
