"""The md array of a machine: mdadm commands, creation, assembly, checks, and maintenance of md devices."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple

from pydantic import Field

from raidproof.core.errors import NotEffective, RequestError, RigError
from raidproof.core.layer import HOMEHOST, Machine, State, read_files, require_effective
from raidproof.core.waiting import Deadline, wait_until
from raidproof.storage.array.level import LEVELS
from raidproof.storage.array.spec import ArraySpec, Md, disk_path
from raidproof.storage.array.state import (
    ArrayState,
    ExpectedDeviation,
    Identity,
    MdState,
    asked_of,
    examine_command,
    found_of,
    parse_examine,
    parse_md,
    serial_of,
    state_paths,
)
from raidproof.storage.array.superblock import Bitmap, examine_bitmap_command, parse_bitmaps

SYNC_DEADLINE_S = 600.0
"""Default time limit in seconds for a resync, rebuild or check."""
_POLL_S = 0.1
START_DIRTY = "/sys/module/md_mod/parameters/start_dirty_degraded"
"""The kernel parameter that lets md start a dirty and degraded array (Documentation/admin-guide/md.rst)."""
Action = Literal["check", "repair", "resync"]
"""Background work that `Upkeep.begin` starts; the words of the sysfs file md/sync_action."""
START_DEADLINE_S = 20.0
"""Time limit in seconds for background work to start, and for md to release a faulty member."""
FULL_SPEED = {"stripe_cache_size": 4096, "sync_speed_max": 2_000_000}
"""The values to which `at_full_speed` raises two sysfs files of an md device, if their values are lower.

