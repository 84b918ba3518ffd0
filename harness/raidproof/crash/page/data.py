"""The data of the crash page, computed from a recording and the journal of its exploration, without a machine."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from zlib import compress, decompress

from raidproof.core.units import SECTOR, format_size
from raidproof.crash.disk_states import DiskStates
from raidproof.crash.journal import Line
from raidproof.crash.page.content import SUPERBLOCK, Geometry, PageContent
from raidproof.crash.page.superblocks import Superblocks
from raidproof.crash.page.window import Lifetime, Window
from raidproof.crash.redundancy import Redundancy
from raidproof.crash.states import BLOCK, CrashState, Recording
from raidproof.crash.stats import ExplorationStats
from raidproof.disk.writelog import ALL_MEMBERS, Flag, Kind, Record
from raidproof.record.crash_page import (
    Area,
    CrashPage,
    FileResult,
    HeldBlock,
    PageEvent,
    PageFile,
    PageOperation,
    PageRequest,
    PageState,
)
from raidproof.record.exploration import ExplorationRecord, Observation
from raidproof.record.failure import FailureRecord
from raidproof.record.outcome import Outcome
from raidproof.storage.array.striping import Assembled
from raidproof.verdict.balance import Loss
from raidproof.verdict.oracle import Judgement, Oracle
from raidproof.workload.history import Operation
from raidproof.workload.ledger_blocks import blocks_in

MOST_HELD = 4
"""Number of ledger blocks of one request that the page names."""


@dataclass(frozen=True)
class Explored:
    """A stored exploration: its recording, its record, and the journal's lines in their order."""

    recording: Recording
    oracle: Oracle
    record: ExplorationRecord
    lines: Iterable[Line]
    """Read once. An observation takes hundreds of KiB in memory, so that the lines are not kept."""
    first: int
    """The first cut of the exploration: array and file system exist."""
    stem: str
    """Stem of the names of the exploration's files."""
    filesystem: str
    export: str


def page_data(explored: Explored) -> CrashPage:
    """Return the data of the crash page of an exploration.

    Raises:
        RequestError: every checked cut has more volatile requests than a page can show.
    """
    return _Builder(explored).page()


@dataclass
class _Found:
    """A crash state with what is known of it."""

    state: CrashState
    policy: str = ""
    observation: Observation | None = None
    """See `Observation.brief`."""
    judgement: Judgement | None = None
    failure: FailureRecord | None = None
    """For a state found by shrinking: the failure that it shows."""
    smallest_of: int | None = None

    @property
    def broken(self) -> bool:
        return self.failure is not None or (self.judgement is not None and self.judgement.broken)


