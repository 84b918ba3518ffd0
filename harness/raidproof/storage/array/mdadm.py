"""A requested md device, and the commands of mdadm that create, assemble, stop and maintain it."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple, Self

from raidproof.core.layer import HOMEHOST
from raidproof.storage.array.level import LEVELS


class Md(NamedTuple):
    """A requested md device. A plain array is one md device; a nested array has one per leg and one over the legs."""

    number: int
    """The minor number: 0 is /dev/md0, which carries the file system."""
    level: str
    members: tuple[str, ...]
    """Device paths of the members, in the order of their slots."""
    spares: tuple[str, ...] = ()
    """Device paths."""
    journal: str | None = None
    """Device path of the journal device (md(4)); None without one."""
    chunk_size: int | None = None
    """Bytes; None for a mirror."""
    layout: str | None = None
    """Name of the layout in mdadm; None for a level without layouts."""
    consistency_policy: str = "none"
    """How md keeps copies and parity consistent, in the words of the sysfs file md/consistency_policy."""
    bitmap_chunk: int | None = None
    """Bytes that one bit of the bitmap covers; None leaves the choice to mdadm."""
    write_mostly: tuple[str, ...] = ()
    """Device paths of the write-mostly members, which are the last ones."""
    write_behind: int | None = None
    """Greatest number of writes that write-mostly members may lack when md acknowledges; None: none."""
    failfast: bool = False
    """Whether all members, also spares, have the flag failfast."""

    @property
    def name(self) -> str:
        """The kernel's name of the md device: ``md0``."""
        return f"md{self.number}"

    @property
    def device(self) -> str:
        """The path of the md device: ``/dev/md0``."""
        return f"/dev/{self.name}"

    @property
    def inputs(self) -> tuple[str, ...]:
        """The device paths of members, spares and journal."""
        return (*self.members, *self.spares, *((self.journal,) if self.journal else ()))

    def only(self, paths: Collection[str]) -> Self:
        """Return this md device without the members, spares and journal that are not in ``paths``."""
        return self._replace(
            members=tuple(path for path in self.members if path in paths),
            spares=tuple(path for path in self.spares if path in paths),
            journal=self.journal if self.journal in paths else None,
        )


def create_command(md: Md) -> list[str]:
    """Return the command that creates and starts an md device."""
    policy = {
        "bitmap": [
            "--bitmap=internal",
            *([f"--bitmap-chunk={md.bitmap_chunk // 1024}K"] if md.bitmap_chunk else []),
            *([f"--write-behind={md.write_behind}"] if md.write_behind else []),
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
        # A flag is for all devices after it.
        *(["--failfast"] if md.failfast else []),
        *(path for path in md.members if path not in md.write_mostly),
        *(["--write-mostly", *md.write_mostly] if md.write_mostly else []),
        *md.spares,
    ]


def create_commands(devices: Iterable[Md], *, assume_clean: bool) -> list[list[str]]:
    """Return the commands that create the md devices of an array, in order."""
    assumed = ["--assume-clean"] if assume_clean else []
    # mdadm refuses --assume-clean for RAID0, which has no redundancy.
    return [
        command[:4] + (assumed if LEVELS[md.level].redundant else []) + command[4:]
        for md in devices
        for command in [create_command(md)]
    ]


def bitmap_command(md: Md) -> list[str] | None:
    """Return the command that gives an existing md device the requested bitmap; None if its policy has no bitmap word.

    A bitmap with another chunk size replaces the old one only after a command with ``--bitmap=none``.
    """
    words = [word for word in create_command(md) if word.startswith(("--bitmap", "--write-behind"))]
    return ["mdadm", "--grow", md.device, *words] if words else None


def new_bitmap_commands(md: Md, before: Md) -> Iterator[list[str]]:
    """Yield the commands that change the bitmap of an existing md device from that of ``before``, if they differ."""
    command = bitmap_command(md)
    if command is None or command == bitmap_command(before):
        return
    if before.consistency_policy == "bitmap" and md.consistency_policy == "bitmap":
        yield ["mdadm", "--grow", md.device, "--bitmap=none"]
    yield command


def assemble_command(md: Md, *, starts_dirty: bool = False, without: Collection[str] = ()) -> list[str]:
    """Return the command that assembles an existing md device.

    By default the command has neither --force nor --run: after a power cut, a complete array starts without these
    options even if it is dirty. An array that does not start is a finding. With ``starts_dirty``, the command has
    --run: mdadm then passes a dirty and degraded array to md, which starts it if `START_DIRTY` is set. Unlike --force,
    --run does not modify the superblocks. ``without``: paths of lost members; the command has --run, because mdadm
    does not start an array by itself that lacks a member for the first time.
    """
    inputs = [path for path in md.inputs if path not in without]
    insists = starts_dirty or len(inputs) < len(md.inputs)
    return ["mdadm", "--assemble", *(["--run"] if insists else []), md.device, *inputs]


def run_command(md: Md) -> list[str]:
    """Return the command that starts an md device that was assembled with fewer members than it had at last.

    Distributions run it at boot if the missing members do not appear (mdadm-last-resort@.service). md still refuses an
    array that is both dirty and degraded.
    """
    return ["mdadm", "--run", md.device]


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
    """Return the command that adds a disk without a superblock, with the flags of the member that the disk replaces.

    A degraded md device then rebuilds onto the disk.
    """
    flags = [*(["--failfast"] if md.failfast else []), *(["--write-mostly"] if path in md.write_mostly else [])]
    return ["mdadm", md.device, "--add", *flags, path]


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
