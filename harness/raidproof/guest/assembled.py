# No pathlib, no subprocess: on the minimal Python of a guest each import takes time.
"""The devices of an array in a checker, by the kernel interface through which they are read and frozen.

The harness copies this file into machines, into the folder of check_agent.py: standard library only. The format of the
ioctl calls of device-mapper is that of linux/dm-ioctl.h.
"""

import errno
import os
import select
import struct
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from time import monotonic
from typing import Protocol

SYSFS_MD, DM_RAID, DEVICE_MAPPER, SYSFS_BTRFS = "sysfs-md", "dm-raid", "device-mapper", "sysfs-btrfs"
BLOCK, ZFS_POOL = "block", "zfs-pool"
"""The interfaces: md's files in sysfs (Documentation/admin-guide/md.rst), the targets of device-mapper, the directory
of btrfs in sysfs, other block devices, and the directory of ZFS in proc.

Of device-mapper, one interface is for the target ``raid``, the other for all other targets, which have no members."""
SECTORS = "SECTORS"
"""The word in the table of a device of device-mapper that stands for the number of its 512-byte sectors."""
BLOCK_DEVICES = "/sys/block"
POOLS = "/proc/spl/kstat/zfs"
"""The directory with one subdirectory for each imported pool of ZFS, of the pool's name."""
BTRFS = "/sys/fs/btrfs"
"""The directory with one subdirectory for each mounted btrfs, whose name is the UUID."""
UUID_DASHES = 4
"""Number of dashes in a UUID; names without them, such as ``features``, are not of a file system."""
TARGET_BYTES = 40
"""Size of struct dm_target_spec, which precedes the text of a target."""
STATUS, MESSAGE = 12, 14
"""DM_TABLE_STATUS and DM_TARGET_MSG."""
HEALTH = 5
"""Index of the members' characters in the status line of the target ``raid`` (Documentation: dm-raid.rst).

``A``: alive and in sync; ``a``: alive and not in sync; ``D``: dead. The words before: begin, length, target, level,
number of members; the kernel's answer lacks the first three."""

FULL_SPEED = {"stripe_cache_size": "2048", "sync_speed_max": "10000000"}
"""The values of two sysfs files of an md device with which its background work is fastest.

The first is the number of stripes in md's cache: with the default of 256 stripes, md sleeps most of the time
(raid5_sync_request in drivers/md/raid5.c). The second is in KiB/s of each member, above the rate of any member.
"""
POLL_S = 0.02
"""Interval in seconds at which the end of background work is read."""


class Device(Protocol):
    """A device of an array."""

    def freeze(self) -> None:
        """Forbid a resync, which would change the members during the check."""

    def missing(self) -> int:
        """Return the number of missing members; 0 for a level without redundancy."""

    def remains(self) -> bool:
        """Return whether the device still exists, even if only some members are in it."""

    def write_enable(self) -> None:
        """Let a resync begin that waits for the first write."""

    def settled(self) -> bool:
        """Return whether the device is in sync and marked clean, and nothing is done to its members."""

    def scrub(self, most_s: float) -> "int | None":
        """Let a pending resync end, compare copies or parity with the data, and return the sectors that differ.

        None: the device has no copies or parity to compare. ``most_s``: time limit in seconds.

        Raises:
            TimeoutError: the resync or the comparison takes longer.
        """


