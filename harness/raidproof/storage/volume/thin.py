"""A thin volume in a thin pool of LVM (lvmthin(7)): the kernel maps a chunk of the pool at the first write to it.

The kernel commits the metadata of the pool before it completes a flush. Source: the kernel's
Documentation/admin-guide/device-mapper/thin-provisioning.rst.
"""

import re
from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import model_validator

from raidproof.core.errors import RequestError, RigError
from raidproof.core.layer import Machine, Value
from raidproof.core.units import GIB, KIB, SECTOR, Size, format_size
from raidproof.storage.member import MAPPER
from raidproof.storage.volume.logical import EXTENT, GROUP, VOLUME, LogicalVolume, only
from raidproof.storage.volume.volume import Reading, sectors_of

POOL = "pool"
POOL_NAME = f"{GROUP}-{POOL}-tpool"
"""The name of the thin pool in device-mapper."""
POOL_PERCENT, VOLUME_PERCENT = 90, 80
"""Extents of the group that the pool and the volume have, in percent. The rest of the group is for the metadata of the
pool and its spare; the volume is smaller than the pool, so that a full file system does not fill the pool."""
SIZE = "YOUR-SIZE"
"""The size of the volume in the command for users, who choose it."""
_LEAST_CHUNK = 64 * KIB
_TABLE = re.compile(r"0 \d+ thin \S+ \d+\s*")
_POOL_TABLE = re.compile(r"0 \d+ thin-pool \S+ \S+ (\d+) \d+ (\d+)((?: \S+)*)\s*")
_POOL_STATUS = re.compile(
    r"0 \d+ thin-pool \d+ (\d+)/(\d+) (\d+)/(\d+) \S+ (\S+) (ignore_discard|no_discard_passdown|discard_passdown) "
    r"\S+_if_no_space (\S+)(?: \d+)?\s*"
)
_DISCARDS = {"ignore_discard": "ignore", "no_discard_passdown": "nopassdown", "discard_passdown": "passdown"}
"""The word of lvmthin(7) for a discard mode, by the word of the kernel."""


