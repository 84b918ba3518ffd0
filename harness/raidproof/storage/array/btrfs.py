"""The RAID of btrfs: no array below the file system; btrfs writes copies and parity to all disks itself.

Sources: btrfs(5), mkfs.btrfs(8), btrfs-device(8), btrfs-scrub(8), and fs/btrfs in the kernel.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Self

from pydantic import model_validator

from raidproof.core.errors import NotEffective, RequestError, RigError
from raidproof.core.layer import Machine, Value, found_in, read_files, require_effective, whole_number
from raidproof.core.units import KIB, SECTOR, format_size
from raidproof.core.waiting import Deadline, wait_until
from raidproof.guest.assembled import SYSFS_BTRFS
from raidproof.storage.array.array import SYNC_DEADLINE_S, Array, ArraySpec, Checking, Geometry, Scrub, Separate
from raidproof.storage.array.level import LEVELS, Level, read_level
from raidproof.storage.array.raid import Raid1
from raidproof.storage.array.state import ArrayState, DeviceState, Identity, MemberState
from raidproof.storage.member import Assembly, disk_path, serial_of

STRIPE_UNIT = 64 * KIB
"""Consecutive bytes on one device (BTRFS_STRIPE_LEN in fs/btrfs/volumes.h)."""
SCRUBBED = "/run/raidproof/scrub"
"""The mount point of the file system while it is scrubbed."""
NO_SUPERBLOCK = "bad magic"
"""A part of the message of dump-super about a device without a superblock of btrfs."""
STILL_WRONG, UNCORRECTABLE = 1, 3
"""The exit statuses of a scrub that found errors which it could not correct (btrfs-scrub(8)); 1 is also that of a
scrub that did not run, which prints no counters."""
UNCOUNTED = "btrfs computes parity again during a scrub, and does not count parity that was wrong"
_LEAST = {"10": 4}
_MOUNTED = "/sys/fs/btrfs"
"""The folder with a folder for each mounted file system."""
_POLL_S = 0.1
_QUEUE_FILES = ("minimum_io_size", "optimal_io_size", "write_cache")
_DATA_CHUNK = re.compile(r"^\s+length \d+ owner \d+ stripe_len (\d+) type DATA(?:\|(\w+))?$", re.MULTILINE)
_ERRORS = ("read_errors", "csum_errors", "verify_errors", "super_errors")
"""Counters of btrfs-scrub(8) for blocks that cannot be read or are wrong, and for superblocks that are wrong."""
_UNCHECKED = "no_csum"


class TwoCopies(Raid1):
    """RAID1 of btrfs: two copies of each chunk, on two of any number of devices (mkfs.btrfs(8))."""

    @property
    def copies(self) -> int:
        """Two, whatever the number of members."""
        return 2

    @property
    def most_lost(self) -> int:
        """One: any two members hold both copies of some chunk."""
        return 1


class BtrfsRaidSpec(ArraySpec):
    """The requested RAID of a btrfs that has all member disks as its devices."""

    levels: ClassVar[frozenset[str] | None] = frozenset({"1", "5", "6", "10"})
    only_filesystem: ClassVar[str | None] = "btrfs"
    packages: ClassVar[tuple[str, ...]] = ("btrfs-progs",)

    type: Literal["btrfs"] = "btrfs"

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, data: Any) -> Any:
        if not isinstance(data, dict) or "chunk_size" in data or not LEVELS[read_level(data.get("level", 5))].chunked:
            return data
        return {**data, "chunk_size": STRIPE_UNIT}

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.chunk_size not in {None, STRIPE_UNIT}:
            raise RequestError(
                f"chunk size {format_size(self.chunk_size or 0)}: the stripe unit of btrfs is always "
                f"{format_size(STRIPE_UNIT)}; leave the chunk size out, or write {format_size(STRIPE_UNIT)}"
            )
        return self

    @property
    def least_members(self) -> int:
        """The smallest number of members. RAID10 has at least two stripe units of two copies."""
        return _LEAST.get(self.level, super().least_members)

    @property
    def raid(self) -> Level:
        """The level with its number of members. RAID1 has two copies, unlike that of md."""
        return TwoCopies(len(self.members)) if not self.kind.chunked else super().raid

    @property
    def policy(self) -> str:
        """The consistency policy: none. New data never overwrites data that the last commit refers to."""
        return "none"

    @property
    def skips_resync(self) -> bool:
        """Whether the array is created without a first resync: always, as btrfs has none."""
        return True

    def caveats(self) -> tuple[str, ...]:
        """Return a sentence about the write hole of a level with parity."""
        if not self.kind.parity:
            return ()
        return (
            f"RAID{self.level} of btrfs has a write hole: if a member is lost after a power cut, data that was not "
            "being written can be lost too (btrfs(5)); the tests without a lost member do not show this",
        )

    @property
    def geometry(self) -> Geometry:
        """The stripe unit, the data disks, and the devices of the file system."""
        return Geometry(STRIPE_UNIT, self.raid.data_disks, Separate(self.level, self.paths))

    @property
    def paths(self) -> tuple[str, ...]:
        """The device paths of the members."""
        return tuple(map(disk_path, self.members))

    @property
    def device_paths(self) -> tuple[str, ...]:
        """The path of the first member: the file system can be mounted by each of its devices."""
        return self.paths[:1]

    def create_commands(self) -> list[list[str]]:
        """Return no commands: the creation of the file system makes the array."""
        return []

    def scan_command(self, paths: Sequence[str] = ()) -> list[str]:
        """Return the command by which the kernel finds the devices of the file system; ``paths``: default all."""
        return ["btrfs", "device", "scan", *(paths or self.paths)]

    def forget_command(self, paths: Sequence[str] = ()) -> list[str]:
        """Return the command after which the kernel has no information about the devices; ``paths``: default all."""
        return ["btrfs", "device", "scan", "--forget", *(paths or self.paths)]

    def checking(
        self,
        *,
        starts_dirty: bool = False,  # noqa: ARG002
        without: Sequence[str] = (),
        log: str | None = None,  # noqa: ARG002
    ) -> Checking:
        """Return how a checker makes the devices known to the kernel, and unknown again. btrfs is never dirty."""
        there = [disk_path(serial) for serial in self.members if serial not in without]
        scan, forget = (tuple(one) for one in (self.scan_command(there), self.forget_command(there)))
        known = Assembly(there[0], scan, SYSFS_BTRFS, self.only_filesystem or "")
        return Checking(assemble=(known,), stop=(forget,), mount_options=("degraded",) if without else ())

    @property
    def unreadable(self) -> str | None:
        """The reason why copies and parity are not compared: their places are in the trees of btrfs."""
        return "btrfs stores the places of copies and parity in a tree, which is not read here"

    def array(self, machine: Machine) -> "BtrfsRaid":
        """Return the object that controls the devices on a machine."""
        return BtrfsRaid(self, machine)


class MemberSuper(NamedTuple):
    """The values of the superblock of btrfs on one device that identify it."""

    fsid: str
    """The UUID of the file system."""
    uuid: str
    """The UUID of the device."""
    number: int
    """The number of the device in the file system; the first one has 1."""
    devices: int
    """The number of devices of the file system."""
    generation: int
    """The number of the transaction that wrote the superblock."""


def super_command(path: str) -> list[str]:
    """Return the command that prints the superblock of a device."""
    return ["btrfs", "inspect-internal", "dump-super", path]


def parse_member(text: str) -> MemberSuper | None:
    """Return the values of the output of `super_command`; None if the device has no superblock of btrfs.

    Raises:
        RigError: the output is truncated or malformed.
    """
    if NO_SUPERBLOCK in text:
        return None

    def value(name: str, form: str) -> str:
        return found_in(rf"^{re.escape(name)}\s+({form})(?: \[match\])?$", text, f"dump-super: {name}")

    # The last line: without it the output is truncated.
    value("dev_item.generation", r"\d+")
    return MemberSuper(
        fsid=value("dev_item.fsid", r"[0-9a-f-]{36}"),
        uuid=value("dev_item.uuid", r"[0-9a-f-]{36}"),
        number=int(value("dev_item.devid", r"\d+")),
        devices=int(value("num_devices", r"\d+")),
        generation=int(value("generation", r"\d+")),
    )


def parse_data_chunks(text: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the profiles and stripe units of the chunks of data, from the output of ``dump-tree -t chunk``.

    Raises:
        RigError: the output has no chunk of data.
    """
    found = _DATA_CHUNK.findall(text)
    if not found:
        raise RigError(f"dump-tree: expected a chunk with data, found {text.strip()[-300:] or 'no output'}")
    profiles = sorted({profile.lower() or "single" for _, profile in found})
    return tuple(profiles), tuple(sorted({int(unit) for unit, _ in found}))


