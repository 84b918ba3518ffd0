"""What an adopted disk carries: our mark, in its first and in its last 4 KiB.

An md member with metadata 1.2 begins 4 KiB behind the disk's start, so the first copy stays while the disk is in an
array; the last one may be overwritten. A log or journal outside of a file system begins at byte 0 and overwrites the
first, but rarely fills the disk: then the last one stays. Whoever else takes the disk overwrites the first copy, or
leaves a signature, or both.
"""

import json
import zlib

from pydantic import ValidationError

from raidproof.core.layer import State

BLOCK = 4096
"""Bytes of each copy."""
MAGIC = b"raidproof mark 1\n"
"""No tool takes it for a signature: none has one at these bytes."""


class Identity(State):
    """Which disk it is, whatever its kernel name."""

    id: str
    """The path in /dev/disk/by-id by which it was asked for."""
    size: int
    """Bytes."""
    model: str | None = None
    serial: str | None = None
    """The manufacturer's serial number."""
    wwn: str | None = None

    def __str__(self) -> str:
        return f"{self.id} (model {self.model}, serial number {self.serial}, WWN {self.wwn}, {self.size} bytes)"


class Mark(State):
    """That a disk was given to raidproof, by which inventory, and as which disk."""

    inventory: str
    """Digest of the inventory that was confirmed, and of the machine that it was confirmed on."""
    serial: str
    """The name that scenarios have for the disk: disk0, disk1, ..."""
    identity: Identity


def encode(mark: Mark) -> bytes:
    """Return the block that is written."""
    body = mark.model_dump_json().encode()
    block = MAGIC + b"%08x %d\n" % (zlib.crc32(body), len(body)) + body
    # Bytes 510 and 511 of a disk are the signature of a partition table, and 1080 is where ext4 has its own.
    if len(block) > BLOCK:
        raise ValueError(f"a mark of {len(block)} bytes does not fit into {BLOCK}")
    return block.ljust(BLOCK, b"\0")


def decode(block: bytes) -> Mark | None:
    """Read a block; None if it is no mark, or a damaged one."""
    head, _, rest = block.removeprefix(MAGIC).partition(b"\n")
    if not block.startswith(MAGIC):
        return None
    try:
        crc, length = int(head[:8], 16), int(head[9:])
        body = rest[:length]
        if zlib.crc32(body) != crc or len(body) != length:
            return None
        return Mark.model_validate(json.loads(body))
    except (ValueError, ValidationError):
        return None
