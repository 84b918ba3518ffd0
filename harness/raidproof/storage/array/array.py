"""An md array of a machine: commands, creation to destruction, maintenance."""

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
_POLL_S = 0.1
START_DIRTY = "/sys/module/md_mod/parameters/start_dirty_degraded"
"""Whether md starts an array that is dirty and degraded (Documentation/admin-guide/md.rst)."""
Action = Literal["check", "repair", "resync"]
START_DEADLINE_S = 20.0
FULL_SPEED = {"stripe_cache_size": 4096, "sync_speed_max": 2_000_000}
"""Minimum values of md's files: stripes in memory (one page per member), and KiB/s of each member.

With md's default of 256 stripes it sleeps most of the time (raid5_sync_request in drivers/md/raid5.c sleeps whenever
all of them are in use); the default speed limit is 200,000 KiB/s.
"""
_SYSTEM = "system"


def create_command(md: Md) -> list[str]:
    """Return the command that writes an array's metadata onto its members and starts it."""
    policy = {
        "bitmap": [
            "--bitmap=internal",
            *([f"--bitmap-chunk={md.bitmap_chunk // 1024}K"] if md.bitmap_chunk else []),
        ],
        # Without a bitmap option, mdadm 4.3 and later would ask for one for RAID1, 4, 5, 6 and 10.
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
    """Return all commands that create an array, in order."""
    trusted = ["--assume-clean"] if spec.assume_clean else []
    # RAID0 refuses --assume-clean, because it has nothing that could be unclean.
    return [
        command[:4] + (trusted if LEVELS[md.level].redundant else []) + command[4:]
        for md in spec.devices
        for command in [create_command(md)]
    ]


def assemble_command(md: Md, *, starts_dirty: bool = False) -> list[str]:
    """Return the command that assembles an existing array.

    The command uses neither --force nor --run: after a power cut a complete array starts even if it is dirty, and an
    array that does not start without them is a finding. ``starts_dirty``: mdadm leaves it to md whether a dirty and
    degraded array may start; the metadata is not modified, as it would be by --force.
    """
    return ["mdadm", "--assemble", *(["--run"] if starts_dirty else []), md.device, *md.inputs]


def stop_command(devices: Iterable[str]) -> list[str]:
    """Return the command that stops arrays, in the given order."""
    return ["mdadm", "--stop", *devices]


def zero_command(paths: Iterable[str]) -> list[str]:
    """Return the command that erases the metadata of an array from its members."""
    return ["mdadm", "--zero-superblock", *paths]


def check_command(devices: Sequence[str]) -> list[str]:
    """Return the command that starts a comparison of copies or parity, in the background."""
    return ["mdadm", "--action=check", *devices]


def repair_command(devices: Sequence[str]) -> list[str]:
    """Return the command that rewrites differing copies or parity, in the background."""
    return ["mdadm", "--action=repair", *devices]


def fail_command(md: Md, path: str) -> list[str]:
    """Return the command that declares a member faulty."""
    return ["mdadm", md.device, "--fail", path]


def remove_command(md: Md, path: str) -> list[str]:
    """Return the command that removes a faulty member."""
    return ["mdadm", md.device, "--remove", path]


def add_command(md: Md, path: str) -> list[str]:
    """Return the command that adds a disk without metadata; a degraded array rebuilds onto it."""
    return ["mdadm", md.device, "--add", path]


def re_add_command(md: Md, path: str) -> list[str]:
    """Return the command that re-adds a former member; md rebuilds only what the bitmap has marked since."""
    return ["mdadm", md.device, "--re-add", path]


def grow_command(md: Md, members: int) -> list[str]:
    """Return the command that reshapes an array to more members, which it takes from its spares.

    No backup file is needed: with metadata 1.2, mdadm moves the start of the data into the free space before it, so
    that no stripe is written over one that is still needed (mdadm(8), "data-offset").
    """
    return ["mdadm", "--grow", md.device, f"--raid-devices={members}"]


def readwrite_command(devices: Iterable[str]) -> list[str]:
    """Return the command that starts the resync of arrays that wait, after assembly, for the first write."""
    return ["mdadm", "--readwrite", *devices]


@contextmanager
def at_full_speed(machine: Machine, names: Sequence[str]) -> Iterator[None]:
    """Let md devices of these names work at full speed while the body runs; restore the settings after it."""
    paths = {f"/sys/block/{name}/md/{file}": least for name in names for file, least in FULL_SPEED.items()}
    # Files that a level does not have are left out.
    had = machine.read_files(paths)
    slow = {path: value for path, value in had.items() if int(value.split()[0]) < paths[path]}
    # If the kernel refuses a value for lack of memory, the check is slow.
    refused = machine.put_all({path: f"{paths[path]}\n" for path in slow})
    try:
        yield
    finally:
        for path, value in slow.items():
            if path not in refused:
                machine.put(f"{_SYSTEM if f'({_SYSTEM})' in value else value.split()[0]}\n", path)


class Scrub(State):
    """Result of a check of an array's redundancy.

    The copies of a RAID1 or RAID10 may differ in unused places: a page changed while both copies were written. On
    RAID4, 5 and 6 every mismatch is a stripe whose parity is wrong.
    """

    mismatch_cnt: dict[str, int]
    """512-byte sectors that differ, by checked md device; md counts in whole pages or stripes."""
    unchecked: dict[str, str]
    """Md devices that could not be checked, with the reason."""
    resynced: dict[str, int] = Field(default_factory=dict)
    """Sectors that the resync before the check found different and corrected; of RAID4, 5 and 6.

    Md counts them during the resync (handle_parity_checks5 in drivers/md/raid5.c). Empty if no resync came last before
    the check.
    """
    repaired: dict[str, int] = Field(default_factory=dict)
    """Sectors that a second check found different after a repair; only if the first check found differences."""

    @property
    def mismatches(self) -> int:
        """Sectors that differ, over all md devices."""
        return sum(self.mismatch_cnt.values())


class Array:
    """The array of one machine."""

    def __init__(self, spec: ArraySpec, machine: Machine) -> None:
        self.spec = spec
        self.machine = machine
        self.device = spec.devices[-1].device
        self.expected_deviation = ExpectedDeviation()
        """The deviation that a fault may leave; a fault that is injected sets it."""

    def create(self) -> None:
        """Write the array onto its members, start it, and verify that it is as requested.

        Raises:
            NotEffective: it is not as requested.
        """
        self._require_kernel()
        for command in create_commands(self.spec):
            self.machine.succeed(command)
        self.require_effective()

    def activate(self) -> ArrayState:
        """Assemble the array that is on the members; force nothing, create nothing.

        Raises:
            CommandFailed: mdadm does not start the array.
            NotEffective: the array is not as requested, or a member is unexpectedly not in sync.
        """
        self._require_kernel()
        if dirty := self.expected_deviation.starts_dirty:
            self.machine.put("1\n", START_DIRTY)
        for md in self.spec.devices:
            self.machine.succeed(assemble_command(md, starts_dirty=dirty))
        state = self.require_effective()
        if behind := [path for found in state.devices for path in self.expected_deviation.unexpected(found)]:
            raise NotEffective(f"{self.device}: assembled, but not in sync: {', '.join(map(serial_of, behind))}")
        return state

    def _require_kernel(self) -> None:
        if any(LEVELS[md.level].parity > 1 for md in self.spec.devices):
            self.machine.require_raid6()

    def deactivate(self) -> None:
        """Stop the array."""
        self.machine.succeed(stop_command(md.device for md in reversed(self.spec.devices)))

    def destroy(self) -> None:
        """Stop the array and erase its metadata from the members."""
        *legs, top = self.spec.devices
        self.machine.succeed(stop_command([top.device]))
        # The metadata of the uppermost array lies inside the legs, which must be online to erase it.
        self.machine.succeed(zero_command(top.inputs))
        if legs:
            self.machine.succeed(stop_command(leg.device for leg in legs))
            self.machine.succeed(zero_command(path for leg in legs for path in leg.inputs))

    def state(self) -> ArrayState:
        """Read the array's state from the kernel.

        Raises:
            RigError: the array is not online.
        """
        return self._state(self._names())

    def _state(self, names: Mapping[str, str]) -> ArrayState:
        paths = [path for md in self.spec.devices for path in state_paths(md, names)]
        content = read_files(self.machine, paths)
        return ArrayState(devices=tuple(parse_md(md, names, content) for md in self.spec.devices))

    def require_effective(self) -> ArrayState:
        """Return the state, if it is as requested.

        Raises:
            NotEffective: it is not.
        """
        state = self.state()
        for md, found in zip(self.spec.devices, state.devices, strict=True):
            words = found_of(found)
            require_effective(md.device, self.expected_deviation.accepted(md, asked_of(md, self.spec), words), words)
        return state

    def identities(self, *, online: bool = False) -> dict[str, Identity]:
        """Read the metadata of each disk, by serial; leave out disks without metadata.

        ``online``: of a nested array, also the metadata of its legs, by their paths.
        """
        paths = [path for md in self.spec.devices for path in md.inputs if online or path.startswith(disk_path(""))]
        # Status 1 means that some device has no metadata, which a checker judges.
        said = self.machine.run(examine_command(paths)).stdout
        return {serial_of(path): one for path, one in parse_examine(said).items()}

    def bitmaps(self) -> dict[str, Bitmap]:
        """Read the write-intent bitmap on each disk, by serial; the array may be offline."""
        disks = [path for md in self.spec.devices if md.consistency_policy == "bitmap" for path in md.inputs]
        paths = [path for path in disks if path.startswith(disk_path(""))]
        said = self.machine.run(examine_bitmap_command(paths)).stdout if paths else ""
        return {serial_of(path): one for path, one in parse_bitmaps(said).items()}

    def wait_clean(self, deadline_s: float = SYNC_DEADLINE_S) -> ArrayState:
        """Wait until every member is rebuilt and all resyncs have ended.

        Raises:
            DeadlineExceeded: it took longer.
        """
        state = self._leave_read_auto()
        return self._wait(lambda device: device.clean, Deadline.after(deadline_s), "to be in sync", state)

    def scrub(self, deadline_s: float = SYNC_DEADLINE_S) -> Scrub:
        """Let md read and compare everything at full speed; wait for the end.

        After a power cut the resync comes first, and its corrections are counted separately. A check before the resync
        would do harm: md marks what the check reads as resynced although it corrects nothing (md_do_sync in
        drivers/md/md.c; observed with 6.12 and 7.2). If the check finds differences, a repair and a second check
        follow.

        Raises:
            DeadlineExceeded: the check took longer, or the resync before it did.
            RigError: md never ran the check.
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
        """Check md devices and return the sectors that differ."""
        self.machine.succeed(check_command(devices))
        ended = self._wait(_settled, deadline, "to end its check")
        counted = [found for found in ended.devices if found.device in devices]
        if never := [found.device for found in counted if found.last_sync_action != "check"]:
            raise RigError(f"no check was run on {', '.join(never)}")
        return {found.device: found.mismatch_cnt for found in counted}

    def _leave_read_auto(self) -> ArrayState | None:
        """Start the resync of an array that was only assembled; return its state if nothing had to be started."""
        # Such an array is `read-auto`: until the first write, it does not even resync.
        state = self.state()
        waiting = [device.device for device in state.devices if device.array_state == "read-auto"]
        if not waiting:
            return state
        self.machine.succeed(readwrite_command(waiting))
        return None

    def _wait(
        self, condition: Callable[[MdState], bool], deadline: Deadline, what: str, state: ArrayState | None = None
    ) -> ArrayState:
        """Wait until a condition holds for all md devices and each is idle; ``state`` was read just before."""
        if state is not None and all(map(condition, state.devices)):
            return state
        # The names do not change during the wait.
        names = self._names()
        actions = [f"/sys/block/{md.name}/md/sync_action" for md in self.spec.devices]

        def reached() -> ArrayState | None:
            # Read one file per md device while md works: reading the dozens of others slows the work down.
            if any(action != "idle" for action in self.machine.read_files(actions).values()):
                return None
            found = self._state(names)
            return found if all(map(condition, found.devices)) else None

        return wait_until(reached, deadline, f"{self.device} {what}", _POLL_S)

    def _names(self) -> dict[str, str]:
        """Return the kernel's name of every disk, which may change at each boot."""
        paths = [path for md in self.spec.devices for path in md.inputs]
        disks = [path for path in paths if path.startswith(disk_path(""))]
        found = self.machine.resolve(disks)
        legs = {path: path for path in paths if path not in disks}
        return {
            path: real.removeprefix("/dev/") for path, real in {**dict(zip(disks, found, strict=True)), **legs}.items()
        }


def _settled(device: MdState) -> bool:
    """Whether no resync runs or is pending; a member may be missing."""
    return device.sync_action == "idle" and device.resynced and device.reshape_position is None


def why_unchecked(md: Md, found: MdState) -> str | None:
    """Return why md cannot check an array, or None if it can."""
    if not LEVELS[md.level].redundant:
        return f"RAID{md.level} keeps nothing twice"
    if found.degraded:
        return "degraded: there is nothing to compare with"
    return None


class Progress(NamedTuple):
    """Progress of md's background work."""

    action: str
    """``resync``, ``recover``, ``check``, ``repair``, ``reshape``; ``idle`` is none."""
    done: int
    """Sectors of each member."""
    total: int


def parse_progress(action: str, completed: str) -> Progress:
    """Parse md's sync_action and sync_completed: ``1280 / 587776``, ``none`` or ``delayed``."""
    match = re.fullmatch(r"(\d+) / (\d+)", completed.strip())
    return Progress(action.strip(), *(map(int, match.groups()) if match else (0, 0)))


class Upkeep:
    """Maintenance of one md device of an array, as by an administrator."""

    def __init__(self, array: Array, md: Md) -> None:
        self.md = md
        self._machine = array.machine
        self._files = f"/sys/block/{md.name}/md"

    @classmethod
    def with_member(cls, array: Array, serial: str) -> "Upkeep":
        """Return the md device that has this disk as a member.

        Raises:
            RequestError: no md device has it, or the md device has no redundancy.
        """
        for md in array.spec.devices:
            if disk_path(serial) in md.members:
                return cls(array, md).require_redundancy()
        raise RequestError(f"{serial} is no member of the array: {', '.join(array.spec.members)}")

    def require_redundancy(self) -> "Upkeep":
        """Raise RequestError if the md device has no redundancy."""
        if not LEVELS[self.md.level].redundant:
            raise RequestError(
                f"{self.md.device} is a RAID{self.md.level}: nothing in it can be missed, resynced or checked"
            )
        return self

    def take_out(self, serial: str) -> None:
        """Declare a member faulty and remove it.

        Raises:
            DeadlineExceeded: md does not release it.
        """
        path = disk_path(serial)
        self._machine.succeed(fail_command(self.md, path))
        # The member is busy as long as a request to it is in flight.
        wait_until(
            lambda: self._machine.run(remove_command(self.md, path)).ok,
            Deadline.after(START_DEADLINE_S),
            f"{self.md.device} to let go of {serial}",
        )

    def take_back(self, serial: str) -> None:
        """Re-add a former member: with a bitmap, md rebuilds what has been written since."""
        self._machine.succeed(re_add_command(self.md, disk_path(serial)))

    def put_in(self, serial: str) -> None:
        """Add a disk as if it were new: md rebuilds all of it and assigns another Device UUID."""
        path = disk_path(serial)
        self._machine.succeed(zero_command([path]))
        self._machine.succeed(add_command(self.md, path))

    def grow(self, members: int) -> None:
        """Start a reshape to more members."""
        self._machine.succeed(grow_command(self.md, members))

    def begin(self, action: Action) -> None:
        """Start a check, repair, or resync of the whole md device; return at once."""
        if action == "resync":
            # As after a crash without a bitmap: no part counts as in sync (md.rst, resync_start).
            self._write("sync_action", "frozen")
            self._write("resync_start", "0")
        self._write("sync_action", action)

    def throttle(self, kib_s: int | None) -> None:
        """Set the rate of background work on each member, idle or not, in KiB/s; None is the system's default."""
        word = "system" if kib_s is None else str(kib_s)
        self._write("sync_speed_min", word)
        self._write("sync_speed_max", word)

    def progress(self) -> Progress:
        """Return the current background work and its progress."""
        action, completed = f"{self._files}/sync_action", f"{self._files}/sync_completed"
        content = read_files(self._machine, [action, completed])
        return parse_progress(content[action], content[completed])

    def wait_for(self, *actions: str) -> Progress:
        """Wait until one of these actions runs.

        Raises:
            DeadlineExceeded: none does.
        """

        def doing() -> Progress | None:
            now = self.progress()
            return now if now.action in actions and now.total else None

        what = f"{self.md.device} to {' or '.join(actions)}"
        return wait_until(doing, Deadline.after(START_DEADLINE_S), what)

    def _write(self, file: str, word: str) -> None:
        self._machine.put(f"{word}\n", f"{self._files}/{file}")


def ended_in(log: str, md: Md) -> str | None:
    """Return the line of the kernel log about the end of background work, or None if there is none.

    ``md: md0: recover done.``, before Linux 6.11 ``md: md0: recovery done.`` (md_do_sync in drivers/md/md.c).
    """
    match = re.search(rf"^.*md: {md.name}: .* (?:done|interrupted)\.", log, re.MULTILINE)
    return match[0] if match else None