def parse_scrub(text: str) -> dict[str, int]:
    """Return the counters of the output of ``btrfs scrub start -B -R`` by name.

    Raises:
        RigError: the scrub did not end, or the output is truncated.
    """
    status = found_in(r"^Status:\s+(\w+)$", text, "btrfs scrub: status")
    if status != "finished":
        raise RigError(f"btrfs scrub should end with the status finished, but its status is {status}")
    names = (*_ERRORS, _UNCHECKED, "uncorrectable_errors", "corrected_errors", "last_physical")
    return {name: int(found_in(rf"^\s+{name}: (\d+)$", text, f"btrfs scrub: {name}")) for name in names}


def wrong_blocks(counted: Mapping[str, int]) -> int:
    """Return the number of blocks that a scrub found to be unreadable or wrong."""
    return sum(counted[name] for name in _ERRORS)


class BtrfsRaidState(DeviceState):
    """The effective state of the devices of a btrfs, from their superblocks, the tree of chunks, and sysfs."""

    checksummed: bool = True
    fsid: str | None
    """The UUID of the file system; None if no member has a superblock of btrfs, as before its creation."""
    profiles: tuple[str, ...]
    """The profiles of the chunks of data: ``raid5``; several if btrfs has also allocated chunks of another profile."""

    @property
    def clean(self) -> bool:
        """Whether all devices of the file system exist."""
        return super().clean and self.fsid is not None


