"""Checksums of dm-integrity on each member, by integritysetup(8): in its journal mode or in its bitmap mode.

A read of a sector whose checksum is wrong fails, and md then reads the data from the other members. Source: the
kernel's Documentation/admin-guide/device-mapper/dm-integrity.rst.
"""

import re
from collections.abc import Sequence
from typing import ClassVar, Literal

from raidproof.core.layer import Machine, found_in, require_effective
from raidproof.core.waiting import Deadline, wait_until
from raidproof.storage.member.member import PREFIX, MemberLayer, disk_path

CHECKSUM = "crc32c"
FORMAT_DEADLINE_S = 600.0
"""Time limit in seconds for the first computation of the checksums of all members."""
MODES = {"J": "journal", "B": "bitmap"}
"""The modes of dm-integrity, by their letter in the table."""
_POLL_S = 0.1


class Integrity(MemberLayer):
    """dm-integrity with a journal: data and checksums are written twice, and are consistent after a crash."""

    opaque: ClassVar[str | None] = "the members are devices of dm-integrity, whose journal has the newest data"
    damage: ClassVar[str] = r"device-mapper: integrity: .*[Cc]hecksum failed"
    packages: ClassVar[tuple[str, ...]] = ("cryptsetup-bin",)
    mode: ClassVar[str] = "journal"

    type: Literal["integrity"] = "integrity"

    @property
    def _words(self) -> list[str]:
        return ["--integrity", CHECKSUM, *(["--integrity-bitmap-mode"] if self.mode == "bitmap" else [])]

    def format_command(self, serial: str) -> list[str]:
        """Return the command that formats a disk. The kernel computes the checksums after the first opening."""
        return ["integritysetup", "format", "--batch-mode", "--no-wipe", *self._words, disk_path(serial)]

    def open_command(self, serial: str, *, first: bool = False) -> list[str]:
        """Return the command that opens a disk; for the first time with the computation of all checksums."""
        computed = ["--integrity-recalculate"] if first else []
        return ["integritysetup", "open", *self._words, *computed, disk_path(serial), f"{PREFIX}{serial}"]

    def close_command(self, serial: str) -> list[str]:
        """Return the command that closes a disk."""
        return ["integritysetup", "close", f"{PREFIX}{serial}"]

    def wait_formatted(self, machine: Machine, serials: Sequence[str]) -> None:
        """Wait until the kernel has computed the checksums of all members.

        Raises:
            DeadlineExceeded: the computation takes longer than `FORMAT_DEADLINE_S` seconds.
        """

        def computed() -> bool:
            return all(recalculated(self._line(machine, "status", serial)) for serial in serials)

        wait_until(lambda: computed() or None, Deadline.after(FORMAT_DEADLINE_S), "checksums of dm-integrity", _POLL_S)

    def require_effective(self, machine: Machine, serials: Sequence[str]) -> None:
        """Verify the mode and the checksum of each member.

        Raises:
            NotEffective: an effective value differs from the requested one.
        """
        asked = {"mode": self.mode, "checksum": CHECKSUM}
        for serial in serials:
            require_effective(self.path(serial), dict(asked), dict(parse_table(self._line(machine, "table", serial))))

    def _line(self, machine: Machine, what: str, serial: str) -> str:
        return machine.succeed(["dmsetup", what, f"{PREFIX}{serial}"])


class IntegrityWithBitmap(Integrity):
    """dm-integrity with a bitmap: data is written once; after a crash, dirty regions get new checksums."""

    mode: ClassVar[str] = "bitmap"

    type: Literal["integrity-bitmap"] = "integrity-bitmap"  # type: ignore[assignment]


def recalculated(status: str) -> bool:
    """Return whether no checksum remains to be computed, from ``dmsetup status``: ``0 387144 integrity 0 387144 -``.

    The last two values are the sectors of the device, and those with a checksum; ``-``: no computation was requested.

    Raises:
        RigError: the line is truncated, or of another target.
    """
    found = found_in(r"^\d+ \d+ integrity \d+ (\d+ \S+)\s*$", status, f"the progress of dm-integrity in {status!r}")
    sectors, done = found.split()
    return done in {"-", sectors}


def parse_table(table: str) -> dict[str, str]:
    """Parse the mode and the checksum in ``dmsetup table``: ``0 387144 integrity 254:64 0 4 B 8 ...``.

    Raises:
        RigError: the line is truncated, or of another target.
    """
    mode = found_in(r"^\d+ \d+ integrity \S+ \d+ \S+ ([A-Z]) ", table, f"the mode of dm-integrity in {table!r}")
    checksum = re.search(r" internal_hash:(\S+)", table)
    return {"mode": MODES.get(mode, mode), "checksum": checksum[1] if checksum else "none"}
