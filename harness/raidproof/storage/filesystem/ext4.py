"""ext4: its command lines, and what its tools say."""

from raidproof.core.command import Completed
from raidproof.core.errors import RigError
from raidproof.core.layer import found_in, uuid_of
from raidproof.core.units import MIB
from raidproof.storage.array import Geometry, disk_path
from raidproof.storage.filesystem.spec import Ext4Spec
from raidproof.storage.filesystem.state import FilesystemCheck, Superblock, few

_UNCORRECTED = 4
_FAILED = 8 | 16 | 32 | 128


def journal_command(spec: Ext4Spec) -> list[str] | None:
    """Make the journal on a disk of its own, which comes before the filesystem; None if it has none."""
    if spec.log is None:
        return None
    size = [str(spec.log_size // spec.block_size)] if spec.log_size else []
    # A journal's blocks are as large as those of the filesystem.
    own = ["-U", uuid_of(spec.log)]
    return ["mke2fs", "-F", "-q", "-O", "journal_dev", *own, "-b", str(spec.block_size), disk_path(spec.log), *size]


def mkfs_command(spec: Ext4Spec, device: str, geometry: Geometry | None) -> list[str]:
    """Make the filesystem, over whatever the device carries."""
    alignment = spec.alignment(geometry)
    stride = alignment.su // spec.block_size if alignment else 0
    width = stride * alignment.sw if alignment else 0
    lazy = int(spec.lazy_init)
    extended = [
        "discard" if spec.discard else "nodiscard",
        f"lazy_itable_init={lazy}",
        f"lazy_journal_init={lazy}",
        # mke2fs asks the device where it is not told; 0 is how one says no.
        f"stride={stride}",
        f"stripe_width={width}",
    ]
    journal: list[str] = []
    if not spec.journal:
        journal = ["-O", "^has_journal"]
    elif spec.log:
        journal = ["-J", f"device={disk_path(spec.log)}"]
    elif spec.log_size:
        journal = ["-J", f"size={spec.log_size // MIB}"]
    inodes = ["-N", str(spec.inodes)] if spec.inodes else []
    return ["mkfs.ext4", "-F", "-q", "-b", str(spec.block_size), *inodes, "-E", ",".join(extended), *journal, device]


def enough_inodes(asked: int, found: int, size: int, block_size: int) -> bool:
    """Whether a filesystem of so many bytes has as many inodes as were asked for, and no more than rounding adds."""
    # A group has as many blocks as one of them has bits; its table is filled up to a block, of 128 bytes an inode at
    # least, and to a multiple of eight inodes (ext2fs_initialize in libext2fs).
    groups = -(-size // (8 * block_size * block_size))
    return asked <= found < asked + groups * (block_size // 128 + 8 + 1)


def mount_options(spec: Ext4Spec) -> tuple[str, ...]:
    """The options that it has to be mounted with."""
    if not spec.journal:
        # The kernel mounts nothing without a journal for which a data mode is asked.
        return spec.mount_options
    # By path: the superblock knows the journal's disk by a number that the next boot may give to another one.
    path = [f"journal_path={disk_path(spec.log)}"] if spec.log else []
    return (*spec.mount_options, f"data={spec.data}", *path)


def info_command(device: str) -> list[str]:
    """Describe the filesystem on a device."""
    return ["dumpe2fs", "-h", device]


def parse_info(text: str) -> Superblock:
    """Read ``dumpe2fs -h``.

    Raises:
        RigError: something is missing, so the output was cut off.
    """
    block_size = int(found_in(r"^Block size:\s+(\d+)$", text, "dumpe2fs: block size"))
    blocks = int(found_in(r"^Block count:\s+(\d+)$", text, "dumpe2fs: block count"))
    features = found_in(r"^Filesystem features:\s+(.+)$", text, "dumpe2fs: features").split()
    log, log_size = "none", None
    if "has_journal" not in features:
        # Far below all else that is read here: without it the output was cut off.
        found_in(r"^Checksum:\s+(0x[0-9a-f]{8})$", text, "dumpe2fs: checksum")
    elif uuid := _optional(r"^Journal UUID:\s+(\S+)$", text, ""):
        log = uuid
        found_in(r"^Checksum:\s+(0x[0-9a-f]{8})$", text, "dumpe2fs: checksum")
    else:
        log = "internal"
        log_size = block_size * int(found_in(r"^Total journal blocks:\s+(\d+)$", text, "dumpe2fs: journal"))
    stride = int(_optional(r"^RAID stride:\s+(\d+)$", text, "0"))
    width = int(_optional(r"^RAID stripe width:\s+(\d+)$", text, "0"))
    return Superblock(
        block_size=block_size,
        size=block_size * blocks,
        su=stride * block_size,
        sw=width // stride if stride else 0,
        log=log,
        log_size=log_size,
        inodes=int(found_in(r"^Inode count:\s+(\d+)$", text, "dumpe2fs: inode count")),
        features=tuple(features),
    )


def _optional(pattern: str, text: str, otherwise: str) -> str:
    try:
        return found_in(pattern, text, "")
    except RigError:
        return otherwise


def check_command(device: str) -> list[str]:
    """Look for damage, change nothing."""
    return ["e2fsck", "-f", "-n", device]


def parse_check(ended: Completed) -> FilesystemCheck:
    """Read the verdict of ``e2fsck -fn``.

    Raises:
        RigError: it gave none.
    """
    said = f"{ended.stdout}\n{ended.stderr}"
    if "Bad magic number in super-block" in said:
        return FilesystemCheck(outcome="corrupt", status=ended.status, reasons=("the superblock is gone",))
    if ended.status & _FAILED or "is mounted" in said.lower() or "Pass 1" not in said:
        raise RigError(f"e2fsck gave no verdict, status {ended.status}: {said.strip()[-500:]}")
    if "skipping journal recovery" in said:
        return FilesystemCheck(outcome="dirty", status=ended.status, reasons=("the journal was not replayed",))
    if ended.status == 0:
        if "Pass 5" not in said:
            raise RigError(f"e2fsck was cut off: {said.strip()[-500:]}")
        return FilesystemCheck(outcome="clean", status=0)
    if not ended.status & _UNCORRECTED:
        raise RigError(f"e2fsck -n cannot have corrected anything, yet its status is {ended.status}")
    reasons = few(line.strip() for line in ended.stdout.splitlines() if line.strip() and not line.startswith("Pass "))
    return FilesystemCheck(outcome="corrupt", status=ended.status, reasons=reasons)