class ThinVolume(LogicalVolume):
    """A thin volume that has a thin pool for itself."""

    axes: ClassVar[Mapping[str, str]] = {
        "thin_chunk": "bytes of a chunk of the thin pool",
        "thin_discards": "what a thin pool does with a discard: ignore, nopassdown, passdown (lvmthin(7))",
    }
    damage: ClassVar[str] = (
        r"device-mapper: (?:thin|space map metadata|space map disk|btree|block manager|transaction manager)[^:]*: .*"
        r"(?:aborting|failed|needs_check|error|read-only mode|out-of-data-space|corrupt|mismatch)"
    )
    in_place: ClassVar[bool] = False
    keeps_places: ClassVar[bool] = False

    type: Literal["thin"] = "thin"
    thin_chunk: Size = _LEAST_CHUNK
    """Bytes of a chunk of the pool."""
    thin_discards: Literal["ignore", "nopassdown", "passdown"] | None = None
    """What the pool does with a discard of the file system; None leaves the choice to LVM and the kernel.

    ``passdown`` is effective only if the array takes discards, as RAID5 does not by default (raid456,
    devices_handle_discard_safely)."""

    @model_validator(mode="after")
    def _possible(self) -> "ThinVolume":
        chunk = self.thin_chunk
        if chunk % _LEAST_CHUNK or not _LEAST_CHUNK <= chunk <= GIB:
            raise RequestError(f"thin_chunk {format_size(chunk)} is not a multiple of 64KiB from 64KiB to 1GiB")
        return self

    def room(self, size: int) -> int:
        """Return the bytes of the volume on an array of ``size`` bytes."""
        return super().room(size) // EXTENT * VOLUME_PERCENT // 100 * EXTENT

    def caveats(self) -> tuple[str, ...]:
        """Return the sentence about thin_check, which LVM runs before an activation if the image has it."""
        return ("LVM activates the thin pool without thin_check(8) if the image lacks thin-provisioning-tools",)

    def format_commands(self, below: str) -> list[list[str]]:
        """Return the commands that create the volume group, the thin pool, and the thin volume."""
        discards = [f"--discards={self.thin_discards}"] if self.thin_discards else []
        pool = [f"--chunksize={self.thin_chunk}b", *discards, f"--extents={POOL_PERCENT}%FREE", f"--name={POOL}"]
        volume = [f"--virtualsize={SIZE}", f"--thinpool={POOL}", f"--name={VOLUME}"]
        return [
            *self.group_commands(below),
            ["lvcreate", only(below), "--yes", "--type=thin-pool", *pool, GROUP],
            ["lvcreate", only(below), "--yes", "--wipesignatures=n", "--type=thin", *volume, GROUP],
        ]

    def completed(self, command: list[str], machine: Machine, below: str) -> list[str]:
        """Return a command with the size of the volume: lvcreate takes no percentage for a thin one."""
        if not any(SIZE in word for word in command):
            return command
        size = self.room(sectors_of(machine, below) * SECTOR)
        return [word.replace(SIZE, f"{size}b") for word in command]

    def inputs(self, below: str) -> tuple[str, ...]:  # noqa: ARG002
        """Return the thin pool."""
        return (f"{MAPPER}{POOL_NAME}",)

    def asked(self) -> dict[str, Value]:
        """Return the settings of the pool, and that the kernel writes to it, with what LVM must report."""
        return {
            **super().asked(),
            "chunk_size": self.thin_chunk,
            "discards": self.thin_discards,
            "zeroes_chunks": True,
            "fits_pool": True,
            "mode": "rw",
            "needs_check": False,
        }

    def read(self, machine: Machine, below: str) -> Reading:
        """Read settings and counters of the volume and of its pool."""
        own = super().read(machine, below)
        table, status = (machine.succeed(["dmsetup", what, POOL_NAME]) for what in ("table", "status"))
        settings, counters = parse_pool(table, status)
        size, pool = own.counters["size"], counters["pool_size"]
        fits = {"fits_pool": VOLUME_PERCENT * pool <= 100 * size <= 100 * pool}
        return Reading({**own.settings, **settings, **fits}, {**own.counters, **counters})

    def found(self, table: str) -> dict[str, Value]:
        """Check that ``dmsetup table`` has a thin volume: ``0 1040384 thin 252:2 1``."""
        if _TABLE.fullmatch(table) is None:
            raise RigError(f"dmsetup table {self.name}: expected one line of thin, found {table.strip()!r}")
        return {}


def parse_pool(table: str, status: str) -> tuple[dict[str, Value], dict[str, int]]:
    """Return settings and counters of a thin pool, from the output of ``dmsetup table`` and ``dmsetup status``.

    Raises:
        RigError: a line is truncated, or of another target.
    """
    made, now = _POOL_TABLE.fullmatch(table), _POOL_STATUS.fullmatch(status)
    if made is None or len(made[3].split()) != int(made[2]):
        raise RigError(f"dmsetup table {POOL_NAME}: expected a line of thin-pool, found {table.strip()!r}")
    if now is None:
        raise RigError(f"dmsetup status {POOL_NAME}: expected a line of thin-pool, found {status.strip()!r}")
    chunk = int(made[1]) * SECTOR
    settings: dict[str, Value] = {
        "chunk_size": chunk,
        "discards": _DISCARDS[now[6]],
        "zeroes_chunks": "skip_block_zeroing" not in made[3].split(),
        "mode": now[5],
        "needs_check": now[7] == "needs_check",
    }
    counters = {
        "pool_metadata_blocks_used": int(now[1]),
        "pool_metadata_blocks": int(now[2]),
        "pool_used": int(now[3]) * chunk,
        "pool_size": int(now[4]) * chunk,
    }
    return settings, counters