class BtrfsRaid(Array):
    """The devices of the btrfs of one machine: made known to the kernel, read, and scrubbed."""

    removes_offline: ClassVar[bool] = True
    spec: BtrfsRaidSpec

    def create(self) -> None:
        """Start a kernel that can compute the parity. The creation of the file system makes the array."""
        self._require_kernel()

    def activate(self) -> ArrayState:
        """Make all devices of the existing file system known to the kernel.

        Raises:
            CommandFailed: a member has no superblock of btrfs.
            NotEffective: an effective value differs from the requested one, or a device is missing.
        """
        self._require_kernel()
        self.machine.succeed(self.spec.scan_command(self._there))
        return self.require_effective()

    def deactivate(self) -> None:
        """Make the devices unknown to the kernel. The file system must not be mounted."""
        self.machine.succeed(self.spec.forget_command(self._there))

    @property
    def _there(self) -> list[str]:
        """The device paths of the members that are not expected to be missing."""
        return [disk_path(serial) for serial in self.spec.members if serial not in self.expected_deviation.absent]

    @property
    def mount_options(self) -> tuple[str, ...]:
        """The option ``degraded`` while a member is missing."""
        return self.spec.checking(without=sorted(self.expected_deviation.absent)).mount_options

    def take_out(self, serial: str) -> None:
        """Check that the file system can do without the member. The next `activate` leaves it out.

        Raises:
            RequestError: the level has no redundancy, or the file system is mounted by this member.
        """
        self.spec.refuse_loss(serial)
        if disk_path(serial) == self.device:
            raise RequestError(
                f"{serial} cannot be removed: the file system is mounted by its path", remedy="choose another member"
            )

    def take_back(self, serial: str) -> None:
        """Let btrfs rebuild the member on its erased disk (btrfs-replace(8))."""
        path, number = disk_path(serial), self.spec.members.index(serial) + 1
        kind, options = str(self.spec.only_filesystem), ",".join(self.mount_options)
        self.machine.succeed(["wipefs", "--all", path])
        self.machine.succeed(self.spec.scan_command(self._there))
        self.machine.succeed(["mount", "--mkdir", "--types", kind, "--options", options, self.device, SCRUBBED])
        replace = ["btrfs", "replace", "start", "-B", str(number), path, SCRUBBED]
        try:
            self.machine.succeed(replace, deadline_s=SYNC_DEADLINE_S)
        finally:
            self.machine.succeed(["umount", SCRUBBED])

    def destroy(self) -> None:
        """Erase the superblocks of btrfs from the members."""
        self.deactivate()
        self.machine.succeed(["wipefs", "--all", *self.spec.paths])

    def state(self) -> ArrayState:
        """Read the effective state of the devices; the file system may be mounted, or not exist yet.

        Raises:
            RigError: the output of a tool is truncated.
            NotEffective: the chunks of data have a profile of another kind than RAID1, 10, 5 or 6.
        """
        found = self._supers()
        names = dict(zip(self.spec.paths, self.machine.resolve(self.spec.paths), strict=True))
        queue = f"/sys/block/{names[self.device].removeprefix('/dev/')}/queue"
        content = read_files(self.machine, [f"{queue}/{file}" for file in _QUEUE_FILES])
        fsid = _newest(found).fsid if found else None
        missing = self._missing(found.values())
        own = {path: one for path, one in found.items() if one.fsid == fsid and one.number not in missing}
        profiles, units = self._chunks(next(iter(own))) if own else ((), ())
        count = _newest(found).devices if found else len(self.spec.members)
        level = self._level(profiles)
        members = (
            MemberState(
                device=path,
                kernel_name=names[path].removeprefix("/dev/"),
                slot=one.number - 1,
                state=("in_sync",),
            )
            for path, one in own.items()
        )
        state = BtrfsRaidState(
            device=self.device,
            level=level,
            raid_disks=count,
            chunk_size=units[0] if len(units) == 1 and LEVELS[level].chunked else None,
            layout=None,
            degraded=max(count - len(own), 0),
            sync_action="idle",
            resynced=True,
            mismatch_cnt=0,
            minimum_io_size=whole_number(content[f"{queue}/minimum_io_size"], "minimum_io_size"),
            optimal_io_size=whole_number(content[f"{queue}/optimal_io_size"], "optimal_io_size"),
            write_cache=content[f"{queue}/write_cache"].strip(),
            members=tuple(sorted(members, key=lambda one: one.slot or 0)),
            fsid=fsid,
            profiles=profiles,
        )
        return ArrayState(devices=(state,))

    def _missing(self, found: Iterable[MemberSuper]) -> set[int]:
        """Return the numbers of the devices without which the file system is mounted."""
        paths = {f"{_MOUNTED}/{one.fsid}/devinfo/{one.number}/missing": one.number for one in found}
        return {paths[path] for path, word in self.machine.read_files(paths).items() if word.strip() == "1"}

    def _level(self, profiles: tuple[str, ...]) -> str:
        named = {name.removeprefix("raid") for name in profiles}
        if len(named) > 1 or named - (self.spec.levels or frozenset()):
            raise NotEffective(
                f"the data of btrfs is not as requested: requested raid{self.spec.level}, effective "
                f"{' and '.join(profiles)}"
            )
        return named.pop() if named else self.spec.level

    def _chunks(self, path: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
        return parse_data_chunks(self.machine.succeed(["btrfs", "inspect-internal", "dump-tree", "-t", "chunk", path]))

    def _supers(self) -> dict[str, MemberSuper]:
        """Return the superblock of each member that has one, by device path."""
        # A mounted file system does not update the pages of its devices in the page cache.
        self.machine.run(["blockdev", "--flushbufs", *self.spec.paths])
        found = {}
        for path in self.spec.paths:
            ended = self.machine.run(super_command(path))
            if (one := parse_member(f"{ended.stdout}\n{ended.stderr}")) is not None:
                found[path] = one
        return found

    def require_effective(self) -> ArrayState:
        """Verify that the effective state of the devices is as requested, and return it.

        Raises:
            NotEffective: an effective value differs from the requested one, or a device is missing.
        """
        state = self.state()
        (found,) = state.devices
        spec, inputs = self.spec, tuple(one.device for one in found.members)
        asked: dict[str, Value] = {
            "level": spec.level,
            "raid_disks": len(spec.members),
            "chunk_size": spec.chunk_size,
            "inputs": self.expected_deviation.left(spec.paths, inputs),
            "profiles": (f"raid{spec.level}",),
        }
        effective: dict[str, Value] = {
            "level": found.level,
            "raid_disks": found.raid_disks,
            "chunk_size": found.chunk_size,
            "inputs": inputs,
            "profiles": found.profiles if isinstance(found, BtrfsRaidState) else (),
        }
        require_effective(f"RAID of btrfs on {self.device}", asked, effective)
        return state

    def identities(self, *, online: bool = False) -> dict[str, Identity]:  # noqa: ARG002
        """Read the superblock of btrfs on each disk, by serial. btrfs stores no time of creation there."""
        return {
            serial_of(path): Identity(
                array_uuid=one.fsid,
                created="",
                device_uuid=one.uuid,
                role=f"Active device {one.number - 1}",
                events=one.generation,
                state="clean",
            )
            for path, one in self._supers().items()
        }

    def wait_clean(self, deadline_s: float = SYNC_DEADLINE_S) -> ArrayState:
        """Return the state; btrfs has no resync. Before the creation of the file system there is nothing to wait for.

        Raises:
            DeadlineExceeded: the file system lacks a device for ``deadline_s`` seconds.
        """
        if not self._supers():
            return self.state()
        return wait_until(self._clean, Deadline.after(deadline_s), f"{self.device} to have all its devices", _POLL_S)

    def _clean(self) -> ArrayState | None:
        state = self.state()
        return state if state.clean else None

    def scrub(self, deadline_s: float = SYNC_DEADLINE_S) -> Scrub:
        """Let btrfs verify the checksums of all copies, and correct them. The file system must not be mounted.

        Each wrong block counts as 4 KiB. Parity has no checksum and is not counted; on a level with parity, neither
        is a block that btrfs corrects while it computes parity. A read-only scrub would write parity of wrong data
        (docs/findings.md), so none is used: the first scrub counts and corrects, a second one counts what is left.

        Raises:
            DeadlineExceeded: a scrub takes longer than ``deadline_s`` seconds.
            RigError: btrfs did not run a scrub.
        """
        deadline = Deadline.after(deadline_s)
        kind = str(self.spec.only_filesystem)
        self.machine.succeed(["mount", "--mkdir", "--types", kind, self.device, SCRUBBED])
        try:
            counted, repaired = self._scrubbed(deadline), {}
            if wrong := wrong_blocks(counted):
                repaired = {self.device: _sectors(wrong_blocks(self._scrubbed(deadline)))}
        finally:
            self.machine.succeed(["umount", SCRUBBED])
        reasons = [UNCOUNTED] if self.spec.kind.parity else []
        if without := counted[_UNCHECKED]:
            reasons.append(f"{without} blocks of data have no checksum, so that btrfs cannot verify them")
        return Scrub(
            mismatch_cnt={self.device: _sectors(wrong)},
            unchecked={self.device: "; ".join(reasons)} if reasons else {},
            repaired=repaired,
        )

    def _scrubbed(self, deadline: Deadline) -> dict[str, int]:
        ended = self.machine.run(["btrfs", "scrub", "start", "-B", "-R", SCRUBBED], deadline_s=deadline.remaining_s)
        if ended.status not in {0, STILL_WRONG, UNCORRECTABLE}:
            raise RigError(f"btrfs scrub did not run, exit status {ended.status}: {ended.stderr.strip()[-300:]}")
        return parse_scrub(ended.stdout)


def _newest(found: Mapping[str, MemberSuper]) -> MemberSuper:
    return max(found.values(), key=lambda one: one.generation)


def _sectors(blocks: int) -> int:
    return blocks * (4 * KIB // SECTOR)
