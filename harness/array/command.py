"""The command lines that an array takes: pure, so that what would be run can be read without a machine."""

from collections.abc import Iterable, Sequence

from harness.array.spec import ArraySpec, Level, Md
from harness.ours import HOMEHOST


def create_command(md: Md) -> list[str]:
    """Write an array's metadata onto its members and bring it online."""
    policy = {
        "bitmap": ["--bitmap=internal"],
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


def assemble_command(md: Md) -> list[str]:
    """Bring an array online that exists.

    Neither --force nor --run: after a power cut a complete array starts even if it is dirty, and one that does not
    start by itself is a finding.
    """
    return ["mdadm", "--assemble", md.device, *md.inputs]


def stop_command(devices: Iterable[str]) -> list[str]:
    """Take arrays offline, in the order given."""
    return ["mdadm", "--stop", *devices]


def zero_command(paths: Iterable[str]) -> list[str]:
    """Make the metadata of an array disappear from its members."""
    return ["mdadm", "--zero-superblock", *paths]


def check_command(devices: Sequence[str]) -> list[str]:
    """Let arrays compare their copies or parity in the background."""
    return ["mdadm", "--action=check", *devices]


def readwrite_command(devices: Iterable[str]) -> list[str]:
    """Let arrays resync that wait, just assembled, for the first write to them."""
    return ["mdadm", "--readwrite", *devices]
