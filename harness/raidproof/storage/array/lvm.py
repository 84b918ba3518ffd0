"""Arrays of device-mapper's target ``raid`` through LVM: the request, and the array of a machine.

The target uses the code of md for its levels, and metadata of its own. Sources: lvmraid(7), the kernel's
Documentation/admin-guide/device-mapper/dm-raid.rst, and drivers/md/dm-raid.c.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple, Self

from pydantic import model_validator

from raidproof.core.errors import NotEffective, RequestError, RigError
from raidproof.core.layer import Machine, Value, found_in, read_files, require_effective, whole_number
from raidproof.core.units import KIB, MIB, SECTOR
from raidproof.core.waiting import Deadline, wait_until
from raidproof.guest.assembled import DM_RAID
from raidproof.storage.array.array import SYNC_DEADLINE_S, Array, ArraySpec, Checking, Scrub
from raidproof.storage.array.dm_error import fail_commands
from raidproof.storage.array.dm_superblock import SUPERBLOCK_BYTES, RaidSuperblock, group_of, parse_superblock
from raidproof.storage.array.level import level_of
from raidproof.storage.array.state import ArrayState, DeviceState, Identity, MemberState
from raidproof.storage.array.superblock import IN_SYNC, Read, Superblock
from raidproof.storage.member import Assembly, disk_path, serial_of

GROUP, VOLUME = "raidproof", "array"
"""The names of the volume group and of the logical volume."""
NAME = f"{GROUP}-{VOLUME}"
"""The name of the logical volume in device-mapper."""
MINOR = 100
"""The minor number of the logical volume, so that the kernel's name of the device is known without udev."""
DEVICE = f"/dev/dm-{MINOR}"
EXTENT = 4 * MIB
"""Bytes of an extent of the volume group."""
DATA_AT = MIB
"""Offset in bytes of the first extent on a member."""
META, IMAGE = DATA_AT, DATA_AT + EXTENT
"""Offsets in bytes, on a member, of the metadata (one extent) and of the data of the array."""
BITMAP_AT = 4096
"""Offset in bytes of the write-intent bitmap in the metadata (raid_ctr in dm-raid.c sets bitmap_info.offset)."""
WITH_INTEGRITY = 80
"""Percentage of the volume group for an array with dm-integrity: the rest is for the checksums and journals."""
_POLL_S = 0.1
_QUEUE_FILES = ("minimum_io_size", "optimal_io_size", "write_cache")
_NO_RESYNC = frozenset({"1", "5", "10"})
"""Levels for which lvcreate accepts --nosync; it refuses the option for RAID6."""
_LIVE, _BEHIND, _DEAD, _NONE = "A", "a", "D", "-"
_FLAGS = {_LIVE: ("in_sync",), _BEHIND: ("rebuilding",), _DEAD: ("faulty",), _NONE: ("faulty",)}
_DONE = re.compile(r"md: mdX: check done\.")


