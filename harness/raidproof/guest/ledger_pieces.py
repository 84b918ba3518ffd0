"""Pieces of the ledger: data of any size, from one byte on, and what a scan finds where a worker wrote them.

A piece has a file, whose number is the place of its operations. A worker writes a piece again and again, in a newer
generation each time, into the next of its slots, which follow each other in the file: so an operation overwrites a
part of a page, or many pages. The harness copies this file into machines: standard library only.
"""

import os
from importlib import import_module
from typing import Any

# In a machine both files are in one folder, in the harness in a package.
ledger = import_module("raidproof.guest.ledger_format" if __package__ else "ledger_format")
BLOCK, HEADER, UNIT = ledger.BLOCK, ledger.HEADER, ledger.UNIT

# Number of different bytes that mark the generations of a piece without a header; it and the number of slots have no
# common divisor, so that the marks of a slot repeat only after MARKS x slots generations of the piece.
MARKS = 255
MIXED = 8  # greatest number of generations in a torn piece: a cut interrupts few writes of one piece
SECTOR = 512  # bytes that a disk writes at once
UNMARKED = 1 << 62  # for a part of a piece whose content is the same in each generation
GENERATION = 24  # position of the generation in a block's header


def slot_of(piece: dict[str, Any], generation: int) -> int:
    """Return the position in the file, in bytes, of a generation of a piece."""
    return int(piece["position"] + (generation - 1) % piece["slots"] * piece["size"])