class SysfsMd:
    """An md device by its files in sysfs; ``name``: ``md0``."""

    def __init__(self, name: str) -> None:
        self._folder = f"{BLOCK_DEVICES}/{name}/md"

    def freeze(self) -> None:
        """Write ``frozen`` to the file ``sync_action``."""
        try:
            fd = os.open(f"{self._folder}/sync_action", os.O_WRONLY)
        except OSError:
            return  # RAID0 has no resync, and no such file
        try:
            os.write(fd, b"frozen")
        except OSError:
            pass
        finally:
            os.close(fd)

    def missing(self) -> int:
        """Return the content of the file ``degraded``, which levels without redundancy do not have."""
        try:
            return int(self._read("degraded"))
        except OSError:
            return 0

    def remains(self) -> bool:
        """Return whether the file ``array_state`` has a state other than ``clear``."""
        return self._text("array_state") not in ("", "clear")

    def write_enable(self) -> None:
        """Make md resync an assembled array that waits for its first write, as with md_mod.start_ro=1 (md(4))."""
        if self._text("array_state") == "read-auto":
            with open(f"{self._folder}/array_state", "w") as file:
                file.write("active")

    def settled(self) -> bool:
        """Return whether the array is in sync and marked clean, and md does nothing to it.

        The resync begins some time after the assembly: until its end, the file ``resync_start`` has a number (md(4)).
        An array without redundancy has neither file, and is never marked clean.
        """
        if not os.path.exists(f"{self._folder}/sync_action"):
            return True
        return (
            self._text("sync_action") == "idle"
            and self._text("resync_start") == "none"
            and self._text("array_state") in ("clean", "readonly")
        )

    def scrub(self, most_s: float) -> "int | None":
        """End the state ``frozen``, wait for a resync, and let md check; return the file ``mismatch_cnt``.

        md starts work that is requested in ``sync_action`` at once: the file has the value ``idle`` again at its end.
        """
        if not os.path.exists(f"{self._folder}/sync_action") or self.missing():
            return None
        for file, value in FULL_SPEED.items():
            # A level without stripes has no cache of them, and the kernel may refuse the size for lack of memory.
            with suppress(OSError):
                self._write(file, value)
        self._write("sync_action", "idle")
        self.write_enable()
        wait_for(lambda: self._text("sync_action") == "idle" and self._text("resync_start") == "none", most_s)
        self._write("sync_action", "check")
        wait_for(lambda: self._text("sync_action") == "idle", most_s)
        return int(self._read("mismatch_cnt"))

    def _write(self, file: str, text: str) -> None:
        with open(f"{self._folder}/{file}", "w") as opened:
            opened.write(text)

    def _text(self, file: str) -> str:
        """Return the content of a file without its end of line; empty if the file cannot be read."""
        try:
            return self._read(file).strip()
        except OSError:
            return ""

    def _read(self, file: str) -> str:
        with open(f"{self._folder}/{file}") as opened:
            return opened.read()


class Block:
    """A block device without members of its own; ``name``: its name in the kernel."""

    def __init__(self, name: str) -> None:
        self._name = name

    def freeze(self) -> None:
        """Do nothing: the device has no resync."""

    def missing(self) -> int:
        """Return 0: the device has no members."""
        return 0

    def remains(self) -> bool:
        """Return whether the kernel has a block device of this name."""
        return os.path.exists(f"{BLOCK_DEVICES}/{self._name}")

    def write_enable(self) -> None:
        """Do nothing: the device has no resync."""

    def settled(self) -> bool:
        """Return True: the device has no resync."""
        return True

    def scrub(self, most_s: float) -> "int | None":  # noqa: ARG002
        """Return None: the device has no copies or parity."""
        return None


class Mapped(Block):
    """A device of device-mapper; ``name``: its name there."""

    def remains(self) -> bool:
        """Return whether device-mapper has a device of this name."""
        try:
            self._control(STATUS)
        except OSError:
            return False
        return True

    def _control(self, command: int, data: bytes = b"") -> bytes:
        answer: bytes = import_module("member_disks").control(command, self._name, data)[1]
        return answer[TARGET_BYTES:]


class DmRaid(Mapped):
    """A device of device-mapper with the target ``raid``."""

    def freeze(self) -> None:
        """Send the message ``frozen`` to the target; a level without resync does not know it.

        Linux 6.9 and newer do not obey (docs/findings.md); but then no resync of dm-raid begins by itself either.
        """
        try:
            self._control(MESSAGE, struct.pack("=Q", 0) + b"frozen\0")
        except OSError:
            return

    def missing(self) -> int:
        """Return the number of members that are dead in the status line."""
        return missing_in(self._control(STATUS))

    def settled(self) -> bool:
        """Return whether the target does nothing, and all regions are in sync."""
        return idle_in(self._control(STATUS))

    def scrub(self, most_s: float) -> "int | None":
        """Send the message ``idle``, which ends ``frozen``, then ``check``; return the mismatches of the status."""
        if self.missing():
            return None
        try:
            self._control(MESSAGE, struct.pack("=Q", 0) + b"idle\0")
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            # Linux 6.9 and newer obey, and then answer EINVAL (docs/findings.md).
        wait_for(self.settled, most_s)
        try:
            self._control(MESSAGE, struct.pack("=Q", 0) + b"check\0")
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return None  # a level without redundancy takes no messages
        wait_for(self.settled, most_s)
        return mismatches_in(self._control(STATUS))