class LvmSpec(ArraySpec):
    """The requested array of the target ``raid`` of device-mapper, a logical volume of LVM."""

    axes: ClassVar[Mapping[str, str]] = {"integrity": "checksums of dm-integrity below each member (lvmraid(7))"}
    levels: ClassVar[frozenset[str] | None] = frozenset({"1", "5", "6", "10"})
    damage: ClassVar[str] = r"device-mapper: (?:raid|integrity): .*(?:[Cc]hecksum failed|Failed to read superblock)"
    lost: ClassVar[str] = r"device-mapper: raid: Failed to read superblock of device at position \d+"
    forcing: ClassVar[frozenset[str]] = frozenset({"--yes", "--persistent=y", f"--minor={MINOR}"})
    packages: ClassVar[tuple[str, ...]] = ("lvm2", "dmsetup")

    type: Literal["lvm"] = "lvm"
    integrity: Literal["none", "journal", "bitmap"] = "none"
    """Whether dm-integrity keeps checksums of each member's data, and how it makes them consistent after a crash."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.level == "10" and len(self.members) % 2:
            raise RequestError(f"RAID10 of LVM needs an even number of members, not {len(self.members)}")
        return self

    @property
    def least_members(self) -> int:
        """The smallest number of members: LVM stores two copies, and needs two stripes, or three for RAID6."""
        return {"6": 5, "10": 4}.get(self.level, super().least_members)

    @property
    def layout_name(self) -> str | None:
        """The layout that LVM chooses: RAID6 has raid6_zr, the others have the default of mdadm."""
        return "ddf-zero-restart" if self.level == "6" else None

    @property
    def policy(self) -> str:
        """The consistency policy: the metadata of each member has a write-intent bitmap."""
        return "bitmap"

    @property
    def skips_resync(self) -> bool:
        """Whether the array is created without a first resync. RAID6 and dm-integrity need one."""
        return self.assume_clean and self.level in _NO_RESYNC and self.integrity == "none"

    @property
    def device_paths(self) -> tuple[str, ...]:
        """The path of the logical volume."""
        return (DEVICE,)

    @property
    def paths(self) -> tuple[str, ...]:
        """The device paths of the members."""
        return tuple(map(disk_path, self.members))

    @property
    def only_members(self) -> str:
        """The option by which a command of LVM considers no other device."""
        return only(self.members)

    def create_commands(self) -> list[list[str]]:
        """Return the commands that create the physical volumes, the volume group and the logical volume."""
        width = {"1": ["--mirrors", str(len(self.members) - 1)], "10": ["--mirrors", "1"]}.get(self.level, [])
        stripes = [] if self.chunk_size is None else ["--stripes", str(self.raid.width)]
        size = [] if self.chunk_size is None else ["--stripesize", f"{self.chunk_size // KIB}k"]
        checked = self.integrity != "none"
        integrity = ["--raidintegrity", "y", "--raidintegritymode", self.integrity] if checked else []
        return [
            ["pvcreate", "--yes", "--dataalignment", f"{DATA_AT // MIB}m", *self.paths],
            ["vgcreate", "--physicalextentsize", f"{EXTENT // MIB}m", GROUP, *self.paths],
            [
                "lvcreate",
                "--yes",
                "--persistent=y",
                f"--minor={MINOR}",
                "--type",
                f"raid{self.level}",
                *width,
                *stripes,
                *size,
                *integrity,
                *(["--nosync"] if self.skips_resync else []),
                # The next layer writes its own first blocks; without udev lvcreate cannot search for signatures.
                "--wipesignatures=n",
                "--zero=n",
                "--extents",
                # lvcreate takes a percentage below 100 for the size of the data without copies and parity.
                f"{WITH_INTEGRITY * self.raid.width // len(self.members) if checked else 100}%FREE",
                "--name",
                VOLUME,
                GROUP,
                *self.paths,
            ],
        ]

    def activate_command(self, *, active: bool, without: Sequence[str] = ()) -> list[str]:
        """Return the command that assembles the array, or stops it; ``without``: serials of lost members."""
        left = [serial for serial in self.members if serial not in without]
        degraded = ["--activationmode", "degraded"] if active and without else []
        return ["vgchange", only(left), *degraded, "--activate", "y" if active else "n", GROUP]

    def checking(
        self,
        *,
        starts_dirty: bool = False,  # noqa: ARG002
        without: Sequence[str] = (),
        log: str | None = None,  # noqa: ARG002
    ) -> Checking:
        """Return how a checker activates and deactivates the volume group. The target starts a dirty array anyway."""
        up, down = (tuple(self.activate_command(active=active, without=without)) for active in (True, False))
        return Checking(assemble=(Assembly(DEVICE, up, DM_RAID, NAME),), stop=(down,))

    def refuse_loss(self, serial: str) -> None:
        """Check that the array has this member, and that LVM activates the volume without it.

        Raises:
            RequestError: it has not, or LVM does not.
        """
        super().refuse_loss(serial)
        if self.integrity != "none":
            # _lv_may_be_activated_in_degraded_mode in lvm2's lib/metadata/raid_manip.c permits lost parts of the raid
            # only, and the parts of dm-integrity below them are none.
            raise RequestError(
                f"LVM does not activate a volume with integrity = {self.integrity} without {serial}: vgchange "
                "--activationmode degraded refuses it, so that the data is unavailable"
            )

    @property
    def unreadable(self) -> str | None:
        """The reason why the members' content cannot be read: dm-integrity keeps new data in its journal first."""
        return None if self.integrity == "none" else "the members' data is below dm-integrity"

    def superblock(self, read: Read) -> Superblock | None:
        """Return the metadata of a member of device-mapper's target ``raid``, in the form of md's superblock."""
        found = parse_superblock(read(META, SUPERBLOCK_BYTES))
        group = group_of(read)
        if found is None or group is None:
            return None
        return found.placed(group, NAME, bitmap_at=META + BITMAP_AT, data_at=IMAGE)

    def array(self, machine: Machine) -> "LvmArray":
        """Return the object that controls the array on a machine."""
        return LvmArray(self, machine)


