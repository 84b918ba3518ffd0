"""A file system whose disk is copied while it is mounted has, after the replay of its log, every file that was synced.

The copy has all that the file system wrote to the disk: no cache loses data, and no write is torn. The replay is that
of a server's boot: fsck(8) where the kernel does not replay the log, then the mount.
"""

import pytest

from findings.answer import Record, conclude
from raidproof.core.units import KIB
from raidproof.run.run import Run
from raidproof.storage.member import disk_path

FILES = 10
SIZE = 400 * KIB
"""Bytes of each file."""
MOUNTED, COPY = "/run/raidproof/mounted", "/run/raidproof/copy"
MAKE = {"jfs": ["mkfs.jfs", "-q"], "ext4": ["mkfs.ext4", "-q", "-F"]}
REPLAY = {"jfs": ["jfs_fsck", "-p"]}
"""Commands that replay the log of file systems whose logs the kernel does not replay."""


@pytest.mark.parametrize("filesystem", MAKE)
def test_a_synced_file_is_there_after_the_replay(current_run: Run, record: Record, filesystem: str) -> None:
    lab, server = current_run.lab, current_run.lab.server
    lab.disks.reset()
    disk, copy = map(disk_path, lab.serials[:2])
    server.succeed([*MAKE[filesystem], disk])
    server.succeed(["mount", "--mkdir", "--types", filesystem, disk, MOUNTED])
    lost, failed = 0, 0
    try:
        for number in range(1, FILES + 1):
            written = [f"of={MOUNTED}/{number}", f"bs={SIZE}", "count=1", "iflag=fullblock", "conv=fsync"]
            server.succeed(["dd", "if=/dev/urandom", *written])
            server.succeed(["sync", f"{MOUNTED}/{number}", MOUNTED])
            server.succeed(["dd", f"if={disk}", f"of={copy}", "bs=1M", "iflag=direct", "oflag=direct"])
            if replay := REPLAY.get(filesystem):
                failed += "logredo failed" in server.run([*replay, copy]).stdout
            server.succeed(["mount", "--mkdir", "--types", filesystem, copy, COPY])
            found = server.succeed(["ls", COPY]).split()
            server.succeed(["umount", COPY])
            lost += len({str(one) for one in range(1, number + 1)}.difference(found)) > 0
    finally:
        server.succeed(["umount", MOUNTED])
    measured = f"{filesystem}: after {lost} of {FILES} syncs a synced file is missing in the copy"
    said = f"; jfs_fsck reports a failed replay for {failed} of {FILES} copies" if filesystem in REPLAY else ""
    conclude(record, server, measured + said, wrong=lost, seen=FILES, least=FILES)