The first is the number of stripes in md's cache, the second is in KiB/s of each member. With the default of 256
stripes, md sleeps most of the time (raid5_sync_request in drivers/md/raid5.c sleeps while all stripes are in use). The
default speed limit is 200,000 KiB/s.
"""
_SYSTEM = "system"
_FLUSH_AND_DATA = (6, 12)
"""First kernel release in which md submits flush and data of a request at the same time."""


def waits_for_flush(release: str) -> bool:
    """Return whether md of this kernel release writes the data of a request only after the request's flush has ended.

    Since Linux 6.12, md submits the flushes of the members and the data at the same time (commit b75197e86e6d,
    "md: Remove flush handling").

    Raises:
        RigError: the string is not a kernel release.
    """
    number = re.match(r"(\d+)\.(\d+)", release)
    if number is None:
        raise RigError(f"/proc/sys/kernel/osrelease contains no kernel release such as 6.12.1: {release!r}")
    return (int(number[1]), int(number[2])) < _FLUSH_AND_DATA


def create_command(md: Md) -> list[str]:
    """Return the command that creates and starts an md device."""
    policy = {
        "bitmap": [
            "--bitmap=internal",
            *([f"--bitmap-chunk={md.bitmap_chunk // 1024}K"] if md.bitmap_chunk else []),
        ],
        # Without a bitmap option, mdadm 4.3 and later ask whether to create a bitmap on RAID1, 4, 5, 6 and 10.
        "resync": ["--bitmap=none", "--consistency-policy=resync"],
        "ppl": ["--consistency-policy=ppl"],
        "journal": [f"--write-journal={md.journal}"],
    }
    return [
        "mdadm",
        "--create",
        md.device,
        # Without --run mdadm asks whether a member that is not blank may be overwritten.
        "--run",
        "--metadata=1.2",
        f"--homehost={HOMEHOST}",
        f"--level={md.level}",
        f"--raid-devices={len(md.members)}",
        *([f"--spare-devices={len(md.spares)}"] if md.spares else []),
        *([f"--chunk={md.chunk_size // 1024}K"] if md.chunk_size else []),
        *([f"--layout={md.layout}"] if md.layout else []),
        *policy.get(md.consistency_policy, []),
        *md.members,
        *md.spares,
    ]


def create_commands(spec: ArraySpec) -> list[list[str]]:
    """Return the commands that create all md devices of an array, in order."""
    assumed = ["--assume-clean"] if spec.assume_clean else []
    # mdadm refuses --assume-clean for RAID0, which has no redundancy.
    return [
        command[:4] + (assumed if LEVELS[md.level].redundant else []) + command[4:]
        for md in spec.devices
        for command in [create_command(md)]
    ]


def bitmap_command(md: Md) -> list[str] | None:
    """Return the command that gives an existing md device the requested bitmap; None if its policy has no bitmap word.

    A bitmap with another chunk size replaces the old one only after a command with ``--bitmap=none``.
    """
    words = [word for word in create_command(md) if word.startswith("--bitmap")]
    return ["mdadm", "--grow", md.device, *words] if words else None


def assemble_command(md: Md, *, starts_dirty: bool = False) -> list[str]:
    """Return the command that assembles an existing md device.

    By default the command has neither --force nor --run: after a power cut, a complete array starts without these
    options even if it is dirty. An array that does not start is a finding. With ``starts_dirty``, the command has
    --run: mdadm then passes a dirty and degraded array to md, which starts it if `START_DIRTY` is set. Unlike --force,
    --run does not modify the superblocks.
    """
    return ["mdadm", "--assemble", *(["--run"] if starts_dirty else []), md.device, *md.inputs]


def stop_command(devices: Iterable[str]) -> list[str]:
    """Return the command that stops md devices, in the given order."""
    return ["mdadm", "--stop", *devices]


def zero_command(paths: Iterable[str]) -> list[str]:
    """Return the command that erases the superblocks from devices."""
    return ["mdadm", "--zero-superblock", *paths]


def check_command(devices: Sequence[str]) -> list[str]:
    """Return the command that starts a check of md devices: md compares copies or parity in the background."""
    return ["mdadm", "--action=check", *devices]


def repair_command(devices: Sequence[str]) -> list[str]:
    """Return the command that starts a repair of md devices: md corrects copies or parity in the background."""
    return ["mdadm", "--action=repair", *devices]


def fail_command(md: Md, path: str) -> list[str]:
    """Return the command that declares the member with this path faulty."""
    return ["mdadm", md.device, "--fail", path]


def remove_command(md: Md, path: str) -> list[str]:
    """Return the command that removes a faulty member from an md device."""
    return ["mdadm", md.device, "--remove", path]


def add_command(md: Md, path: str) -> list[str]:
    """Return the command that adds a disk without a superblock. A degraded md device then rebuilds onto the disk."""
    return ["mdadm", md.device, "--add", path]


def re_add_command(md: Md, path: str) -> list[str]:
    """Return the command that re-adds a former member. md rebuilds only the regions that the bitmap marks."""
    return ["mdadm", md.device, "--re-add", path]


def grow_command(md: Md, members: int) -> list[str]:
    """Return the command that starts a reshape to ``members`` members. Spares become the additional members.

    The reshape needs no backup file: with metadata 1.2, mdadm moves the start of the data into the free space before
    the data. No new stripe then overwrites an old stripe that is still needed (mdadm(8), --data-offset).
    """
    return ["mdadm", "--grow", md.device, f"--raid-devices={members}"]


def readwrite_command(devices: Iterable[str]) -> list[str]:
    """Return the command that makes md devices read-write, so that md starts a pending resync before a first write."""
    return ["mdadm", "--readwrite", *devices]


@contextmanager
def at_full_speed(machine: Machine, names: Sequence[str]) -> Iterator[None]:
    """Let the md devices with these kernel names work at full speed while the body runs; then restore the settings."""
    paths = {f"/sys/block/{name}/md/{file}": least for name in names for file, least in FULL_SPEED.items()}
    # `read_files` leaves out the files that a level does not have.
    before = machine.read_files(paths)
    slow = {path: value for path, value in before.items() if int(value.split()[0]) < paths[path]}
    # The kernel may refuse a value for lack of memory. md then works at its former speed.
    refused = machine.put_all({path: f"{paths[path]}\n" for path in slow})
    try:
        yield
    finally:
        for path, value in slow.items():
            if path not in refused:
                machine.put(f"{_SYSTEM if f'({_SYSTEM})' in value else value.split()[0]}\n", path)


class Scrub(State):
    """The result of a check of an array's copies or parity. Md devices are named by path: ``/dev/md0``.

    On RAID4, 5 and 6, every mismatch is a stripe whose parity is wrong. The copies of a RAID1 or RAID10 may differ
    without a fault, in places that no file uses: the page changed while md wrote the copies.
    """

    mismatch_cnt: dict[str, int]
    """512-byte sectors that differ, by md device. md counts in whole pages or stripes."""
    unchecked: dict[str, str]
    """The reason by md device, for each md device that md could not check."""
    resynced: dict[str, int] = Field(default_factory=dict)
    """512-byte sectors that the resync before the check corrected, by md device; RAID4, 5 and 6 only.

    md counts them during the resync (handle_parity_checks5 in drivers/md/raid5.c). An md device is missing if its
    last work before the check was not a resync.
    """
    repaired: dict[str, int] = Field(default_factory=dict)
    """512-byte sectors that still differ after a repair, by md device. md devices without differences are missing."""

    @property
    def mismatches(self) -> int:
        """512-byte sectors that differ, summed over all md devices."""
        return sum(self.mismatch_cnt.values())


class Array:
    """The array of one machine, with the commands that create, assemble, check, stop and erase it."""

    def __init__(self, spec: ArraySpec, machine: Machine) -> None:
        self.spec = spec
        self.machine = machine
        self.device = spec.devices[-1].device
        self.expected_deviation = ExpectedDeviation()
        """The deviations from the requested array that are allowed now. An injected fault sets them."""

    def create(self) -> None:
        """Create and start the array, and verify that the effective state is as requested.

        Raises:
            NotEffective: an effective value differs from the requested one.
        """
        self._require_kernel()
        for command in create_commands(self.spec):
            self.machine.succeed(command)
        self.require_effective()

    def activate(self) -> ArrayState:
        """Assemble the existing array from its members, without --force.

        Raises:
            CommandFailed: mdadm does not start the array.
            NotEffective: an effective value differs from the requested one, or a member is not in sync although no
                expected deviation allows it.
        """
        self._require_kernel()
        if dirty := self.expected_deviation.starts_dirty:
            self.machine.put("1\n", START_DIRTY)
        for md in self.spec.devices:
            self.machine.succeed(assemble_command(md, starts_dirty=dirty))
        state = self.require_effective()
        if behind := [path for found in state.devices for path in self.expected_deviation.unexpected(found)]:
            raise NotEffective(
                f"{self.device} is assembled, but these members are not in sync: {', '.join(map(serial_of, behind))}"
            )
        return state

    def _require_kernel(self) -> None:
        if any(LEVELS[md.level].parity > 1 for md in self.spec.devices):
            self.machine.require_raid6()

    def deactivate(self) -> None:
        """Stop the array."""
        self.machine.succeed(stop_command(md.device for md in reversed(self.spec.devices)))

    def destroy(self) -> None:
        """Stop the array, and erase the superblocks from its members."""
        *legs, top = self.spec.devices
        self.machine.succeed(stop_command([top.device]))
        # Superblocks of md0 lie in the legs, which must be online so that mdadm can erase these superblocks.
        self.machine.succeed(zero_command(top.inputs))
        if legs:
            self.machine.succeed(stop_command(leg.device for leg in legs))
            self.machine.succeed(zero_command(path for leg in legs for path in leg.inputs))

    def state(self) -> ArrayState:
        """Read the effective state of the array from sysfs.

        Raises:
            RigError: the array is not online.
        """
        return self._state(self._names())

    def _state(self, names: Mapping[str, str]) -> ArrayState:
        paths = [path for md in self.spec.devices for path in state_paths(md, names)]
        content = read_files(self.machine, paths)
        return ArrayState(devices=tuple(parse_md(md, names, content) for md in self.spec.devices))

    def require_effective(self) -> ArrayState:
        """Verify that the effective state of the array is as requested, or deviates as expected, and return it.

        Raises:
            NotEffective: an effective value differs from the requested one, and no expected deviation allows it.
        """
        state = self.state()
        for md, found in zip(self.spec.devices, state.devices, strict=True):
            values = found_of(found)
            require_effective(md.device, self.expected_deviation.accepted(md, asked_of(md, self.spec), values), values)
        return state

    def identities(self, *, online: bool = False) -> dict[str, Identity]:
        """Read the superblock of each disk of the array, by serial. Disks without a superblock are left out.

        With ``online``, the result also has the superblocks on the legs of a nested array (its inner arrays), by path.
        """
        paths = [path for md in self.spec.devices for path in md.inputs if online or path.startswith(disk_path(""))]
        # mdadm ends with status 1 if a device has no superblock. A verdict judges that, so the status is ignored.
        examined = self.machine.run(examine_command(paths)).stdout
        return {serial_of(path): one for path, one in parse_examine(examined).items()}

    def bitmaps(self) -> dict[str, Bitmap]:
        """Read the write-intent bitmap on each disk of the array, by serial. The array may be offline."""
        disks = [path for md in self.spec.devices if md.consistency_policy == "bitmap" for path in md.inputs]
        paths = [path for path in disks if path.startswith(disk_path(""))]
        examined = self.machine.run(examine_bitmap_command(paths)).stdout if paths else ""
        return {serial_of(path): one for path, one in parse_bitmaps(examined).items()}

    def wait_clean(self, deadline_s: float = SYNC_DEADLINE_S) -> ArrayState:
        """Wait until every md device is idle, has all members, and is in sync; return the state of the array.

        Raises:
            DeadlineExceeded: the rebuild or resync takes longer than ``deadline_s`` seconds.
        """
        state = self._leave_read_auto()
        return self._wait(lambda device: device.clean, Deadline.after(deadline_s), "to be in sync", state)

    def scrub(self, deadline_s: float = SYNC_DEADLINE_S) -> Scrub:
        """Let md check the copies or parity of the whole array at full speed, and wait for the end.

        A resync that is pending after a power cut runs first, and its corrections are counted separately. A check
        before the resync would do harm: md marks what the check reads as resynced, although the check corrects nothing
        (md_do_sync in drivers/md/md.c; observed with Linux 6.12 and 7.2). If the check finds differences, a repair and
        a second check follow.

        Raises:
            DeadlineExceeded: resync, check and repair together take longer than ``deadline_s`` seconds.
            RigError: md did not run the check.
        """
        with at_full_speed(self.machine, [md.name for md in self.spec.devices]):
            return self._scrub(Deadline.after(deadline_s))

    def _scrub(self, deadline: Deadline) -> Scrub:
        state = self._wait(_settled, deadline, "to end its resync", self._leave_read_auto())
        unchecked = {
            found.device: reason
            for md, found in zip(self.spec.devices, state.devices, strict=True)
            if (reason := why_unchecked(md, found))
        }
        checked = [md.device for md in self.spec.devices if md.device not in unchecked]
        if not checked:
            return Scrub(mismatch_cnt={}, unchecked=unchecked)
        resynced = {
            found.device: found.mismatch_cnt
            for found in state.devices
            if found.device in checked and found.last_sync_action == "resync"
        }
        counted = self._count(checked, deadline)
        repaired: dict[str, int] = {}
        if differing := [device for device, count in counted.items() if count]:
            self.machine.succeed(repair_command(differing))
            self._wait(_settled, deadline, "to end its repair")
            repaired = self._count(differing, deadline)
        return Scrub(mismatch_cnt=counted, unchecked=unchecked, resynced=resynced, repaired=repaired)

    def _count(self, devices: list[str], deadline: Deadline) -> dict[str, int]:
        """Let md check the md devices with these paths; return the 512-byte sectors that differ, by path."""
        self.machine.succeed(check_command(devices))
        ended = self._wait(_settled, deadline, "to end its check")
        counted = [found for found in ended.devices if found.device in devices]
        if other := [f"{one.device}: {one.last_sync_action}" for one in counted if one.last_sync_action != "check"]:
            raise RigError(f"md did not run the requested check; last_sync_action is not 'check': {', '.join(other)}")
        return {found.device: found.mismatch_cnt for found in counted}

    def _leave_read_auto(self) -> ArrayState | None:
        """Make read-auto md devices read-write. Return the array's state, or None if an md device was read-auto."""
        # After assembly an md device is read-auto until the first write, and until then does not resync.
        state = self.state()
        waiting = [device.device for device in state.devices if device.array_state == "read-auto"]
        if not waiting:
            return state
        self.machine.succeed(readwrite_command(waiting))
        return None

    def _wait(
        self, condition: Callable[[MdState], bool], deadline: Deadline, what: str, state: ArrayState | None = None
    ) -> ArrayState:
        """Wait until every md device is idle and meets a condition; ``state`` is the array's state if already read.

        ``what`` completes the message "waiting for /dev/md0 ...".
        """
        if state is not None and all(map(condition, state.devices)):
            return state
        # Once is enough: the kernel's names do not change during the wait.
        names = self._names()
        actions = [f"/sys/block/{md.name}/md/sync_action" for md in self.spec.devices]

        def reached() -> ArrayState | None:
            # While md works, read one file of each md device only: reading dozens of files slows the work down.
            if any(action != "idle" for action in self.machine.read_files(actions).values()):
                return None
            found = self._state(names)
            return found if all(map(condition, found.devices)) else None

        return wait_until(reached, deadline, f"{self.device} {what}", _POLL_S)

    def _names(self) -> dict[str, str]:
        """Return the kernel's name of each member, spare and journal by path. The names may change at each boot."""
        paths = [path for md in self.spec.devices for path in md.inputs]
        disks = [path for path in paths if path.startswith(disk_path(""))]
        found = self.machine.resolve(disks)
        legs = {path: path for path in paths if path not in disks}
        return {
            path: real.removeprefix("/dev/") for path, real in {**dict(zip(disks, found, strict=True)), **legs}.items()
        }


