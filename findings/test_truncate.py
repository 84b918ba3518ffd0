"""A power cut during a truncate leaves the old content or the new one.

Files are truncated, and the kernel writes their data to the disk before the file system commits its journal, as it may
at any time. The disk is copied at this instant: the copy has all that the file system wrote to the disk.
"""

import pytest

from findings.answer import Record, conclude
from raidproof.lab.lab import Lab
from raidproof.storage.member import disk_path

FILES = 10
OLD, NEW = b"x" * 100, b"x" * 10
MOUNTED, COPY = "/run/raidproof/mounted", "/run/raidproof/copy"
MAKE = {
    "ext4": ["mkfs.ext4", "-q", "-F"],
    # Without these variables, mkfs.xfs refuses disks of less than 300 MB.
    "xfs": ["env", "TEST_DIR=1", "TEST_DEV=1", "QA_CHECK_FS=1", "mkfs.xfs", "-q", "-f"],
}
OPTIONS = {"ext4": ["--options", "data=ordered,commit=300"]}
"""Options of mount: no commit of the journal during the test. XFS forces its log every 30 s."""
WRITE = """
import os, sys
for number in range(int(sys.argv[2])):
    with open(f"{sys.argv[1]}/{number}", "wb") as file:
        file.write(b"x" * 100)
os.sync()
"""
TRUNCATE = """
import ctypes, os, sys
for number in range(int(sys.argv[2])):
    file = os.open(f"{sys.argv[1]}/{number}", os.O_RDWR)
    os.ftruncate(file, 10)
    # sync_file_range(2) waits until the data are on the disk, and commits nothing.
    if ctypes.CDLL(None).sync_file_range(file, ctypes.c_long(0), ctypes.c_long(0), 7):
        sys.exit("sync_file_range failed")
    os.close(file)
"""


@pytest.mark.parametrize("filesystem", ["ext4", pytest.param("xfs", marks=pytest.mark.exhaustive)])
def test_a_power_cut_leaves_the_old_content_or_the_new(lab: Lab, record: Record, filesystem: str) -> None:
    server = lab.server
    disk, copy = map(disk_path, lab.serials[:2])
    server.succeed([*MAKE[filesystem], disk])
    server.succeed(["mount", "--mkdir", *OPTIONS.get(filesystem, ()), disk, MOUNTED])
    server.succeed(["python3", "-c", WRITE, MOUNTED, str(FILES)])
    server.succeed(["python3", "-c", TRUNCATE, MOUNTED, str(FILES)])
    server.succeed(["dd", f"if={disk}", f"of={copy}", "bs=1M", "iflag=direct", "oflag=direct"])
    server.succeed(["umount", MOUNTED])
    server.succeed(["mount", "--mkdir", copy, COPY])
    found = server.read_files([f"{COPY}/{number}" for number in range(FILES)])
    server.succeed(["umount", COPY])
    contents = [one.encode() for one in found.values()]
    zeroed = contents.count(NEW.ljust(len(OLD), b"\0"))
    other = sum(one not in {OLD, NEW} for one in contents) - zeroed
    measured = (
        f"{filesystem}: {zeroed} of {FILES} files have their old size, and zeros at their end; {other} have another "
        "content that they never had"
    )
    conclude(record, server, measured, wrong=zeroed + other, seen=len(contents), least=FILES)
