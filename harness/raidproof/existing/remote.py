"""Reading an existing server over SSH, by commands of a closed list that only read."""

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from raidproof.core.command import Completed
from raidproof.core.errors import RequestError
from raidproof.core.waiting import Deadline
from raidproof.existing.block_devices import COLUMNS, BlockDevices, parse_lsblk
from raidproof.existing.fstab import Entry, parse_fstab
from raidproof.existing.given import Given, shortened
from raidproof.existing.logical_volumes import COMMAND as LVS
from raidproof.existing.md import parse_mdstat
from raidproof.existing.reports import Kind, Text
from raidproof.machine.login import Login
from raidproof.machine.transport import Transport

CONNECT_DEADLINE_S = 30.0
COMMAND_DEADLINE_S = 30.0
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
"""A device's name that a command may contain; other devices are not read."""
MOST_DEVICES = 256

NFSD = ("threads", "nfsv4leasetime", "nfsv4gracetime")
"""Files of nfsd that are read."""
FIXED: tuple[tuple[Kind, tuple[str, ...]], ...] = (
    ("exports", ("cat", "/etc/exports")),
    ("exports", ("grep", "-rsH", "--include=*.exports", "", "/etc/exports.d")),
    ("nfs-conf", ("cat", "/etc/nfs.conf")),
    ("nfs-conf", ("grep", "-rsH", "--include=*.conf", "", "/etc/nfs.conf.d")),
    ("fstab", ("cat", "/etc/fstab")),
    ("fstab", ("cat", "/proc/mounts")),
    ("mdstat", ("cat", "/proc/mdstat")),
    ("lsblk", ("lsblk", "--json", "--bytes", "--output", COLUMNS)),
    (
        "sysfs",
        ("grep", "-sH", ".", *(f"/proc/fs/nfsd/{name}" for name in NFSD)),
    ),
)
"""The commands without a value from outside, each with the kind of its output. None of them writes."""
QUEUE = ("rotational", "scheduler", "write_cache")
"""Files in /sys/block/DISK/queue that are read of each disk."""
MD = ("mismatch_cnt", "stripe_cache_size", "sync_speed_max", "bitmap/backlog")
"""Files in /sys/block/ARRAY/md that are read of each array."""


def detail_command(array: str) -> tuple[str, ...]:
    """Return the command that describes an array."""
    return ("mdadm", "--detail", f"/dev/{array}")


def superblock_command(filesystem: str, device: str) -> tuple[str, ...]:
    """Return the command that prints the superblock of a file system."""
    return ("xfs_info", f"/dev/{device}") if filesystem == "xfs" else ("dumpe2fs", "-h", f"/dev/{device}")


def sysfs_command(disks: Sequence[str], arrays: Sequence[str]) -> tuple[str, ...]:
    """Return the command that prints files of /sys about disks and arrays."""
    of_disks = (f"/sys/block/{disk}/queue/{file}" for disk in disks for file in QUEUE)
    of_arrays = (f"/sys/block/{array}/md/{file}" for array in arrays for file in MD)
    return ("grep", "-sH", ".", *of_disks, *of_arrays)


def announcement() -> list[str]:
    """Return lines with every command that may run on the server; DISK, ARRAY and DEVICE are names that it reports."""
    per_device = (
        detail_command("ARRAY"),
        superblock_command("xfs", "DEVICE"),
        superblock_command("ext4", "DEVICE"),
        LVS,
        sysfs_command(["DISK"], ["ARRAY"]),
    )
    return [shlex.join(argv) for argv in (*(argv for _, argv in FIXED), *per_device)]


@dataclass
class Readings:
    """The outputs of the commands, and the commands without one."""

    texts: list[Text] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    """The commands that ran, in order."""
    failed: dict[str, str] = field(default_factory=dict)
    """The reason for each command that printed nothing, by command."""


class Runs(Protocol):
    """Runs one command on the server, in a channel of its own."""

    def __call__(self, argv: Sequence[str], stdin: bytes = b"", deadline_s: float = COMMAND_DEADLINE_S) -> Completed:
        """Run a command with a standard input, and return its output."""