def only(serials: Iterable[str]) -> str:
    """Return the option by which a command of LVM considers only the disks with these serials."""
    return f"--devices={','.join(map(disk_path, serials))}"


class RaidStatus(NamedTuple):
    """The line of ``dmsetup status`` for the target ``raid``."""

    raid_type: str
    """Level and layout in the words of LVM: ``raid5_ls``."""
    health: str
    """One character for each slot: ``A`` in sync, ``a`` not in sync, ``D`` dead."""
    done: int
    """Sectors that the background work has finished."""
    total: int
    action: str
    mismatches: int
    """Sectors that the last check found to differ; 0 after other background work."""


def parse_status(text: str) -> RaidStatus:
    """Parse the output of ``dmsetup status NAME``: ``0 1130496 raid raid5_ls 4 AAAA 376832/376832 idle 0 0 -``.

    Raises:
        RigError: the line is truncated, or of another target.
    """
    match = re.fullmatch(r"\d+ \d+ raid (\S+) (\d+) ([AaD-]+) (\d+)/(\d+) (\S+) (\d+) \d+ \S+\s*", text)
    if match is None or int(match[2]) != len(match[3]):
        raise RigError(f"dmsetup status {NAME}: expected a line of the target raid, found {text.strip()!r}")
    return RaidStatus(match[1], match[3], int(match[4]), int(match[5]), match[6], int(match[7]))


class RaidTable(NamedTuple):
    """The line of ``dmsetup table`` for the target ``raid``."""

    raid_type: str
    chunk_size: int | None
    """Bytes; None for a mirror."""
    region_size: int
    """Bytes that one bit of the bitmap covers."""
    members: int


def parse_table(text: str) -> RaidTable:
    """Parse the output of ``dmsetup table NAME``: ``0 1130496 raid raid5_ls 3 128 region_size 4096 4 252:0 ...``.

    Raises:
        RigError: the line is truncated, or of another target.
    """
    head = re.match(r"\d+ \d+ raid (\S+) (\d+) (.*)", text)
    words = head[3].split() if head else []
    count = int(head[2]) if head else 0
    rest = words[count:]
    if head is None or not rest or not rest[0].isdecimal() or len(rest) != 1 + 2 * int(rest[0]):
        raise RigError(f"dmsetup table {NAME}: expected a line of the target raid, found {text.strip()!r}")
    parameters = words[:count]
    if "region_size" not in parameters[:-1]:
        raise RigError(f"dmsetup table {NAME}: no region_size in {text.strip()!r}")
    region = whole_number(parameters[parameters.index("region_size") + 1], "region_size")
    return RaidTable(head[1], int(parameters[0]) * SECTOR or None, region * SECTOR, int(rest[0]))


class Volume(NamedTuple):
    """A logical volume in the report of lvs, or a part of one."""

    devices: str
    """The devices below, each with its first extent: ``/dev/vda(1)``."""
    health: str
    created: str


def lvs_command(spec: LvmSpec) -> list[str]:
    """Return the command that reports the logical volume and its parts."""
    columns = "lv_name,devices,lv_health_status,lv_time"
    return ["lvs", spec.only_members, "--all", "--options", columns, "--reportformat", "json", GROUP]


def parse_lvs(text: str) -> dict[str, Volume]:
    """Parse the output of `lvs_command`: the logical volumes by name.

    Raises:
        RigError: the output is truncated or malformed.
    """
    return {
        row["lv_name"].strip("[]"): Volume(row["devices"], row["lv_health_status"], row["lv_time"])
        for row in _rows(text, "lv", ("lv_name", "devices", "lv_health_status", "lv_time"))
    }


def pvs_command(spec: LvmSpec) -> list[str]:
    """Return the command that reports the physical volumes; the volume group may be inactive."""
    return ["pvs", spec.only_members, "--options", "pv_name,pv_uuid,vg_uuid", "--reportformat", "json"]


def parse_pvs(text: str) -> dict[str, tuple[str, str]]:
    """Parse the output of `pvs_command`: UUIDs of the physical volume and of its volume group, by device path.

    Raises:
        RigError: the output is truncated or malformed.
    """
    rows = _rows(text, "pv", ("pv_name", "pv_uuid", "vg_uuid"))
    return {row["pv_name"]: (row["pv_uuid"], row["vg_uuid"]) for row in rows}


