"""The member disks of an existing server: real disks, which raidproof writes to only with a permission of the gate."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from raidproof.core.errors import RequirementMissing, RigError
from raidproof.core.layer import Machine, read_files
from raidproof.core.log import step
from raidproof.core.units import SECTOR, format_size
from raidproof.disk.cache import CacheMode, CutPolicy
from raidproof.disk.disk_fault import DiskFault
from raidproof.disk.messages import Counters, Description, LogClosed, Power, Use
from raidproof.provider.hosts.gate import ENDS, Permission, Refusal, blank, digest, judge, require_adopted
from raidproof.provider.hosts.inventory import BY_ID, OURS, Inventory
from raidproof.provider.hosts.survey import Survey, survey

_FIELDS = 17
"""Number of fields in /sys/block/*/stat since Linux 5.5 (Documentation/block/stat.rst); its sectors have 512 bytes."""
CANNOT_PROVE = (
    "hosts: what the volatile cache of a real disk loses at a power cut can be neither chosen nor recorded",
    "hosts: real disks have no write log, so only the crash state that occurred is checked",
)
"""What a run with real disks cannot prove; the report lists these sentences."""
_SIMULATED = "use provider uml, qemu or vagrant, whose disks are simulated"


class HostDisks:
    """The disks of an inventory, which commands on the server find as /dev/disk/by-id/raidproof-disk0, ...

    The interface is that of simulated disks. Methods that real disks do not support raise RequirementMissing.
    """

    def __init__(self, inventory: Inventory, server: Machine, on: Callable[[], bool] = lambda: True) -> None:
        """Store the arguments; ``on`` returns whether the server is running, so that its disks can be read."""
        self._on = on
        self._inventory = inventory
        self._server = server
        self._names: dict[str, str] = {}
        """The kernel names of the disks in the server's present boot, such as ``sdb``, by serial."""

    def __repr__(self) -> str:
        return f"HostDisks({', '.join(disk.id for disk in self._inventory.disk)})"

    def link(self) -> tuple[Permission, ...]:
        """Let the gate judge the disks, then create the links /dev/disk/by-id/raidproof-*, which a reboot removes.

        Raises:
            RequestError: the gate refuses a disk. Nothing has been written, and no link created.
            RigError: a path leads to another device than the one that the gate judged.
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
        """Stop the arrays of raidproof that the server assembled at boot; return their kernel names.

        An array is stopped only if nothing uses it, and if the gate would permit raidproof to overwrite all of its
        members once the array is stopped.

        Raises:
            RigError: an array does not stop.
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
        # An array of arrays stops before the arrays that are its members.
        for name in sorted(stopped, key=lambda one: any(one in below for below in slaves.values())):
            self._server.succeed(["mdadm", "--stop", f"/dev/{name}"])
        return tuple(stopped)

    def _require_same(self, permissions: Iterable[Permission], links: list[str]) -> None:
        numbers = self._server.succeed(["stat", "--dereference", "--format=%t:%T", *links]).split()
        for one, number in zip(permissions, numbers, strict=True):
            major, minor = (int(part, 16) for part in number.split(":"))
            if one.number != f"{major}:{minor}":
                self.unlink()
                raise RigError(
                    f"{one.path} leads to device {major}:{minor}, and raidproof checked another device, {one.number}"
                )

    def unlink(self) -> None:
        """Remove the links /dev/disk/by-id/raidproof-* of the inventory's disks."""
        links = [f"{BY_ID}{OURS}{serial}" for serial in self._inventory.disks]
        self._server.succeed(["rm", "--force", *links])
        self._names = {}

    def reset(self, old: Iterable[str] = ()) -> None:  # noqa: ARG002  the old data of real disks is not simulated
        """Let the gate judge the disks again, then erase raidproof's data at both ends of each, and discard the rest.

        Raises:
            RequestError: the gate refuses a disk. Nothing has been written.
            RigError: a disk has changed since the gate judged it.
        """
        permissions = self.link()
        discarded = blank(self._server, permissions)
        if len(discarded) < len(permissions):
            step(
                f"{len(permissions) - len(discarded)} of {len(permissions)} disks cannot discard: they keep old data "
                f"between their first and last {format_size(ENDS)}"
            )

    zeroed = False
    """Whether a disk reads as zero after `reset`: false, as a disk may lack discard, or return other data after it."""

    def require(self, mode: CacheMode, policy: CutPolicy) -> None:
        """Refuse cache modes and cut policies that real disks do not support.

        Raises:
            RequirementMissing: the requested cache mode is not ``volatile``, or the cut policy is not ``drop``.
        """
        self.set_mode(mode)
        if policy is not CutPolicy.DROP:
            raise RequirementMissing(
                f"hosts: cut policy {policy.value}: what a real disk loses at a cut cannot be chosen",
                remedy=_SIMULATED,
            )

    def set_mode(self, mode: CacheMode, serials: Iterable[str] | None = None) -> None:
        """Accept only ``volatile``, the cache mode of real disks.

        Raises:
            RequirementMissing: another cache mode is requested.
        """
        del serials
        if mode is not CacheMode.VOLATILE:
            raise RequirementMissing(
                f"hosts: cache mode {mode.value}: raidproof cannot change a real disk's cache", remedy=_SIMULATED
            )

    def set_timing(self, on: bool) -> None:
        """Accept only disks with latency.

        Raises:
            RequirementMissing: disks without latency are requested.
        """
        if not on:
            raise RequirementMissing(
                "hosts: disks without latency are requested, and real disks have latency", remedy=_SIMULATED
            )

    def set_disk_fault(self, serial: str, disk_fault: DiskFault) -> None:
        """Refuse a disk fault: raidproof cannot make a real disk fail.

        Raises:
            RequirementMissing: always.
        """
        raise _needs_simulated_disks(f"disk fault {disk_fault.kind.value} of {serial}")

    def clear_disk_faults(self, serials: Iterable[str] | None = None) -> None:
        """Do nothing: a real disk never has a simulated disk fault."""

    def corrupt(self, serial: str, offset: int, length: int, seed: int = 0) -> None:
        """Refuse to corrupt a disk: only the server can write to a real disk.

        Raises:
            RequirementMissing: always.
        """
        del offset, length, seed
        raise _needs_simulated_disks(f"corruption of {serial}")

    def swap(self, one: str, other: str) -> None:
        """Refuse to exchange two disks: raidproof cannot exchange real disks.

        Raises:
            RequirementMissing: always.
        """
        raise _needs_simulated_disks(f"exchange of {one} and {other}")

    def use(self) -> Use:
        """Refuse to return the utilization of disks: the disk engine measures it, and real disks have no disk engine.

        Raises:
            RequirementMissing: always.
        """
        raise RequirementMissing("hosts: the utilization of real disks and controllers is not measured")

    def describe(self) -> Description:
        """Return the description of a disk engine that serves no disk: real disks have no disk engine."""
        return Description(Power.ON, (), connections=0, log=None, log_error=None, pid=0)

    def counters(self) -> dict[str, Counters]:
        """Return the I/O counters of each disk since boot, by serial; empty while the server is not running.

        The amount of data in the disk's cache is unknown, and given as 0.

        Raises:
            RigError: /sys/block/*/stat of a disk cannot be read, or has too few fields.
        """
        if not self._on():
            return {}
        if not self._names:
            self.link()
        paths = {serial: f"/sys/block/{name}/stat" for serial, name in self._names.items()}
        content = read_files(self._server, paths.values())
        return {serial: parse_stat(serial, content.get(path, "")) for serial, path in paths.items()}

    def log_start(self, path: Path, *, data: bool = True) -> None:
        """Report that there is no write log: the writes to a real disk cannot be observed."""
        del path, data
        step("no write log: writes to real disks cannot be recorded")

    def log_stop(self) -> LogClosed | None:
        """Return None: there is no write log."""
        return None


def _needs_simulated_disks(what: str) -> RequirementMissing:
    return RequirementMissing(f"hosts: {what}: raidproof cannot do this to real disks", remedy=_SIMULATED)


def ours_only(inventory: Inventory, found: Survey) -> tuple[str, ...]:
    """Return the kernel names of the arrays on the disks of an inventory.

    The result is empty if the gate would refuse a disk even if no array used the disk, or if a device other than an
    array uses a disk.
    """
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
    """Return the I/O counters in the content of /sys/block/*/stat.

    Raises:
        RigError: the content does not have the 17 numbers of Linux 5.5 or later.
    """
    words = text.split()
    if len(words) < _FIELDS or not all(word.isdecimal() for word in words):
        raise RigError(f"{serial}: /sys/block/*/stat lacks some of the {_FIELDS} numbers of Linux 5.5: {text!r}")
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
