"""What a fault may leave of an array: all else that differs from what was asked stays a finding."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from raidproof.core.layer import Value
from raidproof.storage.array.spec import Md, disk_path
from raidproof.storage.array.state import MdState


@dataclass(frozen=True)
class ExpectedDeviation:
    """What an array may be like when it is assembled again. Members are named by their serials."""

    absent: frozenset[str] = frozenset()
    """They may be missing."""
    rebuilding: frozenset[str] = frozenset()
    """They may be in their place and not yet rebuilt."""
    renewed: frozenset[str] = frozenset()
    """Their metadata was written anew on purpose, so their Device UUID is another one."""
    raid_disks: int | None = None
    """It has, or is getting, so many members instead of those that were asked."""
    starts_dirty: bool = False
    """Consent to start it dirty and degraded, which md and mdadm refuse: where nothing closes the write hole, a stripe
    that was being written may then give back rubbish for a block that nobody wrote."""

    def plus(self, **more: frozenset[str]) -> Self:
        """Return it with further serials."""
        return replace(self, **{word: getattr(self, word) | serials for word, serials in more.items()})

    def minus(self, *serials: str) -> Self:
        """Return it with these members expected whole again; what was renewed stays so."""
        gone = frozenset(serials)
        return replace(self, absent=self.absent - gone, rebuilding=self.rebuilding - gone)

    def accepted(self, md: Md, asked: Mapping[str, Value], found: Mapping[str, Value]) -> dict[str, Value]:
        """Return what is to be asked of one md device, given what was found of it."""
        changed: dict[str, Value] = {}
        missing = set(md.inputs) - set(_words(found["inputs"]))
        if missing and missing <= {disk_path(serial) for serial in self.absent}:
            changed["inputs"] = tuple(sorted(set(md.inputs) - missing))
        if self.raid_disks is not None and md.number == 0:
            # Of whole stripes, which the queue tells, there are still the old ones and already the new ones.
            changed |= {"raid_disks": self.raid_disks, "stripe_width": None}
        return {**asked, **changed}

    def unexpected(self, found: MdState) -> list[str]:
        """Return the members that are in their place but not in sync, and should be."""
        expected = {disk_path(serial) for serial in self.rebuilding | self.absent}
        return [
            member.device
            for member in found.members
            if member.slot is not None and "in_sync" not in member.state and member.device not in expected
        ]


def _words(value: Value) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()
