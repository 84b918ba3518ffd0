"""The flags of md's members: write-mostly with write-behind, and failfast (md(4), mdadm(8))."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from raidproof.core.errors import RequestError
from raidproof.storage.array.array import ArraySpec
from raidproof.storage.array.level import Level, listed

WRITE_MOSTLY, FAILFAST = "write-mostly", "failfast"
"""The names of the flags in `Level.member_flags`."""
MOST_BEHIND = 16383
"""The largest number of write-behind writes that mdadm accepts."""


def taking(flag: str) -> Callable[[type[Level]], bool]:
    """Return a function that returns whether a flag of members takes effect on a level."""
    return lambda kind: flag in kind.member_flags


class FlaggedSpec(ArraySpec):
    """A requested array whose members may have flags."""

    write_mostly: Annotated[int, Field(ge=0)] = 0
    """Number of write-mostly members, the last ones: md reads from them only if no other member has the data."""
    write_behind: Annotated[int, Field(ge=1, le=MOST_BEHIND)] | None = None
    """Greatest number of writes that md acknowledges before the write-mostly members have them; None: none."""
    failfast: bool = False
    """Whether md lets requests to all members fail without retries, and declares a slow member faulty sooner."""

    @model_validator(mode="after")
    def _possible_flags(self) -> Self:
        for flag, requested in ((WRITE_MOSTLY, self.write_mostly > 0), (FAILFAST, self.failfast)):
            if requested and flag not in self.kind.member_flags:
                others = listed(taking(flag))
                raise RequestError(f"{flag}: md ignores it on RAID{self.level}; it takes effect on RAID{others}")
        if self.write_mostly >= len(self.members):
            raise RequestError(f"write_mostly {self.write_mostly} leaves no other member of {len(self.members)}")
        if self.write_mostly and (spares := [serial for serial in self.disks if serial not in self.members]):
            raise RequestError(f"mdadm would make the spares write-mostly, too: {', '.join(spares)}")
        if self.write_behind is None:
            return self
        if not self.write_mostly:
            raise RequestError("write_behind is for write-mostly members, but write_mostly requests none")
        if self.policy != "bitmap":
            raise RequestError(
                f"write_behind needs a write-intent bitmap (mdadm(8)), but the consistency policy is {self.policy}"
            )
        return self

    @property
    def uses_members_alike(self) -> bool:
        """Whether no member is write-mostly."""
        return self.write_mostly == 0

    def flags(self, members: Sequence[str]) -> dict[str, Any]:
        """Return the fields of `Md` about flags; ``members``: the device paths of the members."""
        return {
            "write_mostly": tuple(members[len(members) - self.write_mostly :]),
            "write_behind": self.write_behind,
            "failfast": self.failfast,
        }