def _settled(device: MdState) -> bool:
    """Return whether no background work of an md device runs or is pending. A member may be missing."""
    return device.sync_action == "idle" and device.resynced and device.reshape_position is None


def why_unchecked(md: Md, found: MdState) -> str | None:
    """Return the reason why md cannot check an md device; None if md can."""
    if not LEVELS[md.level].redundant:
        return f"RAID{md.level} has no copies or parity to compare"
    if found.degraded:
        return f"degraded: {found.degraded} members are missing or not rebuilt, so that md cannot compare"
    return None


class Progress(NamedTuple):
    """The background work of an md device, and its progress."""

    action: str
    """The content of md/sync_action: ``resync``, ``recover``, ``check``, ``repair``, ``reshape``, or ``idle``."""
    done: int
    """Sectors of each member that the work has finished."""
    total: int
    """Sectors of each member that the work covers in total; 0 if md does not report progress."""


def parse_progress(action: str, completed: str) -> Progress:
    """Parse the content of md/sync_action and md/sync_completed (``1280 / 587776``, ``none`` or ``delayed``)."""
    match = re.fullmatch(r"(\d+) / (\d+)", completed.strip())
    return Progress(action.strip(), *(map(int, match.groups()) if match else (0, 0)))


class Upkeep:
    """An administrator's actions on one md device: replacing members, starting and throttling background work."""

    def __init__(self, array: Array, md: Md) -> None:
        self.md = md
        self._machine = array.machine
        self._files = f"/sys/block/{md.name}/md"

    @classmethod
    def with_member(cls, array: Array, serial: str) -> "Upkeep":
        """Return the object that maintains the md device that has the disk with this serial as a member.

        Raises:
            RequestError: no md device has this member, or the md device has no redundancy.
        """
        for md in array.spec.devices:
            if disk_path(serial) in md.members:
                return cls(array, md).require_redundancy()
        raise RequestError(f"{serial} is no member of the array; its members: {', '.join(array.spec.members)}")

    def require_redundancy(self) -> "Upkeep":
        """Return this object if the md device has redundancy.

        Raises:
            RequestError: the md device has no redundancy.
        """
        if not LEVELS[self.md.level].redundant:
            raise RequestError(
                f"{self.md.device} is a RAID{self.md.level}, which has no redundancy: no member may be missing, and "
                "md cannot resync or check it"
            )
        return self

    def take_out(self, serial: str) -> None:
        """Declare the member with this serial faulty, and remove it.

        Raises:
            DeadlineExceeded: md does not release the member within `START_DEADLINE_S` seconds.
        """
        path = disk_path(serial)
        self._machine.succeed(fail_command(self.md, path))
        # mdadm fails while a request to the member is in flight.
        wait_until(
            lambda: self._machine.run(remove_command(self.md, path)).ok,
            Deadline.after(START_DEADLINE_S),
            f"{self.md.device} to release the faulty member {serial}",
        )

    def take_back(self, serial: str) -> None:
        """Re-add the former member with this serial. With a bitmap, md rebuilds only regions written meanwhile."""
        self._machine.succeed(re_add_command(self.md, disk_path(serial)))

    def put_in(self, serial: str) -> None:
        """Add the disk with this serial as a new member: md assigns another Device UUID, and rebuilds all of it."""
        path = disk_path(serial)
        self._machine.succeed(zero_command([path]))
        self._machine.succeed(add_command(self.md, path))

    def grow(self, members: int) -> None:
        """Start a reshape to this number of members, which must be larger than before."""
        self._machine.succeed(grow_command(self.md, members))

    def begin(self, action: Action) -> None:
        """Start a check, repair or resync of the whole md device, without waiting for its end."""
        if action == "resync":
            # As after a crash of an array without a bitmap: no part is in sync (md.rst, resync_start).
            self._write("sync_action", "frozen")
            self._write("resync_start", "0")
        self._write("sync_action", action)

    def throttle(self, kib_s: int | None) -> None:
        """Set the rate of background work in KiB/s of each member, equal with and without other load.

        None restores the system's default.
        """
        rate = "system" if kib_s is None else str(kib_s)
        self._write("sync_speed_min", rate)
        self._write("sync_speed_max", rate)

    def progress(self) -> Progress:
        """Return the background work of the md device now, and its progress."""
        action, completed = f"{self._files}/sync_action", f"{self._files}/sync_completed"
        content = read_files(self._machine, [action, completed])
        return parse_progress(content[action], content[completed])

    def wait_for(self, *actions: str) -> Progress:
        """Wait until one of these actions (words of md/sync_action) runs; return its progress.

        Raises:
            DeadlineExceeded: none of the actions runs within `START_DEADLINE_S` seconds.
        """

        def running() -> Progress | None:
            now = self.progress()
            return now if now.action in actions and now.total else None

        what = f"{self.md.device} to start {' or '.join(actions)}"
        return wait_until(running, Deadline.after(START_DEADLINE_S), what)

    def _write(self, file: str, word: str) -> None:
        self._machine.put(f"{word}\n", f"{self._files}/{file}")


def ended_in(log: str, md: Md) -> str | None:
    """Return the line of the kernel log that reports the end of an md device's background work; None without one.

    Linux 6.11 and later log ``md: md0: recover done.``, older kernels ``md: md0: recovery done.`` (md_do_sync in
    drivers/md/md.c).
    """
    match = re.search(rf"^.*md: {md.name}: .* (?:done|interrupted)\.", log, re.MULTILINE)
    return match[0] if match else None
