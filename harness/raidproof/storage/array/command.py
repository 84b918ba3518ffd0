"""The command lines that an array takes: pure, so that what would be run can be read without a machine."""

from collections.abc import Iterable, Sequence

from raidproof.core.ownership import HOMEHOST
from raidproof.storage.array.spec import ArraySpec, Level, Md


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
