"""The combinations of superblocks in the states of a crash page, and what md makes of each combination."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product

from raidproof.crash.disk_states import DiskStates
from raidproof.crash.page.content import SUPERBLOCK
from raidproof.crash.page.hash import page_hash
from raidproof.crash.page.window import Window
from raidproof.crash.redundancy import accuracy_of, assembled
from raidproof.crash.states import BLOCK, CrashState, Spans
from raidproof.disk.writelog import Kind, data_of
from raidproof.record.crash_page import PageAssembly
from raidproof.storage.array.superblock import Superblock, parse_superblock

MOST_COMBINATIONS = 3_000
"""Limit of the combinations whose assembly a page has."""
MOST_SUBSETS = 5
"""Number of volatile superblock writes of one member up to which all their subsets are combined."""
ELSEWHERE = PageAssembly(unchecked="the array's metadata is not in the page of md's superblock", compared=False)
"""The result for an array whose metadata the page cannot change."""
_BEGIN, _END = SUPERBLOCK * BLOCK, (SUPERBLOCK + 1) * BLOCK
Chosen = dict[int, Spans | None]
"""The surviving requests by number, with the surviving byte ranges of a torn request; None: the whole request."""


class Superblocks:
    """Assembles the members of each combination of superblocks that a reader of the page can choose, up to a limit.

    ``window``: the contents at the first cut of ``span``. ``states``: the judged states in ``span``.
    """

    def __init__(self, window: DiskStates, span: Window, states: Sequence[CrashState]) -> None:
        self._span, self._states, self._recording = span, states, span.recording
        durable = CrashState(window.cut)
        members = range(len(self._recording.members))
        self._before = [window.read(durable, member, _BEGIN, BLOCK) for member in members]
        self._writes: list[list[int]] = [[] for _ in members]
        for number in span.requests:
            record = self._recording.request(number)
            if record.offset < _END and record.offset + record.length > _BEGIN:
                self._writes[record.member].append(number)
        self.assemblies: list[PageAssembly] = []
        self.assembled: dict[str, int] = {}
        """Index in ``assemblies`` by the hashes of the members' superblocks."""

    def enumerate(self) -> None:
        """Assemble the combinations of the judged states, of the cuts with all or no writes kept, and then others."""
        for state in self._states:
            chosen: Chosen = {one.request: one.spans for one in state.survivors}
            self._add([self._page(member, state.cut, chosen) for member in range(len(self._before))])
        cuts = self._cuts()
        for cut in cuts:
            for kept in (False, True):
                chosen = {number: None for writes in self._writes for number in writes} if kept else {}
                self._add([self._page(member, cut, chosen) for member in range(len(self._before))])
        for cut in cuts:
            for pages in product(*(self._versions(member, cut) for member in range(len(self._before)))):
                if len(self.assembled) >= MOST_COMBINATIONS:
                    return
                self._add(pages)

    def _cuts(self) -> list[int]:
        """Return the cuts at which the volatile or durable superblocks change."""
        found = {self._span.first}
        for number in (number for writes in self._writes for number in writes):
            life = self._span.lives[number]
            found |= {life.opens, self._span.last if life.sure is None else life.sure}
        return sorted(cut for cut in found if self._span.first <= cut <= self._span.last)

    def _versions(self, member: int, cut: int) -> list[bytes]:
        """Return the different contents of a member's superblock that whole requests can leave at a cut."""
        loose = []
        for number in self._writes[member]:
            life = self._span.lives[number]
            if life.opens <= cut and (life.sure is None or life.sure > cut):
                loose.append(number)
        return list(dict.fromkeys(self._page(member, cut, dict.fromkeys(kept)) for kept in _subsets(loose)))

    def _page(self, member: int, cut: int, chosen: Chosen) -> bytes:
        page = bytearray(self._before[member])
        for number in self._writes[member]:
            life, record = self._span.lives[number], self._recording.request(number)
            sure = life.sure is not None and life.sure <= cut
            if not sure and (number not in chosen or life.opens > cut):
                continue
            spans = None if sure else chosen[number]
            for start, end in spans or ((record.offset, record.offset + record.length),):
                first, last = max(start, _BEGIN), min(end, _END)
                if first < last:
                    written = record.kind is Kind.WRITE
                    data = data_of(record.part(first - record.offset, last - record.offset)) if written else b""
                    page[first - _BEGIN : last - _BEGIN] = data.ljust(last - first, b"\0")
        return bytes(page)

    def _add(self, pages: Sequence[bytes]) -> None:
        key = "".join(f"{_hashed(page):016x}" for page in pages)
        if key not in self.assembled:
            made = _assembly(pages) if self._recording.in_page else ELSEWHERE
            if made not in self.assemblies:
                self.assemblies.append(made)
            self.assembled[key] = self.assemblies.index(made)


def _subsets(numbers: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the subsets of a few numbers; of many numbers the empty set, and the sets that the newest number ends."""
    if len(numbers) > MOST_SUBSETS:
        yield ()
        yield from ((number,) for number in numbers)
        return
    for bits in range(1 << len(numbers)):
        yield tuple(number for place, number in enumerate(numbers) if bits >> place & 1)


@lru_cache(maxsize=4096)
def _hashed(page: bytes) -> int:
    return page_hash(page)


@lru_cache(maxsize=4096)
def _parsed(page: bytes) -> Superblock | None:
    return parse_superblock(page)


def _assembly(pages: Sequence[bytes]) -> PageAssembly:
    array = assembled({member: _parsed(page) for member, page in enumerate(pages)})
    if isinstance(array, str):
        return PageAssembly(unchecked=array, compared=False)
    # Without a row that differs, no content of the members is read.
    why = accuracy_of(array, lambda _member, _offset, length: bytes(length), ()).unchecked
    return PageAssembly(unchecked=why, compared=array.incomplete is None, present=sorted(array.members))
