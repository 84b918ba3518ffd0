"""An md array of a machine: its commands, its life from creation to destruction, its maintenance."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from pydantic import Field

from raidproof.core.errors import NotEffective, RequestError, RigError
from raidproof.core.layer import HOMEHOST, Machine, State, read_files, require_effective
from raidproof.core.waiting import Deadline, wait_until
from raidproof.storage.array.full_speed import at_full_speed
from raidproof.storage.array.spec import ArraySpec, Level, Md, disk_path
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


def create_command(md: Md) -> list[str]:
    """Write an array's metadata onto its members and bring it online."""
    policy = {
        "bitmap": [
            "--bitmap=internal",
            *([f"--bitmap-chunk={md.bitmap_chunk // 1024}K"] if md.bitmap_chunk else []),
        ],
        # RAID1, 4, 5, 6 and 10 without one would be asked about it by mdadm 4.3 and later.
        "resync": ["--bitmap=none", "--consistency-policy=resync"],
        "ppl": ["--consistency-policy=ppl"],
        "journal": [f"--write-journal={md.journal}"],
    }
    return [
        "mdadm",
        "--create",
        md.device,
        # Without --run mdadm asks whether a member that carries something may be overwritten.
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
    """Everything that creates an array, in order."""
    trusted = ["--assume-clean"] if spec.assume_clean else []
    # RAID0 refuses the word, having nothing that could be unclean.
    return [
        command[:4] + (trusted if md.level is not Level.RAID0 else []) + command[4:]
        for md in spec.devices
        for command in [create_command(md)]
    ]


def assemble_command(md: Md, *, starts_dirty: bool = False) -> list[str]:
    """Bring an array online that exists.

    Neither --force nor --run: after a power cut a complete array starts even if it is dirty, and one that does not
    start by itself is a finding. ``starts_dirty``: mdadm is to leave it to md whether a dirty and degraded array may
    start; its metadata is not touched, as --force would.
    """
    return ["mdadm", "--assemble", *(["--run"] if starts_dirty else []), md.device, *md.inputs]


def stop_command(devices: Iterable[str]) -> list[str]:
    """Take arrays offline, in the order given."""
    return ["mdadm", "--stop", *devices]


def zero_command(paths: Iterable[str]) -> list[str]:
    """Make the metadata of an array disappear from its members."""
    return ["mdadm", "--zero-superblock", *paths]


def check_command(devices: Sequence[str]) -> list[str]:
    """Let arrays compare their copies or parity in the background."""
    return ["mdadm", "--action=check", *devices]


def repair_command(devices: Sequence[str]) -> list[str]:
    """Let arrays write the copies or the parity anew that differ, in the background."""
    return ["mdadm", "--action=repair", *devices]


def fail_command(md: Md, path: str) -> list[str]:
    """Declare a member faulty."""
    return ["mdadm", md.device, "--fail", path]


def remove_command(md: Md, path: str) -> list[str]:
    """Take a faulty member out."""
    return ["mdadm", md.device, "--remove", path]


def add_command(md: Md, path: str) -> list[str]:
    """Add a disk without metadata; an array that misses a member is rebuilt onto it."""
    return ["mdadm", md.device, "--add", path]


def re_add_command(md: Md, path: str) -> list[str]:
    """Take a former member back; only what its bitmap has marked since is rebuilt."""
    return ["mdadm", md.device, "--re-add", path]


def grow_command(md: Md, members: int) -> list[str]:
    """Reshape an array to more members, which it takes from its spares.

    Without a backup file: with metadata 1.2, mdadm moves the start of the data into the room that it leaves before
    it, so that no stripe is ever written over one that is still needed (mdadm(8), "data-offset").
    """
    return ["mdadm", "--grow", md.device, f"--raid-devices={members}"]


def readwrite_command(devices: Iterable[str]) -> list[str]:
    """Let arrays resync that wait, just assembled, for the first write to them."""
    return ["mdadm", "--readwrite", *devices]


class Scrub(State):
    """What a check of an array's redundancy found.

    A RAID1 or RAID10 may differ where nothing reads: a page that changed while both copies were written. On RAID4, 5
    and 6 every mismatch is a stripe whose parity is wrong.
    """

    mismatch_cnt: dict[str, int]
    """512-byte sectors that differ, by md device that was checked; md counts in whole pages or stripes."""
    unchecked: dict[str, str]
    """Md devices that could not be checked, with the reason."""
    resynced: dict[str, int] = Field(default_factory=dict)
    """Where the last thing before the check was a resync: the sectors that differed and that it put right. Of RAID4, 5
    and 6 md counts them as it goes (handle_parity_checks5 in drivers/md/raid5.c)."""
    repaired: dict[str, int] = Field(default_factory=dict)
    """Where something differed: what a second check still found after a repair."""

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
        """What a fault may leave of it; whoever injects one says so here."""

    def create(self) -> None:
        """Write the array onto its members, bring it online and check that it is what was asked.

        Raises:
            NotEffective: it is something else.
        """
        for command in create_commands(self.spec):
            self.machine.succeed(command)
        self.require_effective()

    def activate(self) -> ArrayState:
        """Assemble the array that is on the members; nothing is forced, nothing created.

        Raises:
            CommandFailed: mdadm would not start it.
            NotEffective: what was on the members is not what was asked, or a member that should be is not in sync.
        """
        if dirty := self.expected_deviation.starts_dirty:
            self.machine.put("1\n", START_DIRTY)
        for md in self.spec.devices:
            self.machine.succeed(assemble_command(md, starts_dirty=dirty))
        state = self.require_effective()
        if behind := [path for found in state.devices for path in self.expected_deviation.unexpected(found)]:
            raise NotEffective(f"{self.device}: assembled, but not in sync: {', '.join(map(serial_of, behind))}")
        return state

    def deactivate(self) -> None:
        """Stop the array."""
        self.machine.succeed(stop_command(md.device for md in reversed(self.spec.devices)))

    def destroy(self) -> None:
        """Stop the array and make its metadata disappear from the members."""
        *legs, top = self.spec.devices
        self.machine.succeed(stop_command([top.device]))
        # The metadata of the uppermost array lies inside of the legs, which must still be online to lose it.
        self.machine.succeed(zero_command(top.inputs))
        if legs:
            self.machine.succeed(stop_command(leg.device for leg in legs))
            self.machine.succeed(zero_command(path for leg in legs for path in leg.inputs))

    def state(self) -> ArrayState:
        """Read what the kernel says of it.

        Raises:
            RigError: it is not online.
        """
        return self._state(self._names())

    def _state(self, names: Mapping[str, str]) -> ArrayState:
        paths = [path for md in self.spec.devices for path in state_paths(md, names)]
        content = read_files(self.machine, paths)
        return ArrayState(devices=tuple(parse_md(md, names, content) for md in self.spec.devices))

    def require_effective(self) -> ArrayState:
        """Return its state, if that is what was asked.

        Raises:
            NotEffective: it is not.
        """
        state = self.state()
        for md, found in zip(self.spec.devices, state.devices, strict=True):
            words = found_of(found)
            require_effective(md.device, self.expected_deviation.accepted(md, asked_of(md, self.spec), words), words)
        return state

    def identities(self, *, online: bool = False) -> dict[str, Identity]:
        """Read what each disk says of the array that it belongs to, by serial; one that says nothing is left out.

        ``online``: of a nested array, also what its legs say, by their paths.
        """
        paths = [path for md in self.spec.devices for path in md.inputs if online or path.startswith(disk_path(""))]
        # Status 1 says that some device has no metadata, which is for a checker to judge.
        said = self.machine.run(examine_command(paths)).stdout
        return {serial_of(path): one for path, one in parse_examine(said).items()}

    def bitmaps(self) -> dict[str, Bitmap]:
        """Read the write-intent bitmap on each disk, by serial; the array may be offline."""
        disks = [path for md in self.spec.devices if md.consistency_policy == "bitmap" for path in md.inputs]
        paths = [path for path in disks if path.startswith(disk_path(""))]
        said = self.machine.run(examine_bitmap_command(paths)).stdout if paths else ""
        return {serial_of(path): one for path, one in parse_bitmaps(said).items()}

    def wait_clean(self, deadline_s: float = SYNC_DEADLINE_S) -> ArrayState:
        """Wait until every member is rebuilt and everything resynced.

        Raises:
            DeadlineExceeded: it took longer.
        """
        state = self._leave_read_auto()
        return self._wait(lambda device: device.clean, Deadline.after(deadline_s), "to be in sync", state)

    def scrub(self, deadline_s: float = SYNC_DEADLINE_S) -> Scrub:
        """Let md read everything and compare, as fast as it can; wait for the end.

        After a power cut the resync comes first, and what it put right is counted apart. A check before it would be
        worse than none: what it reads counts as resynced although nothing is put right (md_do_sync in
        drivers/md/md.c; seen with 6.12 and 7.2). Where something differs, a repair and a second check follow.

        Raises:
            DeadlineExceeded: it took longer, or the resync before it did.
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
        """Let an array that was only assembled begin its resync; return its state if it needed nothing for that."""
        # It is `read-auto`: until the first write to it, it does not even resync.
        state = self.state()
        waiting = [device.device for device in state.devices if device.array_state == "read-auto"]
        if not waiting:
            return state
        self.machine.succeed(readwrite_command(waiting))
        return None

    def _wait(
        self, condition: Callable[[MdState], bool], deadline: Deadline, what: str, state: ArrayState | None = None
    ) -> ArrayState:
        """Wait until a condition holds for all md devices, each of them idle; ``state`` was read just before."""
        if state is not None and all(map(condition, state.devices)):
            return state
        # They stay what they are for as long as this waits.
        names = self._names()
        actions = [f"/sys/block/{md.name}/md/sync_action" for md in self.spec.devices]

        def reached() -> ArrayState | None:
            # One file as long as md works: reading the dozens of others takes turns with the work itself.
            if any(action != "idle" for action in self.machine.read_files(actions).values()):
                return None
            found = self._state(names)
            return found if all(map(condition, found.devices)) else None

        return wait_until(reached, deadline, f"{self.device} {what}", _POLL_S)

    def _names(self) -> dict[str, str]:
        """The kernel's name of every disk: another one after each boot."""
        paths = [path for md in self.spec.devices for path in md.inputs]
        disks = [path for path in paths if path.startswith(disk_path(""))]
        found = self.machine.resolve(disks)
        legs = {path: path for path in paths if path not in disks}
        return {
            path: real.removeprefix("/dev/") for path, real in {**dict(zip(disks, found, strict=True)), **legs}.items()
        }


def _settled(device: MdState) -> bool:
    """Whether nothing is being resynced, and nothing waits for it; a member may be missing."""
    return device.sync_action == "idle" and device.resynced and device.reshape_position is None


def why_unchecked(md: Md, found: MdState) -> str | None:
    """Say why md cannot check an array, or None if it can."""
    if md.level is Level.RAID0:
        return "RAID0 keeps nothing twice"
    if found.degraded:
        return "degraded: there is nothing to compare with"
    return None


class Progress(NamedTuple):
    """How far md has come with what it does in the background."""

    action: str
    """``resync``, ``recover``, ``check``, ``repair``, ``reshape``; ``idle`` is nothing."""
    done: int
    """Sectors of each member."""
    total: int


def parse_progress(action: str, completed: str) -> Progress:
    """Read md's sync_action and sync_completed: ``1280 / 587776``, ``none`` or ``delayed``."""
    match = re.fullmatch(r"(\d+) / (\d+)", completed.strip())
    return Progress(action.strip(), *(map(int, match.groups()) if match else (0, 0)))


class Upkeep:
    """One md device of an array, under an administrator's hands."""

    def __init__(self, array: Array, md: Md) -> None:
        self.md = md
        self._machine = array.machine
        self._files = f"/sys/block/{md.name}/md"

    @classmethod
    def with_member(cls, array: Array, serial: str) -> "Upkeep":
        """Return the md device that has this disk as a member.

        Raises:
            RequestError: none has, or it keeps nothing twice.
        """
        for md in array.spec.devices:
            if disk_path(serial) in md.members:
                return cls(array, md).require_redundancy()
        raise RequestError(f"{serial} is no member of the array: {', '.join(array.spec.members)}")

    def require_redundancy(self) -> "Upkeep":
        """Raise RequestError if the md device keeps nothing twice."""
        if self.md.level is Level.RAID0:
            raise RequestError(f"{self.md.device} is a RAID0: nothing in it can be missed, resynced or checked")
        return self

    def take_out(self, serial: str) -> None:
        """Declare a member faulty and take it out.

        Raises:
            DeadlineExceeded: md does not let go of it.
        """
        path = disk_path(serial)
        self._machine.succeed(fail_command(self.md, path))
        # Busy as long as a request to it is on its way.
        wait_until(
            lambda: self._machine.run(remove_command(self.md, path)).ok,
            Deadline.after(START_DEADLINE_S),
            f"{self.md.device} to let go of {serial}",
        )

    def take_back(self, serial: str) -> None:
        """Take a former member back: with a bitmap, what has been written since is rebuilt."""
        self._machine.succeed(re_add_command(self.md, disk_path(serial)))

    def put_in(self, serial: str) -> None:
        """Put a disk in as if it were a new one: all of it is rebuilt, and it gets another Device UUID."""
        path = disk_path(serial)
        self._machine.succeed(zero_command([path]))
        self._machine.succeed(add_command(self.md, path))

    def grow(self, members: int) -> None:
        """Begin to reshape it to more members."""
        self._machine.succeed(grow_command(self.md, members))

    def begin(self, action: Action) -> None:
        """Let it check, repair, or resync all of itself; returns at once."""
        if action == "resync":
            # As after a crash without a bitmap: nothing of it counts as being in sync (md.rst, resync_start).
            self._write("sync_action", "frozen")
            self._write("resync_start", "0")
        self._write("sync_action", action)

    def throttle(self, kib_s: int | None) -> None:
        """Let what runs in the background run at this rate on each member, idle or not; None is the system's own."""
        word = "system" if kib_s is None else str(kib_s)
        self._write("sync_speed_min", word)
        self._write("sync_speed_max", word)

    def progress(self) -> Progress:
        """Return what it does in the background, and how far it has come."""
        action, completed = f"{self._files}/sync_action", f"{self._files}/sync_completed"
        content = read_files(self._machine, [action, completed])
        return parse_progress(content[action], content[completed])

    def wait_for(self, *actions: str) -> Progress:
        """Wait until it does one of these.

        Raises:
            DeadlineExceeded: it does not.
        """

        def doing() -> Progress | None:
            now = self.progress()
            return now if now.action in actions and now.total else None

        what = f"{self.md.device} to {' or '.join(actions)}"
        return wait_until(doing, Deadline.after(START_DEADLINE_S), what)

    def _write(self, file: str, word: str) -> None:
        self._machine.put(f"{word}\n", f"{self._files}/{file}")


def ended_in(log: str, md: Md) -> str | None:
    """Return the line with which a kernel says that what ran in the background ended, or None if it says none.

    ``md: md0: recover done.``, before Linux 6.11 ``md: md0: recovery done.`` (md_do_sync in drivers/md/md.c).
    """
    match = re.search(rf"^.*md: {md.name}: .* (?:done|interrupted)\.", log, re.MULTILINE)
    return match[0] if match else None
