"""The member disks of an existing server: real disks, of which only those that the gate permits are touched."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from raidproof.core.errors import RequirementMissing, RigError
from raidproof.core.layer import Machine, read_files
from raidproof.core.log import step
from raidproof.core.units import SECTOR
from raidproof.disk.cache import CacheMode, CutPolicy
from raidproof.disk.disk_fault import DiskFault
from raidproof.disk.messages import Counters, Description, LogClosed, Power, Use
from raidproof.provider.hosts.gate import Permission, Refusal, blank, digest, judge, require_adopted
from raidproof.provider.hosts.inventory import BY_ID, OURS, Inventory
from raidproof.provider.hosts.survey import Survey, survey

_FIELDS = 17
"""Fields of /sys/block/*/stat since Linux 5.5 (Documentation/block/stat.rst); its sectors have 512 bytes."""
CANNOT_PROVE = (
    "hosts: what the disks' volatile caches lose at a power cut is theirs: it is neither chosen nor recorded",
    "hosts: no write log is kept, so no other crash state than the one that happened is checked",
)
"""What these disks cannot prove; repeated in the report."""


class HostDisks:
    """The disks of an inventory, under the names that commands use: /dev/disk/by-id/raidproof-disk0, ..."""

    def __init__(self, inventory: Inventory, server: Machine, on: Callable[[], bool] = lambda: True) -> None:
        """Take ``on``, which returns whether the server has power: without power its disks cannot be queried."""
        self._on = on
        self._inventory = inventory
        self._server = server
        self._names: dict[str, str] = {}
        """Kernel names by serial, as of this boot."""

    def __repr__(self) -> str:
        return f"HostDisks({', '.join(disk.id for disk in self._inventory.disk)})"

    def link(self) -> tuple[Permission, ...]:
        """Judge the disks, and create the links to them, which each boot removes from /dev; kernel names may change.

        Raises:
            RequestError: one of them may not be used; nothing was written, and no link made.
        """
        permissions = require_adopted(self._inventory, self._server)
        links = [f"{BY_ID}{OURS}{one.serial}" for one in permissions]
        devices = self._server.resolve(one.path for one in permissions)
        for device, link in zip(devices, links, strict=True):
            self._server.succeed(["ln", "--symbolic", "--force", "--no-dereference", device, link])
        self._require_same(permissions, links)
        self._names = {
            one.serial: device.removeprefix("/dev/") for one, device in zip(permissions, devices, strict=True)
        }
        return permissions

    def stop_arrays(self) -> tuple[str, ...]:
        """Stop raidproof's arrays that the machine assembled at boot; return their names.

        Only arrays that are not in use, and all of whose members would be permitted without the array.

        Raises:
            RigError: one of them does not stop.
        """
        found = survey(self._server, [disk.id for disk in self._inventory.disk])
        arrays = ours_only(self._inventory, found)
        slaves = {
            name: set(
                self._server.succeed(
                    ["find", f"/sys/block/{name}/slaves", "-mindepth", "1", "-printf", "%f\\n"]
                ).split()
            )
            for name in arrays
        }
        mine = {facts.name for facts in found.disks.values() if facts.number in found.links.values()} | set(arrays)
        stopped = [name for name in arrays if slaves[name] and slaves[name] <= mine]
        # A nested array before its legs.
        for name in sorted(stopped, key=lambda one: any(one in below for below in slaves.values())):
            self._server.succeed(["mdadm", "--stop", f"/dev/{name}"])
        return tuple(stopped)

    def _require_same(self, permissions: Iterable[Permission], links: list[str]) -> None:
        said = self._server.succeed(["stat", "--dereference", "--format=%t:%T", *links]).split()
        for one, number in zip(permissions, said, strict=True):
            major, minor = (int(part, 16) for part in number.split(":"))
            if one.number != f"{major}:{minor}":
                self.unlink()
                raise RigError(f"{one.path} leads to another device than when it was judged")

    def unlink(self) -> None:
        """Remove the links."""
        links = [f"{BY_ID}{OURS}{serial}" for serial in self._inventory.disks]
        self._server.succeed(["rm", "--force", *links])
        self._names = {}

    def reset(self, old: Iterable[str] = ()) -> None:  # noqa: ARG002  real disks have old data of their own
        """Judge the disks again, then erase raidproof's data. Without discard, the middle of a disk is not zero.

        Raises:
            RequestError: one of them may not be used; nothing was written.
            RigError: one of them changed meanwhile.
        """
        permissions = self.link()
        discarded = blank(self._server, permissions)
        if len(discarded) < len(permissions):
            step(f"{len(permissions) - len(discarded)} disks cannot discard: their middle keeps its old content")

    zeroed = False
    """Many disks do not guarantee zeroes after a discard, and others cannot discard."""

    def require(self, mode: CacheMode, policy: CutPolicy) -> None:
        """Refuse cache modes and cut policies that real disks do not support.

        Raises:
            RequirementMissing: a cache mode other than the disks', or a cut policy other than the plain cut, is
                requested.
        """
        self.set_mode(mode)
        if policy is not CutPolicy.DROP:
            raise RequirementMissing(
                f"hosts: what a real disk keeps at a cut cannot be chosen: {policy.value}",
                remedy="uml and qemu have disks that can",
            )

    def set_mode(self, mode: CacheMode, serials: Iterable[str] | None = None) -> None:
        """Accept the disk's own cache mode only.

        Raises:
            RequirementMissing: another mode is requested.
        """
        del serials
        if mode is not CacheMode.VOLATILE:
            raise RequirementMissing(
                f"hosts: a real disk's cache cannot be made {mode.value}", remedy="uml and qemu have disks that can"
            )

    def set_timing(self, on: bool) -> None:
        """Accept the disk's own timing only.

        Raises:
            RequirementMissing: a disk without delay is requested.
        """
        if not on:
            raise RequirementMissing("hosts: a real disk takes its time", remedy="uml and qemu have disks that do not")

    def set_disk_fault(self, serial: str, disk_fault: DiskFault) -> None:
        """Refuse: raidproof cannot make a real drive fail.

        Raises:
            RequirementMissing: always.
        """
        raise _unharmed(f"{serial} cannot be made to fail: {disk_fault.kind.value}")

    def clear_disk_faults(self, serials: Iterable[str] | None = None) -> None:
        """Do nothing: no disk fault was set."""

    def corrupt(self, serial: str, offset: int, length: int, seed: int = 0) -> None:
        """Refuse: raidproof cannot write to a real disk without its machine.

        Raises:
            RequirementMissing: always.
        """
        del offset, length, seed
        raise _unharmed(f"{serial} cannot be corrupted behind the back of its machine")

    def swap(self, one: str, other: str) -> None:
        """Refuse: raidproof cannot exchange real disks.

        Raises:
            RequirementMissing: always.
        """
        raise _unharmed(f"cannot exchange {one} and {other}")

    def use(self) -> Use:
        """Refuse: there is no disk engine that counts.

        Raises:
            RequirementMissing: always.
        """
        raise RequirementMissing("hosts: no disk engine measures the utilization of disks and controllers")

    def describe(self) -> Description:
        """Return that nothing is served: there is no disk engine between the machine and its disks."""
        return Description(Power.ON, (), connections=0, log=None, log_error=None, pid=0)

    def counters(self) -> dict[str, Counters]:
        """Return the I/O counters of each disk since boot. The amount of data in its cache is unknown: 0.

        After a power cut the result is empty until the machine is back.

        Raises:
            RigError: the counters could not be read.
        """
        if not self._on():
            return {}
        if not self._names:
            self.link()
        paths = {serial: f"/sys/block/{name}/stat" for serial, name in self._names.items()}
        content = read_files(self._server, paths.values())
        return {serial: parse_stat(serial, content.get(path, "")) for serial, path in paths.items()}

    def log_start(self, path: Path, *, data: bool = True) -> None:
        """Record nothing: the writes to a real disk cannot be observed."""
        del path, data
        step("no write log: the disks are real ones")

    def log_stop(self) -> LogClosed | None:
        """Return None: nothing was recorded."""
        return None


def _unharmed(what: str) -> RequirementMissing:
    return RequirementMissing(f"hosts: {what}", remedy="uml and qemu have disks that can be harmed")


def ours_only(inventory: Inventory, found: Survey) -> tuple[str, ...]:
    """Return the md devices on the disks; empty unless each disk would be permitted without them; pure."""
    arrays: dict[str, None] = {}
    digested = digest(inventory, found.machine_id)
    for serial, disk in inventory.disks.items():
        facts = found.disks.get(found.links.get(disk.id, ""))
        if facts is None or not all(re.fullmatch(r"md\d+", name) for name in facts.holders):
            return ()
        freed = facts.model_copy(update={"holders": (), "claimed": False})
        alone = found.model_copy(update={"disks": {**found.disks, facts.number: freed}})
        if isinstance(judge(serial, inventory.disks, alone, digested), Refusal):
            return ()
        arrays |= dict.fromkeys(facts.holders)
    return tuple(arrays)


def parse_stat(serial: str, text: str) -> Counters:
    """Parse /sys/block/*/stat.

    Raises:
        RigError: it does not have the fields of Linux 5.5 or later.
    """
    words = text.split()
    if len(words) < _FIELDS or not all(word.isdecimal() for word in words):
        raise RigError(f"{serial}: no counters of a disk: {text!r}")
    numbers = list(map(int, words))
    return Counters(
        serial=serial,
        reads=numbers[0],
        read_bytes=numbers[2] * SECTOR,
        writes=numbers[4],
        written_bytes=numbers[6] * SECTOR,
        discards=numbers[11],
        discarded_bytes=numbers[13] * SECTOR,
        flushes=numbers[15],
    )
