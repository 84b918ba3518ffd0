"""The file with the instants at which the server's replies to the ledger's operations crossed the network."""

import struct
from collections.abc import Mapping
from pathlib import Path

from raidproof.core.errors import RigError

_ENTRY = struct.Struct("<IIQ")  # worker, sequence, CLOCK_MONOTONIC in ns


def write_replies(path: Path, replied: Mapping[tuple[int, int], int]) -> None:
    """Write the instants, by worker and sequence."""
    path.write_bytes(b"".join(_ENTRY.pack(*key, at_ns) for key, at_ns in sorted(replied.items())))


def read_replies(path: Path) -> dict[tuple[int, int], int]:
    """Read what `write_replies` wrote.

    Raises:
        RigError: it is something else.
    """
    try:
        return {(worker, sequence): at_ns for worker, sequence, at_ns in _ENTRY.iter_unpack(path.read_bytes())}
    except struct.error as error:
        raise RigError(f"not the instants of replies: {path}: {error}") from error
