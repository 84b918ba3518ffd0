"""The times at which the server acknowledged the ledger's operations, from a capture of its replies.

A client's report of an operation reaches the harness milliseconds after the server has sent its reply. In that time
the disks complete several flushes, so that the reports alone would not show a reply that was sent too early."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import zip_longest
from pathlib import Path
from statistics import median
from typing import Any

from raidproof.core.command import CommandFailed
from raidproof.core.errors import RaidproofError, RequirementMissing, RigError
from raidproof.guest.ledger_format import GROUPS
from raidproof.lab.lab import Lab
from raidproof.monitor.capture import Tap, printed, tapping
from raidproof.monitor.reply_times import STABILITY, Clocks, Reply, parse_replies, parse_writes, replies_command
from raidproof.record.observation import RepliesSeen, ReportDelay
from raidproof.workload.history import Ended, History, Operation, WorkerSpec, write_replies
from raidproof.workload.ledger_sizes import SIZE_CLASSES, class_of

UNSTABLE = STABILITY[0]
"""The stability of a WRITE whose data the server may hold in its memory only."""
Replied = dict[tuple[int, int], int]
"""Time (CLOCK_MONOTONIC, ns) of the server's last reply to an operation on the bridge, by worker and sequence."""


def replied(
    operations: Iterable[Operation],
    workers: Sequence[WorkerSpec],
    addresses: Mapping[str, str],
    replies: Iterable[Reply],
) -> Replied:
    """Return the time of the reply with which the server acknowledged each successful operation.

    A worker has only one operation in progress, and its RPCs carry an AUTH_SYS group that no other worker has. The
    acknowledgement is therefore the last reply to this group before the client's report, to a call that was sent after
    the operation had begun. A reply to an unknown caller may be a reply to the worker; the later of the two counts,
    because the time of an acknowledgement must not be too early. ``addresses``: IP addresses by client.
    """
    own: dict[tuple[str, int | None], list[Reply]] = defaultdict(list)
    for reply in replies:
        own[reply.client, reply.group].append(reply)
    by_worker: dict[int, list[Operation]] = defaultdict(list)
    for operation in operations:
        by_worker[operation.worker].append(operation)
    found: Replied = {}
    for worker in _apart(workers):
        address, groups = addresses[worker.client], {GROUPS + one.number for one in workers}
        mine = own[address, GROUPS + worker.number]
        others = [one for (client, group), all_ in own.items() if client == address and group not in groups
                  for one in all_]  # fmt: skip
        unknown = sorted(others, key=_when)
        for operation, until_ns in _ends(by_worker[worker.number]):
            if (last := _last(mine, _begun(operation), until_ns)) is not None:
                stranger = _last(unknown, _begun(operation), until_ns) or last
                found[operation.worker, operation.sequence] = max(last.replied_ns, stranger.replied_ns)
    return found


def _apart(workers: Sequence[WorkerSpec]) -> Iterator[WorkerSpec]:
    """Yield the workers that share no file with another worker of their client; only their RPCs can be attributed."""
    users = Counter((one.client, one.path) for one in workers)
    yield from (one for one in workers if users[one.client, one.path] == 1)


def _when(reply: Reply) -> int:
    return reply.replied_ns


def _begun(operation: Operation) -> int:
    """Return a time before which no RPC of an operation was sent, even if the client's clock drifts."""
    return operation.issued_ns if operation.begun_ns is None else min(operation.begun_ns, operation.issued_ns)


def _ends(operations: Sequence[Operation]) -> Iterator[tuple[Operation, int]]:
    """Yield each successful operation of a worker, with a time by which the operation had certainly ended.

    The time is one of this host's clock: a time that is too early would exclude the acknowledging reply.
    """
    for operation, following in zip_longest(operations, operations[1:]):
        if operation.ended is Ended.OK and operation.ended_ns is not None:
            yield operation, min(operation.ended_ns, following.issued_ns) if following else operation.ended_ns


