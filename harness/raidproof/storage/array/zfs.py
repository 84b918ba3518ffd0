"""The RAID of ZFS: no array below the file system; a pool writes copies and parity to all disks itself.

Sources: zpoolconcepts(7), zpool-create(8), zpool-import(8), zpool-scrub(8), zdb(8).
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import model_validator

from raidproof.core.errors import RequestError, RequirementMissing, RigError
from raidproof.core.layer import Machine, Value, found_in, read_files, require_effective, whole_number
from raidproof.core.topology import SoftwareSpec
from raidproof.core.units import format_size
from raidproof.core.waiting import Deadline, wait_until
from raidproof.guest import partitions
from raidproof.guest.assembled import ZFS_POOL
from raidproof.storage.array.array import SYNC_DEADLINE_S, Array, ArraySpec, Checking, Geometry, Scrub, Separate
from raidproof.storage.array.level import DEFAULT, read_level
from raidproof.storage.array.raidz import SECTOR
from raidproof.storage.array.state import ArrayState, DeviceState, Identity, MemberState
from raidproof.storage.member import Assembly, disk_path

POOL = "raidproof"
"""The name of the pool, by which its root dataset is mounted."""
SOFTWARE = SoftwareSpec(kernel="debian/trixie/zfs", image="debian/trixie-zfs")
"""A kernel with the module zfs, and an image with zpool and zfs."""
LEVELS_OF_MD = {"5": "z1", "6": "z2"}
"""The levels that stand for levels of md with the same number of parities, so that a plan can compare both kinds."""
IMPORT_DEADLINE_S = 300.0
"""Time limit in seconds of an import."""
_PROGRAM = Path(partitions.__file__).read_text()
_POLL_S = 0.2
_MIRRORED = 2
"""Disks of each mirror of level 10."""
_QUEUE_FILES = ("minimum_io_size", "optimal_io_size", "write_cache")
_ACTIONS = {"SCRUB": "check", "RESILVER": "recover"}
_ONLINE, _DEGRADED = "ONLINE", "DEGRADED"
_NO_POOL = "no such pool"
_NO_LABEL = "failed to unpack label"
_CHILD = re.compile(r"^        children\[(\d+)\]:\n((?: {12}.*\n)*)", re.MULTILINE)


class ZfsRaidSpec(ArraySpec):
    """The requested RAID of a pool that has all member disks: RAIDZ1, 2 or 3, a mirror, or a stripe of mirrors."""

    levels: ClassVar[frozenset[str] | None] = frozenset({"1", "10", "z1", "z2", "z3"})
    only_filesystem: ClassVar[str | None] = "zfs"
    software: ClassVar[SoftwareSpec] = SOFTWARE
    packages: ClassVar[tuple[str, ...]] = ("zfsutils-linux",)

    type: Literal["zfs"] = "zfs"

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        level = read_level(data.get("level", DEFAULT))
        return {**data, "level": LEVELS_OF_MD.get(level, level)}

    def _refuse_chunk(self) -> None:
        if self.chunk_size is not None:
            raise RequestError(
                f"chunk size {format_size(self.chunk_size)}: ZFS has no chunks, as it divides each block among the "
                "disks by sectors; leave the chunk size out"
            )
        if self.level == "10" and len(self.members) % _MIRRORED:
            raise RequestError(
                f"RAID10 of ZFS is a stripe of mirrors of {_MIRRORED} disks, but {len(self.members)} is odd"
            )

    @property
    def least_members(self) -> int:
        """The smallest number of members. A stripe of mirrors has at least two mirrors of two disks."""
        return 2 * _MIRRORED if self.level == "10" else super().least_members

    @property
    def policy(self) -> str:
        """The consistency policy: none. New data never overwrites data of the last transaction group."""
        return "none"

    @property
    def skips_resync(self) -> bool:
        """Whether the array is created without a first resync: always, as ZFS has none."""
        return True

    def caveats(self) -> tuple[str, ...]:
        """Return no sentences: an array without a first resync is the deployed one."""
        return ()

    @property
    def geometry(self) -> Geometry:
        """The sector, the data disks, and the disks of the pool."""
        return Geometry(SECTOR, self.raid.data_disks, Separate(self.level, tuple(map(disk_path, self.members))))

    @property
    def device_paths(self) -> tuple[str, ...]:
        """The name of the pool: its root dataset has no device."""
        return (POOL,)

    def create_commands(self) -> list[list[str]]:
        """Return no commands: the creation of the file system makes the pool."""
        return []

    def checking(
        self,
        *,
        starts_dirty: bool = False,  # noqa: ARG002
        without: Sequence[str] = (),
        log: str | None = None,
    ) -> Checking:
        """Return how a checker imports and exports the pool. ZFS is never dirty."""
        there = [serial for serial in (*self.members, *((log,) if log else ())) if serial not in without]
        imported = Assembly(POOL, tuple(import_command(there)), ZFS_POOL, POOL)
        return Checking(assemble=(imported,), stop=(tuple(export_command()),))

    @property
    def unreadable(self) -> str | None:
        """The reason why copies and parity are not compared: their places are in the block pointers of ZFS."""
        return "ZFS stores the places of copies and parity in block pointers, which are not read here"

    def array(self, machine: Machine) -> "ZfsRaid":
        """Return the object that controls the pool on a machine."""
        return ZfsRaid(self, machine)


def vdev_words(level: str, devices: Sequence[str]) -> list[str]:
    """Return the words of zpool create that make the top-level vdevs of a level of these devices."""
    if level == "10":
        pairs = zip(devices[::_MIRRORED], devices[1::_MIRRORED], strict=True)
        return [word for pair in pairs for word in ("mirror", *pair)]
    return ["mirror" if level == "1" else f"raid{level}", *devices]


def partitions_command(operation: Literal["add", "remove"], serials: Sequence[str]) -> list[str]:
    """Return the command that adds or removes the partitions of disks.

    The program `raidproof.guest.partitions` is the command's standard input. Of whole disks, zpool create would write
    a table of partitions to each disk and then wait for udev, which a machine of raidproof does not have. A partition
    has all bytes of its disk, so that zpool import finds the label on the disk itself: it needs no partition.
    """
    return ["python3", "-I", "-", operation, *map(disk_path, serials)]


def status_command() -> list[str]:
    """Return the command that prints the state of the imported pool as JSON, with the paths of its devices."""
    return ["zpool", "status", "-j", "--json-int", "-P", POOL]


def import_command(serials: Sequence[str]) -> list[str]:
    """Return the command that imports the pool from these disks, without force and without mounting a dataset.

    By one variable, zpool loads the module. Without the other one, it waits 3 s at each disk for udev's entry of it
    (libzfs_load_module and encode_device_strings in OpenZFS).
    """
    paths = [word for serial in serials for word in ("-d", disk_path(serial))]
    variables = ("ZFS_MODULE_LOADING=YES", "ZFS_VDEV_DEVID_OPT_OUT=YES")
    return ["env", *variables, "zpool", "import", "-N", *paths, "-o", "cachefile=none", POOL]


def export_command() -> list[str]:
    """Return the command that takes the pool offline. No dataset may be mounted."""
    return ["zpool", "export", POOL]


class Leaf(NamedTuple):
    """A disk of a pool."""

    path: str
    """The path of the whole disk."""
    state: str
    """``ONLINE``, ``DEGRADED``, ``FAULTED``, ``UNAVAIL``, ``OFFLINE`` or ``REMOVED`` (zpoolconcepts(7))."""
    errors: int
    """Read, write and checksum errors since the import."""
    guid: str
    """The GUID by which commands of zpool(8) name the disk."""


class PoolStatus(NamedTuple):
    """The state of the imported pool."""

    guid: str
    state: str
    vdevs: tuple[str, ...]
    """The names of the top-level vdevs with data, without their numbers: ``raidz1``."""
    leaves: tuple[Leaf, ...]
    """The disks with data, in the order of the pool."""
    logs: tuple[Leaf, ...]
    """The separate log devices (SLOG)."""
    errors: int
    """Errors of data that no copy and no parity could correct."""
    action: str
    """The background work in the words of md/sync_action."""
    scanned_errors: int
    """Errors of the last scrub that it could not correct."""
    scrubbed: bool
    """Whether the last scrub has ended."""


def parse_status(text: str) -> PoolStatus:
    """Return the state of the pool in the output of `status_command`.

    Raises:
        RigError: the output is truncated or malformed.
    """
    try:
        (pool,) = json.loads(text)["pools"].values()
        (root,) = pool["vdevs"].values()
        tops = [*root["vdevs"].values()]
        scan = pool.get("scan_stats") or {}
        running = scan.get("state") == "SCANNING"
        return PoolStatus(
            guid=str(pool["pool_guid"]),
            state=str(pool["state"]),
            vdevs=tuple(str(top["name"]).rpartition("-")[0] for top in tops),
            leaves=tuple(leaf for top in tops for leaf in _leaves(top)),
            logs=tuple(leaf for log in pool.get("logs", {}).values() for leaf in _leaves(log)),
            errors=int(pool["error_count"]),
            action=_ACTIONS.get(scan["function"], "resync") if running else "idle",
            scanned_errors=int(scan.get("errors", 0)),
            scrubbed=scan.get("function") == "SCRUB" and scan.get("state") == "FINISHED",
        )
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise RigError(f"zpool status should print one pool, printed: {text.strip()[-300:] or 'nothing'}") from error


def _leaves(vdev: Mapping[str, Any]) -> Iterator[Leaf]:
    children = vdev.get("vdevs")
    if children:
        for child in children.values():
            yield from _leaves(child)
        return
    counted = sum(int(vdev[f"{kind}_errors"]) for kind in ("read", "write", "checksum"))
    yield Leaf(str(vdev["path"]).removesuffix(partitions.PART), str(vdev["state"]), counted, str(vdev["guid"]))


class Label(NamedTuple):
    """The values of the label of ZFS on one disk that identify it."""

    pool: str
    """The GUID of the pool."""
    disk: str
    """The GUID of the disk."""
    slot: int
    """The number of the disk in the pool."""
    txg: int
    """The transaction group that wrote the label."""


def label_command(serial: str) -> list[str]:
    """Return the command that prints the label of ZFS on a member."""
    return ["zdb", "-l", disk_path(serial)]


def parse_label(text: str, width: int) -> Label | None:
    """Return the values of the output of `label_command`; None if the disk has no label.

    ``width``: number of disks of a top-level vdev.

    Raises:
        RigError: the output is truncated or malformed.
    """
    if "LABEL 0" not in text or re.search(rf"^{_NO_LABEL} 0", text, re.MULTILINE):
        return None
    # The last line: without it the output is truncated.
    found_in(r"^    labels = ([0-9 ]+)$", text, "zdb: labels")
    disk = found_in(r"^    guid: (\d+)$", text, "zdb: guid")
    top = int(found_in(r"^        id: (\d+)$", text, "zdb: id of the top-level vdev"))
    slots = [int(number) for number, body in _CHILD.findall(text) if f" guid: {disk}\n" in body]
    if len(slots) != 1:
        raise RigError(f"zdb: the label of disk {disk} should list it once, found {len(slots)}: {text.strip()[-300:]}")
    return Label(
        pool=found_in(r"^    pool_guid: (\d+)$", text, "zdb: pool_guid"),
        disk=disk,
        slot=top * width + slots[0],
        txg=int(found_in(r"^    txg: (\d+)$", text, "zdb: txg")),
    )


class ZfsRaidState(DeviceState):
    """The effective state of the pool, from zpool status and sysfs."""

    checksummed: bool = True
    guid: str | None
    """The GUID of the pool; None if no pool is imported, as before its creation."""
    state: str | None
    """``ONLINE``, ``DEGRADED`` or another state of zpoolconcepts(7)."""
    vdevs: tuple[str, ...]
    """The top-level vdevs: ``raidz1``."""
    logs: tuple[str, ...]
    """The states of the separate log devices."""

    @property
    def clean(self) -> bool:
        """Whether the pool is imported with all its disks, and idle."""
        return super().clean and self.state == _ONLINE


class ZfsRaid(Array):
    """The pool of one machine: imported, exported, read, and scrubbed."""

    spec: ZfsRaidSpec

    def create(self) -> None:
        """Load the module, and add the partitions. The creation of the file system makes the pool.

        Raises:
            RequirementMissing: the machine has no module zfs.
        """
        self._load()
        self._partition("add")

    def _load(self) -> None:
        if not self.machine.run(["modprobe", "zfs"]).ok:
            raise RequirementMissing(
                f"{self.machine.name}: the kernel has no module zfs",
                remedy=f"write --provider qemu --server kernel={SOFTWARE.kernel} --server image={SOFTWARE.image}",
            )

    def _partition(self, operation: Literal["add", "remove"]) -> None:
        self.machine.succeed(partitions_command(operation, self._disks), stdin=_PROGRAM)

    @property
    def _disks(self) -> tuple[str, ...]:
        """The serials of the members and of the log."""
        return (*self.spec.members, *((self.log,) if self.log else ()))

    def activate(self) -> ArrayState:
        """Import the pool from its disks.

        Raises:
            CommandFailed: the pool cannot be imported.
            NotEffective: an effective value differs from the requested one, or a disk is missing.
        """
        self._load()
        self.machine.succeed(import_command(self._disks), deadline_s=IMPORT_DEADLINE_S)
        return self.require_effective()

    def deactivate(self) -> None:
        """Export the pool, if it exists. Its dataset must not be mounted."""
        if self._status() is not None:
            self.machine.succeed(export_command(), deadline_s=IMPORT_DEADLINE_S)

    def take_out(self, serial: str) -> None:
        """Take the disk offline (zpool-offline(8)); it stays offline after the next import.

        Raises:
            RequestError: the pool has no such member.
            CommandFailed: the pool cannot do without it.
        """
        self.machine.succeed(["zpool", "offline", POOL, self._guid(serial)])

    def take_back(self, serial: str) -> None:
        """Bring the disk online: ZFS writes to it what it lacks (zpool-online(8))."""
        self.machine.succeed(["zpool", "online", POOL, self._guid(serial)])

    def _guid(self, serial: str) -> str:
        self.spec.refuse_loss(serial)
        pool = parse_status(self.machine.succeed(status_command()))
        return next(leaf.guid for leaf in pool.leaves if leaf.path == disk_path(serial))

    def destroy(self) -> None:
        """Destroy the pool if it exists, and erase the labels of ZFS and the partitions from its disks."""
        if self._status() is not None:
            self.machine.succeed(["zpool", "destroy", POOL], deadline_s=IMPORT_DEADLINE_S)
        for serial in self._disks:
            # zdb fails if the device has no label, and zpool labelclear does, too.
            if self.machine.run(label_command(serial)).ok:
                self.machine.succeed(["zpool", "labelclear", "-f", disk_path(serial)])
        self._partition("remove")

    def _status(self) -> PoolStatus | None:
        ended = self.machine.run(status_command())
        if ended.ok:
            return parse_status(ended.stdout)
        if _NO_POOL not in ended.stderr:
            raise RigError(f"zpool status failed: {ended.stderr.strip()[-300:] or 'no message'}")
        return None

    def state(self) -> ArrayState:
        """Read the effective state of the pool; it may not exist yet.

        Raises:
            RigError: the output of zpool is truncated.
        """
        return ArrayState(devices=(self._found(),))

    def _found(self) -> ZfsRaidState:
        pool = self._status()
        paths = [disk_path(serial) for serial in self.spec.members]
        names = dict(zip(paths, self.machine.resolve(paths), strict=True))
        queue = f"/sys/block/{names[paths[0]].removeprefix('/dev/')}/queue"
        content = read_files(self.machine, [f"{queue}/{file}" for file in _QUEUE_FILES])
        leaves = pool.leaves if pool else ()
        return ZfsRaidState(
            device=self.device,
            level=self.spec.level,
            raid_disks=len(leaves) or len(paths),
            chunk_size=None,
            layout=None,
            degraded=sum(leaf.state != _ONLINE for leaf in leaves),
            sync_action=pool.action if pool else "idle",
            resynced=True,
            mismatch_cnt=0,
            minimum_io_size=whole_number(content[f"{queue}/minimum_io_size"], "minimum_io_size"),
            optimal_io_size=whole_number(content[f"{queue}/optimal_io_size"], "optimal_io_size"),
            write_cache=content[f"{queue}/write_cache"].strip(),
            members=tuple(
                MemberState(
                    device=leaf.path,
                    kernel_name=names.get(leaf.path, leaf.path).removeprefix("/dev/"),
                    slot=slot,
                    state=("in_sync",) if leaf.state == _ONLINE else (leaf.state.lower(),),
                )
                for slot, leaf in enumerate(leaves)
            ),
            guid=pool.guid if pool else None,
            state=pool.state if pool else None,
            vdevs=pool.vdevs if pool else (),
            logs=tuple(leaf.state for leaf in pool.logs) if pool else (),
        )

    def require_effective(self) -> ArrayState:
        """Verify that the effective state of the pool is as requested, and return it.

        Raises:
            NotEffective: an effective value differs from the requested one, or a disk is missing unexpectedly.
        """
        found = self._found()
        paths = tuple(disk_path(serial) for serial in self.spec.members)
        absent = {disk_path(serial) for serial in self.expected_deviation.absent}
        asked: dict[str, Value] = {
            "state": _DEGRADED if absent else _ONLINE,
            "vdevs": tuple(word for word in vdev_words(self.spec.level, paths) if word not in paths),
            "inputs": tuple(path for path in paths if path not in absent),
            "logs": (_ONLINE,) if self.log else (),
        }
        effective: dict[str, Value] = {
            "state": found.state,
            "vdevs": found.vdevs,
            "inputs": tuple(one.device for one in found.members if one.state == ("in_sync",)),
            "logs": found.logs,
        }
        require_effective(f"pool {self.device}", asked, effective)
        return ArrayState(devices=(found,))

    def identities(self, *, online: bool = False) -> dict[str, Identity]:  # noqa: ARG002
        """Read the label of ZFS on each disk, by serial. ZFS stores no time of creation there."""
        width = _MIRRORED if self.spec.level == "10" else len(self.spec.members)
        found = {}
        for serial in self.spec.members:
            # zdb drops the pages of the device from the page cache first.
            ended = self.machine.run(label_command(serial))
            if (one := parse_label(ended.stdout, width)) is not None:
                found[serial] = Identity(
                    # A change of the pool is written to the labels of one top-level vdev, that is, of its disks.
                    array_uuid=f"{one.pool}:{one.slot // width}",
                    created="",
                    device_uuid=one.disk,
                    role=f"Active device {one.slot}",
                    events=one.txg,
                    state="clean",
                )
        return found

    def wait_clean(self, deadline_s: float = SYNC_DEADLINE_S) -> ArrayState:
        """Return the state; ZFS has no resync. Before the creation of the pool there is nothing to wait for.

        Raises:
            DeadlineExceeded: the pool is not ``ONLINE`` and idle within ``deadline_s`` seconds.
        """
        if self._status() is None:
            return self.state()
        return wait_until(self._clean, Deadline.after(deadline_s), f"pool {self.device} to be clean", _POLL_S)

    def _clean(self) -> ArrayState | None:
        state = self.state()
        return state if state.clean else None

    def scrub(self, deadline_s: float = SYNC_DEADLINE_S) -> Scrub:
        """Let ZFS verify the checksums of all copies and of all data and parity, and correct what is wrong.

        The number of wrong sectors includes those that reads have found since the import, as ZFS corrects them at
        once. Each error counts as one sector of ZFS. A second scrub counts what the first one could not correct.

        Raises:
            DeadlineExceeded: a scrub takes longer than ``deadline_s`` seconds.
            RigError: ZFS did not run a scrub.
        """
        deadline = Deadline.after(deadline_s)
        wrong, repaired = self._scrubbed(deadline), {}
        if wrong:
            self.machine.succeed(["zpool", "clear", POOL])
            repaired = {self.device: self._scrubbed(deadline)}
        return Scrub(mismatch_cnt={self.device: wrong}, unchecked={}, repaired=repaired)

    def _scrubbed(self, deadline: Deadline) -> int:
        """Scrub the pool, and return the 512-byte sectors that were wrong."""
        self.machine.succeed(["zpool", "scrub", "-w", POOL], deadline_s=deadline.remaining_s)
        pool = parse_status(self.machine.succeed(status_command()))
        if not pool.scrubbed:
            raise RigError(f"zpool scrub of pool {POOL} should end with the state FINISHED, but did not")
        errors = sum(leaf.errors for leaf in (*pool.leaves, *pool.logs))
        return max(errors, pool.errors, pool.scanned_errors) * (SECTOR // partitions.SECTOR)