def _rows(text: str, what: str, columns: Sequence[str]) -> list[dict[str, str]]:
    try:
        rows: list[dict[str, str]] = [row for report in json.loads(text)["report"] for row in report[what]]
    except (ValueError, KeyError, TypeError) as error:
        raise RigError(f"{what}s: the report is truncated or malformed: {text[:200]!r}") from error
    if any(missing := [column for column in columns if column not in row] for row in rows):
        raise RigError(f"{what}s: the report has no columns {', '.join(columns)}: {text[:200]!r}; lacks {missing}")
    return rows


def superblock_command(path: str) -> list[str]:
    """Return the command that prints the superblock of the target ``raid`` on a member, as hexadecimal bytes."""
    options = ["--address-radix=n", "--output-duplicates", "--format=x1"]
    return ["od", *options, f"--skip-bytes={META}", f"--read-bytes={SUPERBLOCK_BYTES}", path]


def place_of(devices: str) -> tuple[str, int] | None:
    """Return device and first extent of a linear volume: ``/dev/vda(1)``; None if it consists of more than one."""
    match = re.fullmatch(r"([^,()]+)\((\d+)\)", devices)
    return (match[1], int(match[2])) if match else None


class LvmState(DeviceState):
    """The effective state of a logical volume of the target ``raid``, from dmsetup, lvs and sysfs."""

    raid_type: str
    """Level and layout in the words of LVM: ``raid5_ls``."""
    region_size: int
    """Bytes that one bit of the write-intent bitmap covers."""
    integrity: str
    """``journal`` or ``bitmap``: how dm-integrity below each member works; ``none`` without."""
    health: str
    """The column lv_health_status of lvs; empty if LVM reports no problem."""


