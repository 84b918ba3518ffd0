"""The blocks of the ledger in data that was written to a disk."""

from collections.abc import Iterator
from typing import NamedTuple

from raidproof.guest.ledger_format import HEADER, MAGIC


class Written(NamedTuple):
    """The header of a block of the ledger, by which the block is identified."""

    file: int
    offset: int
    """Byte offset in the file."""
    generation: int


def blocks_in(data: bytes | memoryview) -> Iterator[Written]:
    """Yield each block of the ledger whose header is in the data of a write request.

    A block begins anywhere in the data: a file system whose blocks are smaller than the ledger's places it at any of
    its own blocks, and its other parts may be in other requests.
    """
    found = bytes(data)
    at = found.find(MAGIC)
    while at >= 0:
        if at + HEADER.size <= len(found):
            _, file, offset, generation, _ = HEADER.unpack_from(found, at)
            yield Written(file, offset, generation)
        at = found.find(MAGIC, at + 1)
