"""What there is to judge by: all that was measured of one cell, and what it was made of."""

from dataclasses import dataclass

from raidproof.core.units import MIB
from raidproof.monitor.derived import Derived
from raidproof.monitor.engine_use import EngineUse
from raidproof.storage.array import ArraySpec, capacity


@dataclass(frozen=True)
class Facts:
    """All that the rules look at."""

    derived: Derived
    array: ArraySpec
    wsize: int | None = None
    """Bytes, as effective on the mount."""
    sync: bool = True
    """Of the export."""
    engine: EngineUse | None = None
    """None where the disks are real, or have no mechanics."""
    link_bytes_s: float | None = None
    """What the server's link carries in one direction; None has no limit."""

    @property
    def members_busy(self) -> dict[str, float]:
        """Share of the time by serial: as the simulated disks say, else as the kernel does."""
        if self.engine is not None and self.engine.members_busy:
            return self.engine.members_busy
        return {serial: use.busy for serial, use in (self.derived.members or {}).items()}

    @property
    def link(self) -> float | None:
        """Bytes a second in the busier direction of the server's links."""
        server = self.derived.machines.get(self.derived.server)
        if server is None or server.received_bytes_s is None or server.sent_bytes_s is None:
            return None
        return max(server.received_bytes_s, server.sent_bytes_s)

    @property
    def stripe(self) -> int | None:
        """Bytes of data in a whole stripe; None for a mirror."""
        geometry = self.array.geometry
        return geometry.stripe_unit * geometry.data_disks if geometry else None

    @property
    def needed(self) -> float:
        """Bytes that the members have to write for each byte of data, in whole stripes."""
        return len(self.array.members) * MIB / capacity(self.array, MIB)
