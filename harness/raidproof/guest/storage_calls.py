# No pathlib, no subprocess: on the minimal Python of a guest each import takes time.
"""The commands of a check as system calls: mdadm --assemble and --stop, mount, umount and chmod.

The harness copies this file into machines, into the folder of check_agent.py: standard library only.

On User-mode Linux a process costs more than most of these calls: its page faults and system calls are stops of ptrace.
A call here does what the command does if all goes well; in any other case it raises, leaves nothing behind, and the
caller runs the command, whose error message is the known one. Structures: linux/raid/md_u.h; flags:
linux/mount.h.
"""

import ctypes
import fcntl
import os
import stat
import struct
from collections.abc import Callable, Sequence

SET_ARRAY_INFO, ADD_NEW_DISK, RUN_ARRAY, STOP_ARRAY = 0x40480923, 0x40140921, 0x400C0930, 0x0932
"""ioctl requests of md: _IOW(9, 0x23, 18 ints), _IOW(9, 0x21, 5 ints), _IOW(9, 0x30, 3 ints), _IO(9, 0x32)."""
METADATA = (1, 2)
"""Version of md's metadata in all arrays of a lab."""
MD_MAJOR = 9
EVENTS_AT = 4096 + 200
"""Byte offset of the event count (8 bytes, little-endian) on a member with metadata 1.2 (linux/raid/md_p.h)."""
FLAGS = {
    "ro": 1,
    "nosuid": 2,
    "nodev": 4,
    "noexec": 8,
    "sync": 16,
    "dirsync": 128,
    "noatime": 1024,
    "nodiratime": 2048,
    "relatime": 1 << 21,
    "strictatime": 1 << 24,
    "lazytime": 1 << 25,
}
"""Mount options that are flags of mount(2), not options of the file system."""
DEFAULTS = ("rw", "async", "defaults")
NO_OPTIONS = ("retry=",)
"""Options of mount.nfs itself, which the kernel does not know."""


class NoCall(Exception):
    """The command has a form that no call here replaces."""


def mount(arguments: Sequence[str]) -> None:
    """Mount as ``mount [--mkdir] --types TYPE [--options OPTIONS] SOURCE DIRECTORY`` does.

    Raises:
        NoCall: the command has another form.
        OSError: the mount failed.
    """
    words = [word for word in arguments if word != "--mkdir"]
    if len(words) not in (4, 6) or words[0] != "--types" or (len(words) == 6 and words[2] != "--options"):
        raise NoCall
    kind, source, directory = words[1], words[-2], words[-1]
    flags, data = options_of(words[3] if len(words) == 6 else "")
    if kind == "nfs":
        data.append("addr=" + source.partition(":")[0])
    os.makedirs(directory, exist_ok=True)
    call("mount", source.encode(), directory.encode(), kind.encode(), ctypes.c_ulong(flags), ",".join(data).encode())


def options_of(options: str) -> tuple[int, list[str]]:
    """Return the flags of mount(2), and the file system's options, of the text after ``--options``."""
    flags, data = 0, []
    for option in filter(None, options.split(",")):
        if option in FLAGS:
            flags |= FLAGS[option]
        elif option not in DEFAULTS and not option.startswith(NO_OPTIONS):
            data.append(option)
    return flags, data


def umount(arguments: Sequence[str]) -> None:
    """Unmount as ``umount DIRECTORY`` does.

    Raises:
        NoCall: the command has another form.
        OSError: the directory is no mount point, or is in use.
    """
    if len(arguments) != 1 or arguments[0].startswith("-"):
        raise NoCall
    call("umount2", arguments[0].encode(), 0)


def mdadm(arguments: Sequence[str]) -> None:
    """Assemble or stop arrays as ``mdadm --assemble [--run] DEVICE MEMBER...`` and ``mdadm --stop DEVICE...`` do.

    Raises:
        NoCall: the command has another form.
        OSError: md refused; an array that was not started is stopped again.
    """
    words = [word for word in arguments if word != "--run"]
    if words[:1] == ["--assemble"] and len(words) > 2:
        assemble(words[1], words[2:])
    elif words[:1] == ["--stop"] and len(words) > 1:
        for device in words[1:]:
            stop(device)
    else:
        raise NoCall


def assemble(device: str, members: Sequence[str]) -> None:
    """Start the md device ``device`` of these members, whose metadata describes the array.

    Raises:
        NoCall: md would start the array without a member.
        OSError: md refused a member, or the array.
    """
    require_fresh(members)
    number = int(os.path.basename(device)[len("md") :])
    if not os.path.exists(device):
        os.mknod(device, stat.S_IFBLK | 0o600, os.makedev(MD_MAJOR, number))
    fd = os.open(device, os.O_RDWR)
    try:
        fcntl.ioctl(fd, SET_ARRAY_INFO, struct.pack("=18i", *METADATA, *[0] * 16))
        try:
            for member in members:
                found = os.stat(member).st_rdev
                disk = struct.pack("=5i", 0, os.major(found), os.minor(found), 0, 0)
                fcntl.ioctl(fd, ADD_NEW_DISK, disk)
            fcntl.ioctl(fd, RUN_ARRAY, struct.pack("=3i", 0, 0, 0))
        except OSError:
            fcntl.ioctl(fd, STOP_ARRAY)
            raise
    finally:
        os.close(fd)


def require_fresh(members: Sequence[str]) -> None:
    """Check that md would not leave out a member because its event count is older than that of another one.

    The kernel leaves out members that are older by more than 1 (analyze_sbs in drivers/md/md.c), and starts the array
    without them; mdadm does not start it, if it has not been without them before (req_cnt in Assemble.c).

    Raises:
        NoCall: a member is older by more than 1, or too small for a superblock.
    """
    events = [events_of(member) for member in members]
    if max(events) - min(events) > 1:
        raise NoCall


def events_of(member: str) -> int:
    """Return the event count in the superblock of a member.

    Raises:
        NoCall: the member is too small for a superblock.
    """
    fd = os.open(member, os.O_RDONLY)
    try:
        data = os.pread(fd, 8, EVENTS_AT)
    finally:
        os.close(fd)
    if len(data) < 8:
        raise NoCall
    return int.from_bytes(data, "little")


def stop(device: str) -> None:
    """Stop an md device.

    Raises:
        OSError: the device does not exist, or is in use.
    """
    fd = os.open(device, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, STOP_ARRAY)
    finally:
        os.close(fd)


_libc = ctypes.CDLL(None, use_errno=True)


def chmod(arguments: Sequence[str]) -> None:
    """Set the mode of a file or directory as ``chmod MODE PATH`` does; MODE is an octal number.

    Raises:
        ValueError: the command has another form.
        OSError: the mode cannot be set.
    """
    mode, path = arguments
    os.chmod(path, int(mode, 8))


CALLS: dict[str, Callable[[Sequence[str]], None]] = {"mdadm": mdadm, "mount": mount, "umount": umount, "chmod": chmod}
"""The calls, by the command that they replace."""


def call(name: str, *arguments: object) -> None:
    """Call a function of the C library that returns 0 if it succeeds.

    Raises:
        OSError: the function failed.
    """
    if getattr(_libc, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
