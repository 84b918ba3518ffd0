"""ZFS with its own RAID: its request, its commands, and parsers for the output of zpool and zfs (zfsutils 2.3).

Sources: zpoolprops(7), zfsprops(7), zpool-create(8), zpool-scrub(8).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Literal, Self

from pydantic import model_validator

from raidproof.core.command import Completed
from raidproof.core.errors import RequestError, RigError
from raidproof.core.layer import Machine, Value, power_of_two
from raidproof.core.units import KIB, MIB, Size, format_size
from raidproof.guest.partitions import PART
from raidproof.storage.array import Geometry
from raidproof.storage.array.array import Separate
from raidproof.storage.array.zfs import parse_status, status_command, vdev_words
from raidproof.storage.filesystem.filesystem import CHECK_DEADLINE_S, FilesystemSpec
from raidproof.storage.filesystem.state import FilesystemCheck, FilesystemState, Mounted, Superblock, state_of
from raidproof.storage.member import disk_path

TXG_TIMEOUT = "/sys/module/zfs/parameters/zfs_txg_timeout"
"""The kernel's file with the most seconds between two transaction groups (zfs(4))."""
_TIMEOUT = "txg_timeout="
_LEAST_MEMBER = 64 * MIB
"""The smallest size of a disk of a pool (SPA_MINDEVSIZE in OpenZFS)."""


