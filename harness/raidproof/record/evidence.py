"""What was found of each acknowledged operation after a fault, at one place of observation."""

from enum import StrEnum

from pydantic import BaseModel, Field


class BlockClass(StrEnum):
    """What became of one block of the ledger."""

    DURABLE = "durable"
    UNSYNCED_KEPT = "unsynced-kept"
    UNSYNCED_LOST = "unsynced-lost"
    SYNCED_LOST = "synced-lost"
    STALE = "stale"
    GARBAGE = "garbage"
    OLD = "old data of the disk"
    """What the disk held before the run: it was never zeroed, nor written."""
    MISPLACED = "misplaced"
    UNREADABLE = "unreadable"


BROKEN = frozenset(
    {
        BlockClass.SYNCED_LOST,
        BlockClass.STALE,
        BlockClass.GARBAGE,
        BlockClass.OLD,
        BlockClass.MISPLACED,
        BlockClass.UNREADABLE,
    }
)


class Evidence(BaseModel):
    """The ledger's balance after a fault, at one place of observation."""

    acknowledged: dict[str, int] = Field(default_factory=dict)
    """Operations that had been acknowledged, by kind; a kind that no worker was to do is not there."""
    judged: dict[str, int] = Field(default_factory=dict)
    """How many of them could have shown a loss: the others were covered by later ones."""
    lost: dict[str, int] = Field(default_factory=dict)
    """How many of them are not there, by kind."""
    lost_bytes: int = 0
    lost_files: int = 0
    """Files of which nothing is left, not even the name."""
    lost_after_recovery: int = 0
    """How many of them were begun when clients were served again: no fault came after these."""
    across_restart: int = 0
    """Acknowledged `close`s that are not judged, as they were under way when the server restarted."""
    first_lost_ns: int | None = None
    """When the earliest lost operation had been acknowledged; all that was acknowledged before it survived."""
    blocks: dict[BlockClass, int] = Field(default_factory=dict)
    invented: list[str] = Field(default_factory=list)
    """What is there and was never written."""
    examples: list[str] = Field(default_factory=list)
    """The first broken things, in words."""

    @property
    def acknowledged_total(self) -> int:
        """Operations of all kinds that were acknowledged."""
        return sum(self.acknowledged.values())

    @property
    def lost_total(self) -> int:
        """Operations of all kinds that were acknowledged and are not there."""
        return sum(self.lost.values())

    @property
    def broken_blocks(self) -> int:
        """Blocks in a state that no promise allows."""
        return sum(count for kind, count in self.blocks.items() if kind in BROKEN)