def content(file: int, place: int, places: int, generation: int, seed: int, size: int) -> bytes:
    """Return the content of a piece: blocks of the ledger, the last of which may be cut off.

    ``places``: number of pieces of the worker. Block n of a piece has the index ``place + n * places``, so that no two
    pieces have a block in common. A piece that is smaller than a header is filled with one byte that marks its
    generation.
    """
    if size < HEADER.size:
        return bytes([1 + (generation - 1) % MARKS]) * size
    indexes = range(place, place + -(-size // BLOCK) * places, places)
    return b"".join(ledger.block(file, index * BLOCK, generation, seed) for index in indexes)[:size]


class PieceReader:
    """Reads one piece; ``worker``: its worker's settings, ``place``: its place."""

    def __init__(self, worker: dict[str, Any], place: int, seed: int) -> None:
        self.path = os.path.join(worker["path"], "f%d" % place)
        self._piece = worker["pieces"][place]
        self._size, self._slots = self._piece["size"], self._piece["slots"]
        self._of = worker["file"], place, len(worker["pieces"])
        self._seed = seed
        self._last: tuple[bytes, list[int]] | None = None

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Begin and end, in bytes, of the part of the file that the worker writes."""
        return [(self._piece["position"], self._piece["position"] + self._slots * self._size)]

    def read(self, root: str) -> list[int]:
        """Return the generation in each slot, or an error code (`ledger_format.GARBAGE`, for example)."""
        try:
            fd = os.open("%s/%s" % (root, self.path), os.O_RDONLY)
        except FileNotFoundError:
            return [ledger.ABSENT] * self._slots
        except OSError:
            return [ledger.UNREADABLE] * self._slots
        try:
            ((begin, end),) = self.ranges
            data = ledger.read_whole(fd, end - begin, begin)
        except OSError:
            return [ledger.UNREADABLE] * self._slots
        finally:
            os.close(fd)
        if self._last is None or self._last[0] != data:
            self._last = data, self.states_of(data)
        return self._last[1]

    def states_of(self, data: bytes) -> list[int]:
        """Return the generation in each slot, or an error code; ``data``: the content of the slots."""
        data = data.ljust(self._slots * self._size, b"\0")
        return [self._state(data[slot * self._size : (slot + 1) * self._size], slot) for slot in range(self._slots)]

    def _state(self, data: bytes, slot: int) -> int:
        if ledger.OLD_MAGIC in data:
            return int(ledger.OLD)
        found = self._slot(data, slot)
        if isinstance(found, int):
            return found
        oldest, newest = found
        return oldest if oldest == newest else int(ledger.torn(oldest, newest))

    def _slot(self, data: bytes, slot: int) -> "tuple[int, int] | int":
        """Return the oldest and the newest generation in a slot, or an error code.

        Equal numbers are a whole generation. Different numbers are a torn one, if a page of the slot is a mixture:
        a cut may come between the requests of two pages, so that the oldest page counts.
        """
        if self._size < HEADER.size:
            return self._marked(data, slot)
        first = HEADER.unpack_from(data)[3]
        if first and data == self._expected(first):
            return self._at(first, slot)
        begin = self._piece["position"] + slot * self._size
        edges = [0, *range(BLOCK - begin % BLOCK, self._size, BLOCK), self._size]
        parts = []
        for start, end in zip(edges, edges[1:]):  # noqa: B905, RUF007  not in Python 3.9
            part = self._part(data, start, end, begin + start)
            if isinstance(part, int):
                return part
            parts.append(part)
        marked = [one for one in parts if one[0] != UNMARKED]
        oldest = min(oldest for oldest, _ in marked) if marked else 0
        newest = max((newest for first, newest in marked if first == oldest), default=0)
        found = self._at(oldest, slot) if oldest else (0, 0)
        return found if isinstance(found, int) else (oldest, newest)

    def _at(self, generation: int, slot: int) -> "tuple[int, int] | int":
        """Return a whole generation twice, or an error code if it belongs into another slot."""
        return (generation, generation) if (generation - 1) % self._slots == slot else int(ledger.MISPLACED)

    def _marked(self, data: bytes, slot: int) -> "tuple[int, int] | int":
        """Return the oldest and the newest generation in a slot without a header, by its marks, or an error code."""
        generations = [self._by_mark(mark, slot) for mark in {*data} - {0}]
        if len(generations) > 2:
            return int(ledger.GARBAGE)
        return (0 if 0 in data else min(generations)), max(generations, default=0)

    def _by_mark(self, mark: int, slot: int) -> int:
        """Return the generation of a slot with a mark: the first one of those that have it."""
        # Generation g = slot + 1 + n x slots has the mark 1 + (g - 1) % MARKS.
        return int(slot + 1 + (mark - 1 - slot) * pow(self._slots, -1, MARKS) % MARKS * self._slots)

    def _expected(self, generation: int) -> bytes:
        return content(*self._of, generation, self._seed, self._size)

    def _generations(self, data: bytes, start: int, end: int) -> dict[int, None]:
        """Return all generations that the bytes from ``start`` to ``end`` of a piece state, in their order."""
        found: dict[int, None] = {}
        for block in range(start - start % BLOCK, end, BLOCK):
            at = block + GENERATION
            if start <= at and at + 8 <= end and (stated := int.from_bytes(data[at : at + 8], "little")):
                found[stated] = None
            units = range(block + HEADER.size, block + BLOCK - UNIT.size - ledger.CHECKSUM.size + 1, UNIT.size)
            for unit in units:
                at = unit + 16
                # A word of 0 is a generation only if the seed behind it shows that the unit was written.
                if start <= at and at + 16 <= end and any(data[at : at + 16]):
                    found[int.from_bytes(data[at : at + 8], "little") ^ self._seed] = None
        return found

    def _part(self, data: bytes, start: int, end: int, position: int) -> "tuple[int, int] | int":
        """Return the oldest and the newest generation in the part of a slot in one page, or an error code.

        ``position``: position of the part in the file, in bytes.
        """
        part = data[start:end]
        if not any(part):
            return 0, 0
        stated = list(self._generations(data, start, end))
        if len(stated) > MIXED:
            return int(ledger.GARBAGE)
        wholes = [self._expected(one)[start:end] for one in stated or self._generations(data, 0, self._size)]
        if not stated:
            return (UNMARKED, UNMARKED) if part in wholes else int(ledger.GARBAGE)
        if part == wholes[0]:
            return stated[0], stated[0]
        # Each sector is blank, or has bytes of these generations.
        edges = [0, *range(-position % SECTOR or SECTOR, len(part), SECTOR), len(part)]
        blank = False
        for begin, limit in zip(edges, edges[1:]):  # noqa: B905, RUF007  not in Python 3.9
            if not any(part[begin:limit]):
                blank = True
            elif not all(one[0] in one[1:] for one in zip(*(whole[begin:limit] for whole in (part, *wholes)))):  # noqa: B905
                found = ledger.identity(data[start : start + BLOCK], self._seed)
                return int(ledger.GARBAGE if isinstance(found, int) else ledger.MISPLACED)
        return 0 if blank else min(stated), max(stated)
