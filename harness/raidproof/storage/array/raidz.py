"""The levels RAIDZ1, RAIDZ2 and RAIDZ3: each block has stripes and parity of its own, on some or all members.

Sources: zpoolconcepts(7), and module/zfs/vdev_raidz.c of OpenZFS.
"""

from math import ceil

from raidproof.core.units import KIB
from raidproof.storage.array.level import Level, MemberRequests

SECTOR = 4 * KIB
"""Bytes of a sector with ``ashift=12``, the unit in which a block is divided among the members."""


class _Raidz(Level):
    """A level without chunks: the sectors of a block are divided among the members, and a write never reads."""

    chunked = False

    def reads(self, request: int, chunk_size: int | None) -> MemberRequests:  # noqa: ARG002
        """Return the member requests of a read of a block of ``request`` bytes: one to each member with its data."""
        width = self._spread(request)
        return MemberRequests(commands=width, width=width, size=ceil(request / width))

    def writes(self, request: int, chunk_size: int | None) -> MemberRequests:  # noqa: ARG002
        """Return the member requests of a write of a block of ``request`` bytes: its data, and its parity."""
        width = self._spread(request)
        written = width + self.parity
        return MemberRequests(commands=written, width=written, size=ceil(request / width))

    def _spread(self, request: int) -> int:
        """Return the number of members that hold the data of a block."""
        return max(1, min(ceil(request / SECTOR), self.width))


class Raidz1(_Raidz):
    """RAIDZ1: one parity sector in each stripe of a block."""

    name = "z1"
    least_members = 2
    parity = 1
    spellings = frozenset({"z"})


class Raidz2(_Raidz):
    """RAIDZ2: two parity sectors in each stripe of a block."""

    name = "z2"
    least_members = 3
    parity = 2


class Raidz3(_Raidz):
    """RAIDZ3: three parity sectors in each stripe of a block."""

    name = "z3"
    least_members = 4
    parity = 3
