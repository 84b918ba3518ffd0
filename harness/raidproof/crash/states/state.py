"""One crash: when the power went, and what the disks' caches had kept of that for which nobody had waited."""

import json
from typing import NamedTuple
from zlib import crc32

from raidproof.core.errors import RequestError

Spans = tuple[tuple[int, int], ...]
"""Byte ranges on a member, from and to, in order."""


class Survivor(NamedTuple):
    """A request that was not durable, and is on the disk all the same."""

    request: int
    """Its number in the recording."""
    spans: Spans | None = None
    """The parts of it that are there; None is all."""


class CrashState(NamedTuple):
    """What the power cut left: everything durable at ``cut``, and these requests, applied in their order."""

    cut: int
    survivors: tuple[Survivor, ...] = ()

    @property
    def name(self) -> str:
        """What it is called: the same for the same state of the same recording."""
        return f"{self.cut}-{crc32(self.dump().encode()):08x}"

    def dump(self) -> str:
        """Write it as JSON."""
        return json.dumps([self.cut, [[one.request, one.spans] for one in self.survivors]], separators=(",", ":"))

    @classmethod
    def load(cls, text: str) -> "CrashState":
        """Read what `dump` wrote.

        Raises:
            RequestError: it is something else.
        """
        try:
            cut, survivors = json.loads(text)
            return cls(
                int(cut),
                tuple(
                    Survivor(int(request), None if spans is None else tuple((int(a), int(b)) for a, b in spans))
                    for request, spans in survivors
                ),
            )
        except (ValueError, TypeError) as error:
            raise RequestError(f"not a crash state: {text[:100]!r}") from error