class ZfsSpec(FilesystemSpec):
    """The requested ZFS: the root dataset of one pool. ``log`` is the disk of a separate log device (SLOG)."""

    # The log divides the record of a write at the end of a log block (zil_lwb_assign in module/zfs/zil.c).
    tears_writes: ClassVar[bool] = True
    in_place: ClassVar[bool] = False
    # zpool import -m (zpool-import(8)).
    needs_log: ClassVar[bool] = False
    unsupported: ClassVar[frozenset[str]] = frozenset({"su", "sw", "aligned", "log_size", "discard", "block_size"})
    axes: ClassVar[Mapping[str, str]] = {
        "ashift": "property of the pool of ZFS: the exponent of the sector size, 12 for 4 KiB (zpoolprops(7))",
        "sync": "property of ZFS: standard, always, or disabled: fsync makes nothing durable (zfsprops(7))",
        "recordsize": "property of ZFS: the size of the largest block of a file (zfsprops(7))",
        "compression": "property of ZFS: the algorithm of compression (zfsprops(7))",
    }
    forcing: ClassVar[frozenset[str]] = frozenset({"-f"})
    # Messages of the assertions in the module spl, of zfs_panic_recover, and of spa_deadman and zio_suspend.
    damage: ClassVar[str] = r"(?:VERIFY|ASSERT)\S*\(.*failed|PANIC at .*\.c:\d+|WARNING: Pool '.*' has encountered"
    packages: ClassVar[tuple[str, ...]] = ("zfsutils-linux",)

    type: Literal["zfs"] = "zfs"
    aligned: bool = False
    """Always false: ZFS does not align files to stripes, which have no fixed size."""
    ashift: int = 12
    """The exponent of the size of a sector, the unit of all writes (zpoolprops(7))."""
    sync: Literal["standard", "always", "disabled"] = "standard"
    """Which writes are durable before their acknowledgement (zfsprops(7))."""
    recordsize: Size = 128 * KIB
    """The size of the largest block of a file (zfsprops(7))."""
    compression: Literal["on", "off", "lz4", "zstd", "gzip"] = "on"
    """The algorithm of compression; ``on``, the default of ZFS, is lz4 in this version (zfsprops(7))."""

    @model_validator(mode="after")
    def _possible_properties(self) -> Self:
        size = self.recordsize
        if not power_of_two(size) or not 4 * KIB <= size <= MIB:
            raise RequestError(f"recordsize {format_size(size)} is not a power of two from 4KiB to 1MiB")
        if not 9 <= self.ashift <= 16:
            raise RequestError(f"ashift {self.ashift} is not a number from 9 (512 bytes) to 16 (64KiB)")
        return self

    def refuse_devices(self, geometry: Geometry | None) -> None:
        """Check that the array is one of ZFS itself.

        Raises:
            RequestError: the array has another kind.
        """
        self._separate(geometry)

    def _separate(self, geometry: Geometry | None) -> Separate:
        if geometry is None or geometry.separate is None:
            raise RequestError(f'filesystem = "{self.type}" makes its own RAID; write raid = "{self.type}"')
        return geometry.separate

    def least_size(self, geometry: Geometry | None) -> int:
        """Return the smallest size in bytes of the data disks of a pool."""
        return _LEAST_MEMBER * (geometry.data_disks if geometry else 1)

    def mkfs_command(self, device: str, geometry: Geometry | None) -> list[str]:
        """Return the command that creates the pool, whose name is ``device``, and its root dataset, on whole disks."""
        separate = self._separate(geometry)
        return self._create(device, separate.level, separate.devices, self._log)

    def create_commands(self, machine: Machine, device: str, geometry: Geometry | None) -> Iterable[list[str]]:  # noqa: ARG002
        """Return the command of `mkfs_command` for the partitions of the disks, which the array has added.

        No file of the machine lists the pool, so that the machine does not import it by itself when it boots.
        """
        separate = self._separate(geometry)
        parts, log = ([path + PART for path in paths] for paths in (separate.devices, self._log))
        return [self._create(device, separate.level, parts, log, "-o", "cachefile=none")]

    @property
    def _log(self) -> tuple[str, ...]:
        return (disk_path(self.log),) if self.log else ()

    def _create(self, pool: str, level: str, devices: Sequence[str], log: Sequence[str], *options: str) -> list[str]:
        properties = {
            "mountpoint": "legacy",
            "sharenfs": "off",
            "sync": self.sync,
            "recordsize": str(self.recordsize),
            "compression": self.compression,
        }
        return [
            *("zpool", "create", "-f", "-o", f"ashift={self.ashift}", *options),
            *(word for name, value in properties.items() for word in ("-O", f"{name}={value}")),
            pool,
            *vdev_words(level, devices),
            *(("log", *log) if log else ()),
        ]

    @property
    def fsync_caveat(self) -> str:
        """The reason why ZFS keeps no acknowledged fsync with ``sync=disabled``; else that of the base class."""
        if self.sync != "disabled":
            return super().fsync_caveat
        return (
            "ZFS with sync=disabled acknowledges fsync without a write to the disks (zfsprops(7)): a power cut loses "
            "what was written since the last transaction group"
        )

    def erase_command(self, device: str) -> list[str]:
        """Return the command that destroys the imported pool."""
        return ["zpool", "destroy", device]

    def check_command(self, device: str) -> list[str]:  # noqa: ARG002
        """Return the command that prints the errors that ZFS has found in the imported pool."""
        return status_command()

    def check(self, machine: Machine, device: str) -> FilesystemCheck:
        """Let ZFS verify all blocks of the imported pool, which has no program such as fsck (zpool-scrub(8)).

        The scrub corrects blocks of which a copy or parity is right; the check of the array counts them.

        Raises:
            RigError: the pool is not imported, or an output is truncated.
        """
        machine.succeed(["zpool", "scrub", "-w", device], deadline_s=CHECK_DEADLINE_S)
        return super().check(machine, device)

    def parse_check(self, ended: Completed) -> FilesystemCheck:
        """Parse the output and exit status of `check_command`.

        Raises:
            RigError: the pool is not imported, or the output is truncated.
        """
        pool = parse_status(ended.stdout)
        errors = max(pool.errors, pool.scanned_errors)
        if not errors:
            return FilesystemCheck(outcome="clean", status=ended.status)
        reason = f"zpool status: {errors} data errors that neither a copy nor parity corrects"
        return FilesystemCheck(outcome="corrupt", status=ended.status, reasons=(reason,))

    def state(self, machine: Machine, device: str, mounted: Mounted) -> FilesystemState:
        """Read the properties of the mounted dataset and of its pool.

        Raises:
            RigError: an output is truncated or malformed.
        """
        dataset = parse_properties(machine.succeed(["zfs", "get", "-j", "-p", "all", device]), "datasets", device)
        pool = parse_properties(machine.succeed(["zpool", "get", "-j", "-p", "all", device]), "pools", device)
        logs = parse_status(machine.succeed(status_command())).logs
        ashift = whole(pool, "ashift")
        return state_of(
            mounted,
            Superblock(
                block_size=1 << ashift,
                size=whole(dataset, "available") + whole(dataset, "used"),
                su=0,
                sw=0,
                log="external" if logs else "internal",
            ),
            [f"{_TIMEOUT}{machine.get(TXG_TIMEOUT).strip()}"],
            ashift=ashift,
            sync=dataset.get("sync", ""),
            recordsize=whole(dataset, "recordsize"),
            compression=dataset.get("compression", ""),
            sharenfs=dataset.get("sharenfs", ""),
        )

    def asked(self, geometry: Geometry | None) -> dict[str, Value]:
        """Return the requested values of the file system, with the properties that only ZFS has."""
        own = {name: getattr(self, name) for name in self.axes}
        return {**super().asked(geometry), **own, "block_size": 1 << self.ashift, "sharenfs": "off"}

    @staticmethod
    def commit_s(options: Sequence[str], files: Sequence[float]) -> float:  # noqa: ARG004
        """Return the most seconds between two transaction groups, from the option that `state` adds.

        Raises:
            RigError: the options lack the interval.
        """
        found = [one.removeprefix(_TIMEOUT) for one in options if one.startswith(_TIMEOUT)]
        if not found or not found[-1].isdecimal():
            raise RigError(f"the state of ZFS should have {_TIMEOUT}NUMBER, found: {', '.join(options)}")
        return float(found[-1])


def parse_properties(text: str, kind: Literal["pools", "datasets"], name: str) -> dict[str, str]:
    """Return the properties of a pool or dataset by name, from the output of ``zpool get -j`` or ``zfs get -j``.

    Raises:
        RigError: the output lacks the object, or is truncated.
    """
    try:
        found = json.loads(text)[kind][name]["properties"]
        return {property_: str(one["value"]) for property_, one in found.items()}
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise RigError(f"expected the properties of {name}, found: {text.strip()[-300:] or 'nothing'}") from error


def whole(properties: Mapping[str, str], name: str) -> int:
    """Return a property that is a whole number.

    Raises:
        RigError: the property is missing, or not a number.
    """
    value = properties.get(name, "")
    if not value.isdecimal():
        raise RigError(f"property {name} of ZFS: expected a whole number, found {value!r}")
    return int(value)
