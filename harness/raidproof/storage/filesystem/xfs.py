"""XFS: its command lines, and what its tools say."""

import re
from collections.abc import Mapping

from raidproof.core.command import Completed
from raidproof.core.errors import RigError
from raidproof.core.layer import found_in, uuid_of
from raidproof.storage.array import Geometry, disk_path
from raidproof.storage.filesystem.spec import XfsSpec
from raidproof.storage.filesystem.state import FilesystemCheck, Superblock, few

# Phrases of xfs_repair: it ends with status 1 both for damage and for a device that it may not read.
_DIRTY = "valuable metadata changes in a log"
_NO_ANSWER = re.compile(
    r"contains a mounted.*filesystem|couldn't initialize XFS library|fatal error -- "
    r"|(?:cannot|couldn't|could not) open|has an external log\.",
    re.IGNORECASE,
)
_ROUTINE = re.compile(
    r"^\s*(Phase \d|- |No modify flag|Cannot get host filesystem geometry|Repair may fail if there is|the image and|$)"
)

# What mkfs.xfs came to switch on by itself: the first kernel that mounts it and calls it no experiment, and the option
# that leaves it off (XFS_SB_FEAT_* in the kernel's fs/xfs/libxfs/xfs_format.h; lts_*.conf of xfsprogs).
_SINCE = {
    "parent": ((6, 10), "-n"),
    "exchange": ((6, 10), "-i"),
    "nrext64": ((6, 5), "-i"),
    "bigtime": ((5, 10), "-m"),
    "inobtcount": ((5, 10), "-m"),
}


def mkfs_command(spec: XfsSpec, device: str, geometry: Geometry | None) -> list[str]:
    """Make the filesystem, over whatever the device carries."""
    alignment = spec.alignment(geometry)
    log = [
        *([f"logdev={disk_path(spec.log)}"] if spec.log else []),
        *([f"size={spec.log_size}"] if spec.log_size else []),
        *([f"su={spec.log_su}"] if spec.log_su else []),
    ]
    return [
        "mkfs.xfs",
        "-f",
        *([] if spec.discard else ["-K"]),
        "-b",
        f"size={spec.block_size}",
        "-s",
        f"size={spec.sector_size}",
        "-d",
        f"su={alignment.su},sw={alignment.sw}" if alignment else "noalign",
        *(["-l", ",".join(log)] if log else []),
        # An external log has the filesystem's.
        *(["-m", f"uuid={uuid_of(spec.log)}"] if spec.log else []),
        device,
    ]


def beyond(kernel: str) -> dict[str, str]:
    """Return the features that a kernel release is too old for, each with the option of mkfs.xfs that has it.

    Raises:
        RigError: that is no release.
    """
    number = re.match(r"(\d+)\.(\d+)", kernel)
    if number is None:
        raise RigError(f"no kernel release: {kernel!r}")
    release = (int(number.group(1)), int(number.group(2)))
    return {name: option for name, (since, option) in _SINCE.items() if release < since}


def without(planned: str, features: Mapping[str, str]) -> list[str]:
    """Return what tells mkfs.xfs to leave off those of the features that it has planned (``mkfs.xfs -N``)."""
    return [
        word
        for name, option in features.items()
        if re.search(rf"\b{name}=1\b", planned)
        for word in (option, f"{name}=0")
    ]


def mount_options(spec: XfsSpec) -> tuple[str, ...]:
    """The options that it has to be mounted with."""
    return (*spec.mount_options, *([f"logdev={disk_path(spec.log)}"] if spec.log else []))


def info_command(directory: str) -> list[str]:
    """Describe a mounted filesystem."""
    # What the script xfs_info runs in the end, without its shell and its programs.
    return ["xfs_spaceman", "-p", "xfs_info", "-c", "info", directory]


def parse_info(text: str) -> Superblock:
    """Read ``xfs_info``, or what mkfs.xfs says.

    Raises:
        RigError: something is missing, so the output was cut off.
    """
    block_size = int(found_in(r"^data\s.*?\bbsize=(\d+)", text, "xfs_info: block size"))
    blocks = int(found_in(r"^data\s.*?\bblocks=(\d+)", text, "xfs_info: blocks"))
    sector_size = int(found_in(r"^meta-data=[^\n]*\n\s+=\s+sectsz=(\d+)", text, "xfs_info: sector size"))
    sunit = int(found_in(r"^data\s[^\n]*\n\s+=\s+sunit=(\d+)\s", text, "xfs_info: sunit"))
    swidth = int(found_in(r"^data\s[^\n]*\n\s+=\s+sunit=\d+\s+swidth=(\d+) blks", text, "xfs_info: swidth"))
    log = found_in(r"^log\s+=(\S+)", text, "xfs_info: log")
    log_bytes = int(found_in(r"^log\s+=.*?\bbsize=(\d+)", text, "xfs_info: block size of the log"))
    log_blocks = int(found_in(r"^log\s+=.*?\bblocks=(\d+)", text, "xfs_info: blocks of the log"))
    log_unit = int(found_in(r"^log\s[^\n]*\n\s+=.*?\bsunit=(\d+) blks", text, "xfs_info: sunit of the log"))
    # The last line, so that what comes before it is whole.
    found_in(r"^realtime\s+=.*\brtextents=(\d+)", text, "xfs_info: realtime")
    return Superblock(
        block_size=block_size,
        size=block_size * blocks,
        su=sunit * block_size,
        sw=swidth // sunit if sunit else 0,
        sector_size=sector_size,
        log=log,
        log_size=log_bytes * log_blocks,
        log_su=log_bytes * log_unit,
        # The first paragraph is all flags, but for sizes and counts, which are never 0 or 1; one more is of names.
        features=tuple(
            re.findall(r"\b[a-z0-9]+=[01]\b", re.split(r"^data", text, flags=re.MULTILINE)[0])
            + re.findall(r"^naming.*\b(parent=[01])\b", text, re.MULTILINE)
        ),
    )


def check_command(spec: XfsSpec, device: str) -> list[str]:
    """Look for damage, change nothing."""
    return ["xfs_repair", "-n", *(["-l", disk_path(spec.log)] if spec.log else []), device]


def parse_check(ended: Completed) -> FilesystemCheck:
    """Read the verdict of ``xfs_repair -n``.

    Raises:
        RigError: it gave none.
    """
    said = f"{ended.stdout}\n{ended.stderr}"
    if ended.status not in {0, 1, 2} or "Phase 1" not in said or _NO_ANSWER.search(said):
        raise RigError(f"xfs_repair gave no verdict, status {ended.status}: {said.strip()[-500:]}")
    if ended.status == 2 or _DIRTY in said:
        return FilesystemCheck(outcome="dirty", status=ended.status, reasons=("the log was not replayed",))
    if ended.status == 0:
        if "No modify flag set, skipping filesystem flush and exiting" not in said:
            raise RigError(f"xfs_repair was cut off: {said.strip()[-500:]}")
        return FilesystemCheck(outcome="clean", status=0)
    reasons = few(line.strip() for line in said.splitlines() if not _ROUTINE.match(line))
    return FilesystemCheck(outcome="corrupt", status=ended.status, reasons=reasons or ("xfs_repair: status 1",))