def _last(replies: Sequence[Reply], begun_ns: int, until_ns: int) -> Reply | None:
    """Return the last reply between two times whose call was also sent between them; None if no reply qualifies."""
    for place in range(bisect_left(replies, until_ns, key=_when) - 1, -1, -1):
        reply = replies[place]
        if reply.replied_ns < begun_ns:
            return None
        if reply.called_ns is None or reply.called_ns >= begun_ns:
            return reply
    return None


class ReplyWatch:
    """Captures the server's replies while the ledger runs, then determines the time of each acknowledgement."""

    def __init__(self, lab: Lab, workers: Sequence[WorkerSpec], folder: Path) -> None:
        self.seen = RepliesSeen()
        """Numbers of operations with a reply time, of all operations, and of WRITEs; or why no reply time is known."""
        self.found: Path | None = None
        """Path of the file with the times of replies; None until the file is written."""
        self._lab = lab
        self._workers = workers
        self._folder = folder
        self._work: Future[None] | None = None

    @contextmanager
    def watching(self, history: Path) -> Iterator[None]:
        """Capture replies during the ``with`` statement; then, in a thread, match them to the file ``history``."""
        tap = self._begin()
        if tap is None:
            yield
            return
        try:
            yield
        except BaseException:
            # Raise the body's error, not that of the capture, whose process ends with the lab at the latest.
            with suppress(RigError):
                tap.discard()
            raise
        pool = ThreadPoolExecutor(1, "replies")
        self._work = pool.submit(self._date, tap, history)
        pool.shutdown(wait=False)

    def _begin(self) -> Tap | None:
        try:
            tap = tapping(self._lab, self._folder / "replies.pcapng")
        except (RequirementMissing, RigError) as error:
            self.seen = RepliesSeen(why_not=str(error))
            return None
        try:
            tap.wait_begun()
        except RigError as error:
            self.seen = RepliesSeen(why_not=str(error))
            with suppress(RigError):
                tap.discard()
            return None
        return tap

    def finish(self) -> None:
        """Wait for the background thread; after a failure, ``seen`` has the reason and no reply time is used."""
        if self._work is not None:
            try:
                self._work.result()
            except (RaidproofError, CommandFailed, OSError) as error:
                self.seen = RepliesSeen(why_not=str(error))

    def _date(self, tap: Tap, history: Path) -> None:
        tap.end()
        clocks = Clocks.since(tap.ahead_ns)
        clocks.require_unset()
        text = printed(replies_command(tap.path))
        replies = parse_replies(text, clocks)
        operations = History.read(history).operations
        addresses = {one.name: str(one.spec.address.ip) for one in self._lab.clients}
        dated = replied(operations, self._workers, addresses, replies)
        path = self._folder / "replies"
        write_replies(path, dated)
        tap.discard()
        self.seen = summary(operations, dated).model_copy(update=writes_of(parse_writes(text)))
        self.found = path


def writes_of(counted: Mapping[tuple[str, int | None], int]) -> dict[str, Any]:
    """Return the fields of `RepliesSeen` about WRITEs; ``counted``: their number by stability and size."""
    writes, stable = Counter[str](), dict.fromkeys(SIZE_CLASSES, 0)
    for (how, size), count in counted.items():
        writes[how] += count
        if how != UNSTABLE and size:
            stable[class_of(size)] += count
    return {"writes": dict(writes), "stable_writes": stable}


def summary(operations: Sequence[Operation], dated: Mapping[tuple[int, int], int]) -> RepliesSeen:
    """Return the number of operations with a reply time, and how much later than replies clients' reports arrived."""
    done = [one for one in operations if one.ended is Ended.OK and one.ended_ns is not None]
    keys = ((one.ended_ns, dated.get((one.worker, one.sequence))) for one in done)
    later_ms = sorted((ended - at) / 1e6 for ended, at in keys if ended is not None and at is not None)
    if not later_ms:
        return RepliesSeen(dated=0, of=len(done))
    least, middle, most = (round(one, 3) for one in (later_ms[0], median(later_ms), later_ms[-1]))
    delay = ReportDelay(least=least, median=middle, most=most)
    return RepliesSeen(dated=len(later_ms), of=len(done), reported_later_ms=delay)