class LvmArray(Array):
    """The logical volume of one machine, with the commands that create, activate, check, deactivate and remove it."""

    spec: LvmSpec

    def create(self) -> None:
        """Create and start the array, and verify that the effective state is as requested.

        Raises:
            NotEffective: an effective value differs from the requested one.
        """
        self._require_kernel()
        for command in self.spec.create_commands():
            self.machine.succeed(command)
        self.require_effective()

    def activate(self) -> ArrayState:
        """Activate the existing logical volume.

        Raises:
            CommandFailed: LVM does not activate the volume group.
            NotEffective: an effective value differs from the requested one, or a member is not in sync.
        """
        self._require_kernel()
        absent = self.expected_deviation.absent
        self.machine.succeed(self.spec.activate_command(active=True, without=sorted(absent)))
        state = self.require_effective()
        dead = [one.device for one in state.top.members if "faulty" in one.state]
        if missing := [path for path in dead if serial_of(path) not in absent]:
            raise NotEffective(f"{self.device} is active, but lacks: {', '.join(map(serial_of, missing))}")
        return state

    def deactivate(self) -> None:
        """Deactivate the volume group."""
        absent = sorted(self.expected_deviation.absent)
        self.machine.succeed(self.spec.activate_command(active=False, without=absent))

    def take_out(self, serial: str) -> None:
        """Let each request to the member's parts fail, as if the disk were gone; md detects that at the next write.

        Raises:
            RequestError: the array has no such member, or cannot do without it.
        """
        self.spec.refuse_loss(serial)
        for part in ("rmeta", "rimage"):
            name = f"{NAME}_{part}_{self.spec.members.index(serial)}"
            for command in fail_commands(name, self.machine.succeed(["dmsetup", "table", name])):
                self.machine.succeed(command)

    def take_back(self, serial: str) -> None:  # noqa: ARG002
        """Load the tables of all parts again: md then rebuilds the regions that its bitmap marks (lvmraid(7))."""
        self.machine.succeed(["lvchange", self.spec.only_members, "--refresh", f"{GROUP}/{VOLUME}"])

    def destroy(self) -> None:
        """Remove the logical volume, its group, and LVM's labels from the members."""
        only = self.spec.only_members
        self.machine.succeed(["vgremove", only, "--yes", GROUP])
        self.machine.succeed(["pvremove", "--yes", *self.spec.paths])

    def state(self) -> ArrayState:
        """Read the effective state of the logical volume.

        Raises:
            RigError: the logical volume is not active.
        """
        volumes = parse_lvs(self.machine.succeed(lvs_command(self.spec)))
        return ArrayState(devices=(self._state(volumes),))

    def _state(self, volumes: Mapping[str, Volume]) -> LvmState:
        status, table = self._status(), parse_table(self.machine.succeed(["dmsetup", "table", NAME]))
        kernel_names = self.machine.resolve(self.spec.paths)
        paths = {**dict(zip(kernel_names, self.spec.paths, strict=True)), **{path: path for path in self.spec.paths}}
        queue = f"/sys/block/{DEVICE.removeprefix('/dev/')}/queue"
        content = read_files(self.machine, [f"{queue}/{file}" for file in _QUEUE_FILES])
        superblock = self._superblocks([self.spec.paths[0]]).get(self.spec.paths[0])
        if superblock is None:
            raise RigError(f"{self.spec.paths[0]} has no superblock of the target raid at byte {META}")
        kind = level_of(superblock.level)
        layouts = {number: name for name, number in kind.layouts(table.members).items()}
        members = []
        for slot, letter in enumerate(status.health):
            path = paths.get(_below(volumes, f"{VOLUME}_rimage_{slot}")[0])
            if path is not None:
                name = dict(zip(self.spec.paths, kernel_names, strict=True))[path].removeprefix("/dev/")
                flags = _FLAGS.get(letter, ())
                members.append(MemberState(device=path, kernel_name=name, slot=slot, state=flags))
        return LvmState(
            device=DEVICE,
            level=kind.name,
            raid_disks=table.members,
            chunk_size=table.chunk_size if kind.chunked else None,
            layout=layouts.get(superblock.layout, str(superblock.layout)) if kind.default_layout else None,
            degraded=status.health.count(_DEAD) + status.health.count(_NONE),
            sync_action=status.action,
            resynced=_BEHIND not in status.health and (status.action != "idle" or status.done == status.total),
            mismatch_cnt=status.mismatches,
            minimum_io_size=whole_number(content[f"{queue}/minimum_io_size"], "minimum_io_size"),
            optimal_io_size=whole_number(content[f"{queue}/optimal_io_size"], "optimal_io_size"),
            write_cache=content[f"{queue}/write_cache"].strip(),
            members=tuple(members),
            raid_type=table.raid_type,
            region_size=table.region_size,
            integrity=self._integrity(volumes),
            health=volumes[VOLUME].health if VOLUME in volumes else "",
        )

    def _integrity(self, volumes: Mapping[str, Volume]) -> str:
        if not any(name.endswith("_imeta") for name in volumes):
            return "none"
        table = self.machine.succeed(["dmsetup", "table", f"{NAME}_rimage_0"])
        mode = found_in(r" integrity \S+ \d+ \S+ ([A-Z]) ", table, f"the mode of dm-integrity in {table!r}")
        return {"J": "journal", "B": "bitmap"}.get(mode, mode)

    def _status(self) -> RaidStatus:
        return parse_status(self.machine.succeed(["dmsetup", "status", NAME]))

    def require_effective(self) -> ArrayState:
        """Verify that the effective state of the array is as requested, and return it.

        The check includes the place of the array's metadata and data on the members.

        Raises:
            NotEffective: an effective value differs from the requested one.
        """
        volumes = parse_lvs(self.machine.succeed(lvs_command(self.spec)))
        state = self._state(volumes)
        require_effective(DEVICE, self._asked(), self._found(state, volumes))
        return ArrayState(devices=(state,))

    def _asked(self) -> dict[str, Value]:
        spec = self.spec
        # For RAID10 the kernel reports a width that also counts the copies.
        geometry = spec.geometry if spec.kind.parity else None
        checked = spec.integrity != "none"
        return {
            "level": spec.level,
            "raid_disks": len(spec.members),
            "chunk_size": spec.chunk_size,
            "layout": spec.layout_name or spec.kind.default_layout,
            "inputs": spec.paths,
            "integrity": spec.integrity,
            "stripe_width": geometry.stripe_unit * geometry.data_disks if geometry else None,
            "metadata_extent": 0,
            "data_extent": None if checked else 1,
        }

    def _found(self, state: LvmState, volumes: Mapping[str, Volume]) -> dict[str, Value]:
        slots = range(state.raid_disks)
        meta, data = (
            {_below(volumes, f"{VOLUME}_{part}_{slot}")[1] for slot in slots} for part in ("rmeta", "rimage")
        )
        return {
            "level": state.level,
            "raid_disks": state.raid_disks,
            "chunk_size": state.chunk_size,
            "layout": state.layout,
            "inputs": tuple(member.device for member in state.members),
            "integrity": state.integrity,
            "stripe_width": state.optimal_io_size,
            "metadata_extent": meta.pop() if len(meta) == 1 else None,
            "data_extent": data.pop() if len(data) == 1 else None,
        }

    def identities(self, *, online: bool = False) -> dict[str, Identity]:  # noqa: ARG002
        """Read the metadata of LVM and of the target ``raid`` on each disk, by serial."""
        # LVM ends with an error if a disk has lost its label. A verdict judges that, so the status is ignored.
        volumes = parse_pvs(self.machine.run(pvs_command(self.spec)).stdout)
        created = {
            name: one.created for name, one in parse_lvs(self.machine.run(lvs_command(self.spec)).stdout).items()
        }
        superblocks = self._superblocks(self.spec.paths)
        found = {}
        for path, real in zip(self.spec.paths, self.machine.resolve(self.spec.paths), strict=True):
            own, one = volumes.get(path) or volumes.get(real), superblocks.get(path)
            if own is None or one is None or not own[1]:
                continue
            found[serial_of(path)] = Identity(
                array_uuid=own[1],
                created=created.get(VOLUME, ""),
                device_uuid=own[0],
                role=f"Active device {one.position}",
                events=one.events,
                state="clean" if one.resync == IN_SYNC else "active",
                recovery_offset=None if one.recovery == IN_SYNC else one.recovery,
            )
        return found

    def _superblocks(self, paths: Sequence[str]) -> dict[str, RaidSuperblock]:
        found = {}
        for path in paths:
            words = self.machine.succeed(superblock_command(path)).split()
            if (one := parse_superblock(bytes.fromhex("".join(words)))) is not None:
                found[path] = one
        return found

    def wait_clean(self, deadline_s: float = SYNC_DEADLINE_S) -> ArrayState:
        """Wait until the array is idle, has all members, and is in sync; return its state.

        Raises:
            DeadlineExceeded: the rebuild or resync takes longer than ``deadline_s`` seconds.
        """
        deadline = Deadline.after(deadline_s)
        self._settle(deadline, "to be in sync")
        return wait_until(self._clean, deadline, f"{DEVICE} to be in sync", _POLL_S)

    def _clean(self) -> ArrayState | None:
        state = self.state()
        return state if state.clean else None

    def _settle(self, deadline: Deadline, what: str) -> RaidStatus:
        def settled() -> RaidStatus | None:
            status = self._status()
            return status if status.action == "idle" else None

        return wait_until(settled, deadline, f"{DEVICE} {what}", _POLL_S)

    def scrub(self, deadline_s: float = SYNC_DEADLINE_S) -> Scrub:
        """Let md check the copies or parity of the whole array, and wait for the end. A pending resync runs first.

        Raises:
            DeadlineExceeded: resync, check and repair together take longer than ``deadline_s`` seconds.
            RigError: md did not run the check.
        """
        deadline = Deadline.after(deadline_s)
        status = self._settle(deadline, "to end its resync")
        if dead := status.health.count(_DEAD):
            reason = f"degraded: {dead} members are missing or not rebuilt, so that md cannot compare"
            return Scrub(mismatch_cnt={}, unchecked={DEVICE: reason})
        counted, repaired = self._count(deadline), {}
        if counted:
            self.machine.succeed(self._action("repair"))
            self._settle(deadline, "to end its repair")
            repaired = {DEVICE: self._count(deadline)}
        return Scrub(mismatch_cnt={DEVICE: counted}, unchecked={}, repaired=repaired)

    def _count(self, deadline: Deadline) -> int:
        before = self._checks_done()
        self.machine.succeed(self._action("check"))
        status = self._settle(deadline, "to end its check")
        # The status of a check that did not run has no mismatches either; the kernel logs the end of each check.
        if self._checks_done() <= before:
            raise RigError(f"md did not run the requested check of {DEVICE}: the kernel log has no end of a check")
        return status.mismatches

    def _checks_done(self) -> int:
        return len(_DONE.findall(self.machine.succeed(["dmesg", "--notime"])))

    def _action(self, action: str) -> list[str]:
        return ["lvchange", self.spec.only_members, "--syncaction", action, f"{GROUP}/{VOLUME}"]


def _below(volumes: Mapping[str, Volume], name: str) -> tuple[str, int | None]:
    """Return the disk below a part of the array, and the part's first extent; an empty name if it is unknown."""
    seen = volumes.get(name)
    place = place_of(seen.devices) if seen is not None else None
    if place is None:
        return "", None
    # With dm-integrity, a part consists of other parts: data, and checksums.
    return _below(volumes, place[0]) if place[0] in volumes else place
