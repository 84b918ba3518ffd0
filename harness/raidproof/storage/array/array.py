"""An array on a machine: the interface that every kind implements, and the result of a check of copies or parity."""

import re
from abc import ABC, abstractmethod
from typing import ClassVar

from pydantic import Field

from raidproof.core.errors import RequirementMissing, RigError
from raidproof.core.layer import Machine, State
from raidproof.storage.array.spec import ArraySpec
from raidproof.storage.array.state import ArrayState, ExpectedDeviation, Identity
from raidproof.storage.array.superblock import Bitmap
from raidproof.storage.array.upkeep import Upkeep

SYNC_DEADLINE_S = 600.0
"""Default time limit in seconds for a resync, rebuild or check."""

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


class Array(ABC):
    """The array of one machine: created, assembled, checked, stopped and erased."""

    removes_offline: ClassVar[bool] = False
    """Whether the array must be offline while `take_out` and `take_back` change its members."""

    def __init__(self, spec: ArraySpec, machine: Machine) -> None:
        self.spec = spec
        self.machine = machine
        self.device = spec.device
        self.expected_deviation = ExpectedDeviation()
        """The deviations from the requested array that are allowed now. An injected fault sets them."""
        self.log: str | None = None
        """The serial of the disk with the log of the file system, which matters to an array that only the file system
        makes: its disks are brought online together. The stack sets it."""

    def _require_kernel(self) -> None:
        """Reboot the machine if the array needs RAID6 and its kernel runs without; no array may be active."""
        if self.spec.needs_raid6:
            self.machine.require_raid6()

    @abstractmethod
    def create(self) -> None:
        """Create and start the array, and verify that the effective state is as requested.

        Raises:
            NotEffective: an effective value differs from the requested one.
        """

    @abstractmethod
    def activate(self) -> ArrayState:
        """Assemble the existing array from its members, without force.

        Raises:
            CommandFailed: the array does not start.
            NotEffective: an effective value differs from the requested one, or a member is not in sync although no
                expected deviation allows it.
        """

    @abstractmethod
    def deactivate(self) -> None:
        """Stop the array."""

    @abstractmethod
    def destroy(self) -> None:
        """Stop the array, and erase its metadata from its members."""

    @abstractmethod
    def state(self) -> ArrayState:
        """Read the effective state of the array.

        Raises:
            RigError: the array is not online.
        """

    @abstractmethod
    def require_effective(self) -> ArrayState:
        """Verify that the effective state of the array is as requested, or deviates as expected, and return it.

        Raises:
            NotEffective: an effective value differs from the requested one, and no expected deviation allows it.
        """

    @abstractmethod
    def identities(self, *, online: bool = False) -> dict[str, Identity]:
        """Read the metadata of each disk of the array, by serial. Disks without metadata are left out.

        With ``online``, the result also has the metadata on inner arrays, by path.
        """

    def bitmaps(self) -> dict[str, Bitmap]:
        """Read the write-intent bitmap on each disk of the array, by serial. The array may be offline."""
        return {}

    @abstractmethod
    def wait_clean(self, deadline_s: float = SYNC_DEADLINE_S) -> ArrayState:
        """Wait until the array is idle, has all members, and is in sync; return its state.

        Raises:
            DeadlineExceeded: the rebuild or resync takes longer than ``deadline_s`` seconds.
        """

    @abstractmethod
    def scrub(self, deadline_s: float = SYNC_DEADLINE_S) -> Scrub:
        """Check the copies or parity of the whole array, and wait for the end. A pending resync runs first.

        If the check finds differences, a repair and a second check follow.

        Raises:
            DeadlineExceeded: resync, check and repair together take longer than ``deadline_s`` seconds.
            RigError: the check did not run.
        """

    @property
    def mount_options(self) -> tuple[str, ...]:
        """Options without which the file system is not mounted while members are missing."""
        return ()

    def take_out(self, serial: str) -> None:
        """Take the member with this serial away, so that the array works without it.

        The kernel may detect only at the next write that the member is gone.

        Raises:
            RequestError: the array has no such member, or cannot do without it.
            RequirementMissing: members of this kind of array cannot be taken away.
        """
        raise RequirementMissing(
            f"an array of kind {self.spec.type} has no commands here that remove a member ({serial})",
            remedy="request another kind of array for this fault",
        )

    def take_back(self, serial: str) -> None:
        """Make the disk that `take_out` has taken away a member again. Its rebuild may still run afterwards."""
        raise NotImplementedError(f"an array of kind {self.spec.type} has no commands that add a member ({serial})")

    def upkeep(self, serial: str | None = None) -> Upkeep:
        """Return the object that maintains the redundant device with this member; None: the one with the file system.

        Raises:
            RequestError: no device has this member, or the device has no redundancy.
            RequirementMissing: arrays of this kind cannot be maintained.
        """
        raise RequirementMissing(
            f"an array of kind {self.spec.type} has no commands here that replace a member ({serial or 'any'}) or "
            "throttle background work",
            remedy="request another kind of array for this fault",
        )
