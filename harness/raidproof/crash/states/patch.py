"""What has to be written to the members to turn one content into another."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from raidproof.disk.writelog import LogWriter, MemberInfo

BLOCK = 4096
"""Bytes in which contents are compared: a page, in which md and the file systems write."""
_LONGEST = 1 << 20


@dataclass
class Patch:
    """Whole blocks of the members, by the member's number and the block's."""

    blocks: dict[tuple[int, int], bytes] = field(default_factory=dict)

    def then(self, later: "Patch") -> "Patch":
        """Return what both do, one after the other."""
        return Patch({**self.blocks, **later.blocks})

    def runs(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield (member, offset in bytes, data), neighbours joined."""
        whose, start, parts = -1, 0, list[bytes]()
        for member, block in sorted(self.blocks):
            if member != whose or block != start + len(parts) or len(parts) * BLOCK >= _LONGEST:
                if parts:
                    yield whose, start * BLOCK, b"".join(parts)
                whose, start, parts = member, block, []
            parts.append(self.blocks[member, block])
        if parts:
            yield whose, start * BLOCK, b"".join(parts)

    def write(self, path: Path, members: Sequence[MemberInfo]) -> None:
        """Write it as a write log, for `EngineClient.show`.

        Raises:
            OSError: the file exists, or cannot be written.
        """
        log = LogWriter(path, members, 0, blank=False)
        try:
            for member, offset, data in self.runs():
                # The last block of a disk may be cut short.
                log.write(0, member, offset, (0, 0), data[: members[member].size - offset])
            log.close(0)
        except BaseException:
            log.abandon()
            raise

    @classmethod
    def of(cls, blocks: Mapping[tuple[int, int], bytes | bytearray]) -> "Patch":
        """Return the patch that writes these blocks."""
        return cls({place: bytes(data) for place, data in blocks.items()})