def wait_for(reached: "Callable[[], bool]", most_s: float) -> None:
    """Wait until a function returns True.

    Raises:
        TimeoutError: it still returns False after ``most_s`` seconds.
    """
    end = monotonic() + most_s
    while not reached():
        if monotonic() >= end:
            raise TimeoutError("background work of an array took longer than %g s" % most_s)
        select.select([], [], [], POLL_S)


class SysfsBtrfs(Block):
    """The devices of a btrfs that makes its own RAID. They form no device before the mount; ``name`` is not used.

    Without the mount option ``degraded``, btrfs is not mounted if a device is missing. It has no resync, and compares
    copies and parity with its checksums only while it is mounted.
    """

    def remains(self) -> bool:
        """Return whether a btrfs is still mounted."""
        return any(name.count("-") == UUID_DASHES for name in os.listdir(BTRFS)) if os.path.isdir(BTRFS) else False


class ZfsPool(Block):
    """An imported pool of ZFS; ``name``: the pool's name. It has no device, and no resync.

    It is compared with its checksums only by zpool scrub.
    """

    def missing(self) -> int:
        """Return 0 if the pool has the state ONLINE, else 1: the kernel does not report the number."""
        try:
            with open(f"{POOLS}/{self._name}/state") as file:
                return int(file.read().strip() != "ONLINE")
        except OSError:
            return 0

    def remains(self) -> bool:
        """Return whether the pool is still imported."""
        return os.path.exists(f"{POOLS}/{self._name}")


def missing_in(status: bytes) -> int:
    """Return the number of dead or missing members in the answer to DM_TABLE_STATUS.

    The answer is for example ``raid5_ls 4 AAD- 128/128 idle 0 0 -``; ``-`` is a member without a device.

    Raises:
        ValueError: the answer has no line of the target ``raid``.
    """
    words = status.partition(b"\0")[0].decode().split()
    place = HEALTH - 3
    if len(words) <= place or words[place].strip("AaD-"):
        raise ValueError("no status of the target raid: %r" % " ".join(words))
    return words[place].count("D") + words[place].count("-")


def idle_in(status: bytes) -> bool:
    """Return whether the answer to DM_TABLE_STATUS has the action ``idle``, and all regions in sync (``128/128``)."""
    words = status.partition(b"\0")[0].decode().split()
    done, _, total = words[HEALTH - 2].partition("/")
    return done == total and words[HEALTH - 1] == "idle"


def sized(command: list[str], sectors: int) -> list[str]:
    """Return a command with the number of sectors in place of `SECTORS`."""
    return [" ".join(str(sectors) if one == SECTORS else one for one in word.split(" ")) for word in command]


def sectors_of(path: str) -> int:
    """Return the 512-byte sectors of a block device.

    Raises:
        OSError: the device does not exist.
    """
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.lseek(fd, 0, os.SEEK_END) // 512
    finally:
        os.close(fd)


def mismatches_in(status: bytes) -> int:
    """Return the sectors that the last check found to differ, from the answer to DM_TABLE_STATUS."""
    return int(status.partition(b"\0")[0].decode().split()[HEALTH])


INTERFACES: dict[str, Callable[[str], Device]] = {
    SYSFS_MD: SysfsMd,
    DM_RAID: DmRaid,
    DEVICE_MAPPER: Mapped,
    SYSFS_BTRFS: SysfsBtrfs,
    BLOCK: Block,
    ZFS_POOL: ZfsPool,
}
"""The interfaces by name; each makes the object for a device of a name."""
