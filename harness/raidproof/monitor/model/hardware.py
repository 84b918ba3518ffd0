"""The hardware that a formula is told: drives, what they hang on, and how much of a drive a member is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from raidproof.core.topology import ControllerSpec
from raidproof.disk.profile import Profile


@dataclass(frozen=True)
class Member:
    """One disk of the server."""

    profile: Profile
    controller: str | None = None
    reach: float = 1.0
    """Share of the drive's addresses, from the rim, over which the member lies: 1 if it is spread over the drive."""


@dataclass(frozen=True)
class Hardware:
    """The server's disks by serial, and their controllers by name."""

    members: Mapping[str, Member]
    controllers: Mapping[str, ControllerSpec] = field(default_factory=dict)

    def of(self, serials: Sequence[str]) -> tuple[Member, ...]:
        """The disks of an array."""
        return tuple(self.members[serial] for serial in serials)

    def keeps_writes(self, member: Member) -> bool:
        """Whether a write, also a synchronous one, is answered from a cache that (it is believed) outlives a cut.

        A controller with a failed battery writes through; one whose failure nobody noticed does not.
        """
        behind = self.controllers.get(member.controller or "")
        if behind is not None and behind.cache and behind.battery != "failed":
            return True
        return member.profile.cache.size > 0 and member.profile.cache.protected

    def write_cache(self, members: Sequence[Member], *, durable: bool) -> int:
        """Bytes that the write caches of an array hold; ``durable`` counts only those that a flush does not empty."""
        behind = {member.controller for member in members if member.controller}
        held = sum(one.cache for name, one in self.controllers.items() if name in behind and one.battery != "failed")
        drives = [
            member.profile.cache
            for member in members
            if member.profile.cache.write_back and (member.profile.cache.protected or not durable)
        ]
        # A stripe waits for its slowest member, so one without a cache holds up all.
        return held + (len(members) * min(cache.size for cache in drives) if len(drives) == len(members) else 0)

    def controller_cap(self, members: Sequence[Member], traffic: float, commands: float) -> float:
        """MB/s of the application that the controllers let pass, the members being loaded evenly.

        A controller carries its members' share of all that goes to the disks: ``traffic`` bytes a byte of the
        application, and as many ``commands``. The first that is full holds up all stripes.
        """
        cap = inf
        for name, one in self.controllers.items():
            share = sum(member.controller == name for member in members) / len(members)
            if share and one.bandwidth_mb_s is not None:
                cap = min(cap, one.bandwidth_mb_s / (traffic * share))
            if share and one.commands_per_s is not None:
                cap = min(cap, one.commands_per_s / (commands * share) / 1e6)
        return cap