@contextmanager
def connection(name: str, login: Login) -> Iterator[Runs]:
    """Log in, and yield a function that runs one command in a channel of its own; log out at the end.

    Raises:
        DeadlineExceeded: the server accepts no login in time.
        RequestError: the server's host key is not in known_hosts.
        RigError: the server refuses the login.
    """
    transport = Transport(name, login)

    def run(argv: Sequence[str], stdin: bytes = b"", deadline_s: float = COMMAND_DEADLINE_S) -> Completed:
        deadline = Deadline.after(deadline_s)
        return transport.on_own_channel(argv, deadline).wait(deadline, stdin)

    try:
        transport.connect(Deadline.after(CONNECT_DEADLINE_S))
        yield run
    finally:
        transport.close()


def read_server(name: str, run: Callable[[Sequence[str]], Completed]) -> Readings:
    """Run the commands, and return their outputs. ``name`` is the server in messages.

    Raises:
        RequestError: an output is malformed.
    """
    readings = Readings()

    def read(kind: Kind, argv: Sequence[str], device: str | None = None) -> Given | None:
        command = shlex.join(argv)
        readings.commands.append(command)
        ended = run(argv)
        # grep has a status other than 0 if one of several files is missing.
        if not ended.stdout.strip() or (not ended.ok and argv[0] != "grep"):
            readings.failed[command] = shortened(ended.stderr.strip()) or f"no output, status {ended.status}"
            return None
        given = Given(f"{name}: {_short(argv)}", ended.stdout)
        readings.texts.append(Text(kind, given, device))
        return given

    outputs: dict[Kind, Given] = {}
    for kind, argv in FIXED:
        if (given := read(kind, argv)) is not None:
            outputs[kind] = given
    devices = parse_lsblk(outputs["lsblk"]) if "lsblk" in outputs else None
    found = [array.name for array in parse_mdstat(outputs["mdstat"])] if "mdstat" in outputs else []
    arrays = [one for one in found if NAME.fullmatch(one)][:MOST_DEVICES]
    for array in arrays:
        read("mdadm", detail_command(array))
    mounts = parse_fstab(outputs["fstab"]) if "fstab" in outputs else ()
    for filesystem, device in _filesystems(devices, mounts):
        read("xfs-info" if filesystem == "xfs" else "dumpe2fs", superblock_command(filesystem, device), device)
    if devices is not None and any(one.type == "lvm" for one in devices.devices.values()):
        read("lvs", LVS)
    disks = _disks(devices)
    if disks or arrays:
        read("sysfs", sysfs_command(disks, arrays))
    if not readings.texts:
        why = next(iter(readings.failed.values()))
        raise RequestError(f"{name}: no command printed anything: {why}", remedy="log in as a user who may read them")
    return readings


def _short(argv: Sequence[str]) -> str:
    words = shlex.join(argv)
    return words if len(words) <= 60 else f"{words[:57]}..."


def _filesystems(devices: BlockDevices | None, mounts: Sequence[Entry]) -> list[tuple[str, str]]:
    """Return type and device of each mounted XFS and ext4 above an md array; the last list of mounts is in effect."""
    found = []
    for entry in mounts:
        device = devices.called(entry.device) if devices is not None else None
        chain = devices.chain(device) if devices is not None and device is not None else ()
        name = device.kernel_name if device is not None else entry.device.removeprefix("/dev/")
        above_md = any(one.startswith("md") for one in (name, *(one.kernel_name for one in chain)))
        if above_md and entry.type in {"xfs", "ext4"} and NAME.fullmatch(name):
            found.append((entry.type, name))
    return list(dict.fromkeys(found))[:MOST_DEVICES]


def _disks(devices: BlockDevices | None) -> list[str]:
    if devices is None:
        return []
    names = [one.kernel_name for one in devices.devices.values() if one.type == "disk"]
    return [name for name in dict.fromkeys(names) if NAME.fullmatch(name)][:MOST_DEVICES]