class _Builder:
    def __init__(self, explored: Explored) -> None:
        self.explored = explored
        self.recording = explored.recording
        self.found = self._found()
        focus = [one.state.cut for one in sorted(self.found.values(), key=_importance)]
        self.span = Window(self.recording, explored.first, focus or [explored.first])
        self.inside = [one for one in self.found.values() if self.span.first <= one.state.cut <= self.span.last]
        self.inside.sort(key=lambda one: (not one.broken, one.state.cut, one.state.name))
        self.window = DiskStates(self.recording)
        self.redundancy = Redundancy(self.window)
        self.redundancy.moved(self.window.move(self.span.first))
        self.geometry, self.no_array = self._geometry()
        self.owners = {
            write.request: write.owner
            for failure in explored.record.failures
            if failure.shrunk is not None and failure.recovery is None
            for write in (*failure.shrunk.survivors, *failure.shrunk.lost)
            if write.owner is not None
        }
        """The owners that the exploration looked up, by number of the request."""
        requests = {number: self.recording.request(number) for number in self.span.requests}
        self.requests = requests
        torn = [
            (requests[survivor.request].member, survivor.spans)
            for one in self.inside
            for survivor in one.state.survivors
            if survivor.spans
        ]
        self.content = PageContent(self.window, self.redundancy, self.geometry, [*requests.values()], torn)
        self.superblocks = Superblocks(self.window, self.span, [one.state for one in self.inside])

    def _found(self) -> dict[str, _Found]:
        """Return the judged states, and those that shrinking found, by name."""
        stats = ExplorationStats(self.recording, self.explored.oracle)
        seen: dict[str, bytes] = {}
        """The newest observation of each content, as it is in the journal."""
        found: dict[str, _Found] = {}
        for line in self.explored.lines:
            observation = line.observation
            if observation is not None:
                seen[line.digest] = compress(observation.model_dump_json(exclude_none=True).encode())
            elif line.digest in seen:
                observation = Observation.model_validate_json(decompress(seen[line.digest]))
            if observation is not None:
                state = line.crash
                judged = stats.judge(state, observation)
                found[state.name] = _Found(state, line.policy.value, observation.brief(), judged)
        for number, failure in enumerate(self.explored.record.failures, start=1):
            if failure.recovery is not None:
                continue  # a state of the log of a recovery
            for dump, smallest in _dumps(failure):
                state = CrashState.load(dump)
                one = found.setdefault(state.name, _Found(state, failure=failure))
                one.smallest_of = one.smallest_of or (number if smallest else None)
        return found

    def _geometry(self) -> tuple[Geometry | None, str | None]:
        """Return the array's geometry at the first cut, and if there is none, the reason."""
        cut = self.window.cut
        kept = CrashState.of(cut, self.window.open)
        why = "no array can be assembled"
        for state in (kept, CrashState(cut)):
            array = self.redundancy.array(state)
            if isinstance(array, str):
                why = array
            else:
                return Geometry(array), None
        return None, why

    def page(self) -> CrashPage:
        """Return the whole page."""
        explored, span, log = self.explored, self.span, self.recording.log
        requests = [self._request(number, span.lives[number]) for number in span.requests]
        stripes, rows = self.content.stripes_and_rows()
        striping = self.geometry.array.striping if self.geometry else None
        files, operations = self._operations()
        states = [self._state(one) for one in self.inside]
        self.superblocks.enumerate()
        return CrashPage(
            run=explored.record.run,
            cycle=explored.record.cycle,
            title=explored.record.title,
            exploration=explored.stem,
            array=_described(self.geometry.array) if self.geometry else None,
            no_array=self.no_array,
            filesystem=explored.filesystem,
            export=explored.export,
            members=[info.serial for info in self.recording.members],
            slots=self.geometry.slots if self.geometry else [],
            parities=striping.raid.parity if striping else 0,
            equations=self.content.equations,
            chunk=striping.chunk_size if striping else 0,
            first=span.first,
            last=span.last,
            of=len(self.recording.records),
            left_out=len(self.found) - len(self.inside),
            instants_s=[
                _seconds(self.recording.instant_ns(cut) - log.opened_ns) for cut in range(span.first, span.last + 1)
            ],
            requests=requests,
            events=list(self._events()),
            blocks=self.content.blocks,
            units=self.content.units,
            stripes=stripes,
            rows=rows,
            superblocks=[
                self.content.block_index((member, SUPERBLOCK)) for member in range(len(self.recording.members))
            ],
            assemblies=self.superblocks.assemblies,
            assembled=self.superblocks.assembled,
            files=files,
            operations=operations,
            states=states,
            hashes=self.content.hashes,
        )

    def _request(self, number: int, life: Lifetime) -> PageRequest:
        record, log = self.requests[number], self.recording.log
        area = self.geometry.area(record.member, record.offset) if self.geometry else Area.UNKNOWN
        row = self.geometry.row((record.member, record.offset // BLOCK)) if self.geometry else None
        stripe = part = chunk = None
        if self.geometry is not None and row is not None:
            stripe = self.geometry.stripe(row)
            slot = self.geometry.slots.index(record.member)
            kind, chunk = self.geometry.array.striping.raid.content(slot, stripe)
            part = kind.value
        held = list(self._held(record)) if record.kind is Kind.WRITE else []
        units = self.content.units_of(record.member, record.offset, record.offset + record.length)
        return PageRequest(
            number=number,
            kind=record.kind.name.lower(),
            member=record.member,
            lba=record.offset // SECTOR,
            sectors=record.length // SECTOR,
            forced=bool(record.flags & Flag.FUA),
            issued_s=_seconds(record.issued_ns - log.opened_ns),
            completed_s=None if record.flags & Flag.IN_FLIGHT else _seconds(record.completed_ns - log.opened_ns),
            opens=life.opens,
            sure=life.sure,
            area=area,
            stripe=stripe,
            part=part,
            chunk=chunk,
            holds=held[:MOST_HELD],
            held=len(held),
            owner=self.owners.get(number),
            units=units,
            hashes=self.content.write(record),
        )

    def _held(self, record: Record) -> Iterator[HeldBlock]:
        files = {worker.file: index for index, worker in reversed([*enumerate(self.explored.oracle.workers)])}
        for one in blocks_in(record.data):
            yield HeldBlock(file=files.get(one.file), offset=one.offset, generation=one.generation)

    def _events(self) -> Iterator[PageEvent]:
        for number in range(self.span.first, self.span.last):
            record = self.recording.records[number]
            if record.kind in {Kind.FLUSH, Kind.MODE}:
                yield PageEvent(
                    number=number,
                    kind=record.kind.name.lower(),
                    member=None if record.member == ALL_MEMBERS else record.member,
                    lied=bool(record.flags & Flag.LIED),
                )

    def _operations(self) -> tuple[list[PageFile], list[PageOperation]]:
        workers = self.explored.oracle.workers
        index = {worker.number: place for place, worker in enumerate(workers)}
        by_number = {worker.number: worker for worker in workers}
        operations = [
            PageOperation(
                file=index[one.worker],
                kind=one.kind,
                target=Loss(one, by_number[one.worker], "").target,
                generation=one.generation,
                at_s=_seconds((one.promised_ns or 0) - self.recording.log.opened_ns),
                # An operation counts at a cut if its acknowledgement precedes the cut's latest instant.
                since=self.recording.place((one.promised_ns or 0) + 2),
            )
            for one in self._acknowledged(self.recording.end_ns)
        ]
        files = [PageFile(client=one.client, path=one.path, kind=one.kind) for one in workers]
        return files, operations

    def _acknowledged(self, before_ns: int) -> list[Operation]:
        """Return the operations acknowledged before an instant, in the order of their acknowledgements."""
        acknowledged = self.explored.oracle.history.acknowledged(before_ns)
        return sorted(acknowledged, key=lambda one: one.promised_ns or 0)

    def _state(self, one: _Found) -> PageState:
        state, seen, judged = one.state, one.observation, one.judgement
        torn = {
            survivor.request: [
                unit
                for start, end in survivor.spans
                for unit in self.content.units_of(self.requests[survivor.request].member, start, end)
            ]
            for survivor in state.survivors
            if survivor.spans
        }
        common = {
            "name": state.name,
            "policy": one.policy,
            "cut": state.cut,
            "survivors": [survivor.request for survivor in state.survivors],
            "torn": torn,
            "smallest_of": one.smallest_of,
        }
        if seen is None or judged is None:
            failure = one.failure
            assert failure is not None  # noqa: S101  a state without observation was found by shrinking
            return PageState(
                **common,
                outcome=Outcome.FAIL,
                reason="",
                blame=failure.blame and str(failure.blame),
                end=failure.end,
                shows=f"{failure.promise}: {failure.damage}",
            )
        rows = seen.rows
        return PageState(
            **common,
            outcome=judged.outcome,
            reason=judged.reason,
            blame=judged.blame and str(judged.blame),
            end=seen.end.value,
            said=seen.said,
            acknowledged=judged.acknowledged,
            missing=len(judged.missing),
            fsck=seen.filesystem and seen.filesystem.outcome,
            nfsd=seen.through_nfsd.value,
            differ=rows.differ if rows else None,
            unmarked=rows.unmarked if rows else 0,
            unchecked=rows.unchecked if rows else None,
            files=self._files(judged, self.recording.instant_ns(state.cut)),
        )

    def _files(self, judged: Judgement, instant_ns: int) -> list[FileResult]:
        index = {worker.number: place for place, worker in enumerate(self.explored.oracle.workers)}
        newest: dict[int, object] = {}
        for operation in self._acknowledged(instant_ns):
            newest[operation.worker] = operation
        by_worker: dict[int, list[Loss]] = defaultdict(list)
        for loss in judged.missing:
            by_worker[loss.operation.worker].append(loss)
        return [
            FileResult(
                file=index[worker],
                missing=len(losses),
                last_missing=any(loss.operation == newest.get(worker) for loss in losses),
                example=str(losses[0]),
            )
            for worker, losses in sorted(by_worker.items())
        ]


def _importance(one: _Found) -> tuple[bool, bool, int, str]:
    """Return the sort key of a state by which the page's part of the log is chosen: smallest failing states first."""
    return one.smallest_of is None, not one.broken, one.state.cut, one.state.name


def _dumps(failure: FailureRecord) -> Iterator[tuple[str, bool]]:
    """Yield each state that shrinking found for a failure, and whether it is the smallest."""
    if failure.shrunk is not None:
        yield failure.shrunk.dump, True
        if failure.shrunk.lost_dump is not None:
            yield failure.shrunk.lost_dump, False
    if failure.shortest is not None:
        yield failure.shortest.dump, False


def _described(array: Assembled) -> str:
    """Return level, members and chunk size of an array as text."""
    striping = array.striping
    chunk = f", chunks of {format_size(striping.chunk_size)}" if striping.raid.chunked else ""
    return f"RAID{striping.raid.name} of {striping.members}{chunk}"


def _seconds(ns: int) -> float:
    """Return nanoseconds as seconds, rounded to microseconds."""
    return round(ns / 1e9, 6)
