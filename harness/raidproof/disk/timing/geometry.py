"""Where on the platters an address is, and when it passes under the heads."""

from bisect import bisect_right
from enum import Enum

from raidproof.core.errors import RequestError
from raidproof.disk.profile import Profile

_SECTOR = 512


class Placement(Enum):
    """Where a member lies that is smaller than the drive which it stands for."""

    SPREAD = "spread"
    """All over it: tracks keep their size and adjacent ones their switch time, the way between others is stretched
    to the full stroke."""
    OUTER = "outer"
    """The first bytes of the drive: its fastest zone and short seeks."""


class Geometry:
    """The tracks of a member.

    All is said in *stream time*: how long after address 0 an address passes, in ns, if the drive reads on and on, one
    turn and one head switch a track. As the skew between tracks is the switch time, stream time modulo a turn is also
    the angle at which an address lies.
    """

    def __init__(self, profile: Profile, size: int, placement: Placement) -> None:
        mechanics = profile.rotational
        if mechanics is None:
            raise RequestError(f"{profile.name}: no rotational disk")
        self.turn_ns = round(60e9 / mechanics.rpm)
        self.switch_ns = round(mechanics.head_switch_ms * 1e6)
        self.step_ns = self.turn_ns + self.switch_ns
        zones = mechanics.zones
        span = mechanics.media_rate_rim_mb_s - mechanics.media_rate_hub_mb_s
        rates = [mechanics.media_rate_rim_mb_s - span * zone / max(1, zones - 1) for zone in range(zones)]
        self._track_size = [max(_SECTOR, int(rate * self.step_ns / 1e3) // _SECTOR * _SECTOR) for rate in rates]
        laid_out = profile.capacity if placement is Placement.OUTER else size
        self.tracks = max(zones, -(-laid_out * zones // sum(self._track_size)))
        while True:
            self._first_track = [self.tracks * zone // zones for zone in range(zones)]
            self._first_byte = [0]
            for zone in range(zones):
                after = self._first_track[zone + 1] if zone + 1 < zones else self.tracks
                count = after - self._first_track[zone]
                self._first_byte.append(self._first_byte[-1] + count * self._track_size[zone])
            self.capacity = self._first_byte.pop()
            if self.capacity >= size:
                break
            self.tracks += 1

    def stream_ns(self, address: int) -> int:
        """Return the stream time of a byte."""
        zone = bisect_right(self._first_byte, address) - 1
        track, within = divmod(address - self._first_byte[zone], self._track_size[zone])
        return (self._first_track[zone] + track) * self.step_ns + within * self.turn_ns // self._track_size[zone]

    def address(self, stream_ns: int) -> int:
        """Return the byte that passes at a stream time, in whole sectors; beyond the last one: the capacity."""
        track, within = divmod(stream_ns, self.step_ns)
        if track >= self.tracks:
            return self.capacity
        zone = bisect_right(self._first_track, track) - 1
        size = self._track_size[zone]
        passed = size if within >= self.turn_ns else within * size // self.turn_ns // _SECTOR * _SECTOR
        return self._first_byte[zone] + (track - self._first_track[zone]) * size + passed
