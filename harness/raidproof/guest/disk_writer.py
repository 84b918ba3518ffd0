# No pathlib: on the minimal Python of a guest each import takes time.
"""Writes marks to disks, and zeros beside the marks, after a check that disk_probe.py inspected the same disks.

The harness sends this file to the machine, where it runs on a minimal Python, as root: ``python3 - ENDS DISK...``.
ENDS is the number of bytes to overwrite at each end of a disk, mark included; 0 writes only the marks. A disk is five
words: path, device number, size in bytes, the mark that must be on the disk (or ``-``), and the mark to write, both in
hexadecimal. The program opens and verifies all disks before it writes to the first disk.
"""

import os
import stat
import sys

MARK = 4096
"""Bytes of a mark, the block by which raidproof recognises its disks."""
PIECE = 1 << 20
"""Maximum number of bytes of one write."""


def opened(path: str, number: str, size: str, mark: str) -> int:
    """Open a disk exclusively, verify its number, size and mark, and return the descriptor; exit on a difference."""
    # O_EXCL: open fails if the disk is mounted, used as swap, or part of md or dm. None of these can claim the disk
    # while it is open.
    disk = os.open(path, os.O_RDWR | os.O_EXCL | os.O_CLOEXEC)
    found = os.fstat(disk)
    if not stat.S_ISBLK(found.st_mode) or number != f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}":
        sys.exit(f"{path} no longer leads to device {number}")
    if os.lseek(disk, 0, os.SEEK_END) != int(size):
        sys.exit(f"{path} no longer has {size} bytes")
    ends = (os.pread(disk, MARK, 0), os.pread(disk, MARK, int(size) - MARK))
    if mark != "-" and bytes.fromhex(mark) not in ends:
        sys.exit(f"{path} no longer has the mark of raidproof that it had at the inspection")
    return disk


def write(disk: int, data: bytes, offset: int) -> None:
    """Write all of the data to a disk at an offset in bytes."""
    while data:
        written = os.pwrite(disk, data[:PIECE], offset)
        data, offset = data[written:], offset + written


def main(ends: int, words: list[str]) -> None:
    """Open and verify all disks, then write to each; ``words`` has five words for each disk."""
    disks = [(opened(*words[at : at + 4]), int(words[at + 2]), words[at + 4]) for at in range(0, len(words), 5)]
    for disk, size, mark in disks:
        for at in (0, size - MARK):
            write(disk, bytes.fromhex(mark), at)
        os.fsync(disk)
        if ends:
            length = min(ends, size // 2) - MARK
            write(disk, bytes(length), MARK)
            write(disk, bytes(length), size - MARK - length)
            os.fsync(disk)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
