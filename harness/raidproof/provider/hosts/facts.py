"""What was found of a machine's disks: all that the gate decides by."""

from raidproof.core.layer import State
from raidproof.core.ownership import HOMEHOST, UUID_PREFIX
from raidproof.provider.hosts.mark import Mark


class Signature(State):
    """Something on a disk, or on a partition of it, by which its content is known."""

    device: str
    """The device that carries it, by its kernel name: ``sdb`` or ``sdb1``."""
    kind: str
    """As libblkid has it: ext4, xfs, linux_raid_member, LVM2_member, crypto_LUKS, zfs_member, gpt, dos, ..."""
    label: str | None = None
    """For a RAID member the array's name, its home host before it."""
    uuid: str | None = None

    @property
    def ours(self) -> bool:
        """Whether nobody but us can have put it there."""
        if self.kind == "linux_raid_member":
            return self.label is not None and self.label.startswith(f"{HOMEHOST}:")
        return self.kind in {"xfs_external_log", "jbd"} and (self.uuid or "").startswith(UUID_PREFIX)

    def __str__(self) -> str:
        named = " ".join(f"{word} {value!r}" for word, value in (("named", self.label),) if value)
        return f"{self.kind}{' ' + named if named else ''} on {self.device}"


class DiskFacts(State):
    """One block device as found. What its partitions are used for counts as its own."""

    name: str
    """The kernel's name of it in this boot."""
    number: str
    """Major and minor number, as ``8:16``."""
    kind: str
    """As lsblk has it: disk, part, lvm, raid5, crypt, mpath, loop, rom, ..."""
    size: int
    """Bytes."""
    read_only: bool
    model: str | None = None
    serial: str | None = None
    wwn: str | None = None
    partitions: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    """Where it is mounted, or what stands on it."""
    swaps: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()
    """Block devices that are made of it: md0, dm-3, bcache0, loop2."""
    openers: tuple[str, ...] = ()
    """Processes that have it open, by name and number."""
    claimed: bool = False
    """Whether the kernel refuses to open it exclusively, without saying for whom."""
    signatures: tuple[Signature, ...] = ()
    blank: bool = False
    """Whether its first and last MiB are zero, but for our mark."""
    mark: Mark | None = None
    """Of its first 4 KiB, or else of its last."""
    first_mark: bool = False
    """Whether the first 4 KiB carry it."""
    unknown: tuple[str, ...] = ()
    """What could not be found out about it."""


class Survey(State):
    """The disks of one machine, as found at one time."""

    machine: str
    machine_id: str
    """From /etc/machine-id: another installation has another one."""
    links: dict[str, str]
    """Number of the block device that each name leads to, of those that were asked for."""
    dangling: tuple[str, ...] = ()
    """Names that exist and lead to nothing, or to no block device."""
    disks: dict[str, DiskFacts]
    """By number."""
    unknown: tuple[str, ...] = ()
    """What could not be found out at all."""
