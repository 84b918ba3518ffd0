"""The report of an exploration: sentences and tables for terminal and HTML, and the figure of the HTML report."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from raidproof.guest.ledger_format import APPLICATION
from raidproof.record.exploration import ExplorationDryRun, ExplorationRecord, Possible, StageTime
from raidproof.record.failure import FailureRecord, MissingRecord, OrderRecord, WriteRecord
from raidproof.record.recovery import RecoveryRecord
from raidproof.record.sensitivity import Subject, missing_flushes
from raidproof.report import difference
from raidproof.report.charts import Chart, Figures, states
from raidproof.report.table import Cell, Field, Table, say, say_end
from raidproof.report.words import UNKNOWN, count, number, plural
from raidproof.verdict.exploration import all_losses

MOST_WRITES = 5
"""Greatest number of write requests of one failure that the terminal shows."""


def possible(value: Possible) -> str:
    """Return the number of possible states as text."""
    return count(value.exact) if value.exact is not None else f"10^{value.log10:.0f}"


def summary(record: ExplorationRecord) -> str:
    """Return a sentence on the numbers of possible, judged, checked and broken states of an exploration."""
    of = f" of {record.asked:,} requested" if record.asked and record.judged < record.asked else ""
    speed = f" ({record.states_per_minute:,.0f} per minute)" if record.states_per_minute else ""
    checked = f"machines checked {plural(record.checked, 'state')}"
    if record.checked_per_minute:
        checked += f" ({record.checked_per_minute:,.0f} per minute)"
    return (
        f"{record.requests:,} requests of the write log and {record.cuts:,} instants of a power cut allow "
        f"{possible(record.possible)} crash states; {plural(record.judged, 'state')}{of} judged{speed}, with "
        f"{record.distinct:,} different disk contents; {checked}; a promise is broken in "
        f"{plural(record.broken, 'state')}"
    )


def exhaustive(record: ExplorationRecord) -> str | None:
    """Return a sentence on the states with few lost requests, by their number; None if the exploration is a sample."""
    if record.all_losses is None:
        return None
    every = record.all_losses
    done = [
        f"{judged:,} of {states:,} with {lost} lost"
        for lost, (judged, states) in enumerate(zip(every.judged, every.states, strict=False))
    ]
    return f"judged: {all_losses(every)}: {', '.join(done)}"


def second_cuts(record: ExplorationRecord) -> str | None:
    """Return a sentence on the states of second power cuts, by phase; None if no second cut was requested."""
    second = record.second_cuts
    if second is None:
        return None
    of = f" of {second.asked:,} requested" if len(second.recoveries) < second.asked else ""
    phases = ", ".join(f"{one.judged:,} {one.phase} ({one.broken:,} broken)" for one in second.phases)
    unsettled = sum(not one.settled for one in second.recoveries)
    said = (
        f"second power cut during the recovery of {plural(len(second.recoveries), 'crash state')}{of}: "
        f"{plural(second.judged, 'state')} judged, with {second.distinct:,} different disk contents; "
        f"a promise is broken in {plural(second.broken, 'state')}"
    )
    if phases:
        said += f"; by the phase of the recovery at the second cut: {phases}"
    if broken := sum(one.broken for one in second.recoveries):
        said += f"; a promise is broken after {broken:,} of the recoveries without a second cut"
    if second.cold.checked:
        said += f"; {plural(second.cold.checked, 'state')} checked again on a freshly booted machine"
    if unsettled:
        said += f"; the log of {plural(unsettled, 'recovery', 'recoveries')} ended before md had ended its resync"
    return said


def recovery_table(record: ExplorationRecord) -> Table[RecoveryRecord]:
    """Return the table of the recorded recoveries."""
    return Table(
        [
            Field("recovered state", lambda one: one.state, names_row=True),
            Field("requests", lambda one: count(one.requests), "number"),
            Field("time", lambda one: number(one.seconds), "number", "s"),
            Field("resync first", lambda one: "yes" if one.resync_first_s else "no", "word"),
            Field("resync ended", lambda one: "yes" if one.settled else "no", "word"),
            Field("states of a second cut", lambda one: count(one.judged), "number"),
            Field("different", lambda one: count(one.distinct), "number"),
            Field("broken", lambda one: Cell(count(one.states_broken), loss=one.states_broken > 0), "number"),
            Field(
                "broken after the recovery", lambda one: Cell("yes" if one.broken else "no", loss=one.broken), "word"
            ),
        ],
        record.second_cuts.recoveries if record.second_cuts is not None else [],
        note="Resync first: before the file system was mounted, md had time to resync the arrays.",
    )


def during(failure: FailureRecord) -> str:
    """Return whether a failure shows after the first or the second power cut, with the phase of the recovery."""
    if failure.recovery is None:
        return "first cut"
    return "after the recovery" if failure.phase is None else f"second cut, {failure.phase}"


def dry_run(record: ExplorationDryRun) -> list[str]:
    """Return lines on the crash states that an exploration would check."""
    lines = [f"{record.requests:,} requests of the write log allow {possible(record.possible)} crash states"]
    if record.all_losses is None:
        return [*lines, f"the policies propose {plural(record.candidates, 'state')}", *second_dry_run(record)]
    every = record.all_losses
    by_number = ", ".join(f"{states:,} with {lost} lost" for lost, states in enumerate(every.states))
    lines.append(f"{plural(every.of_epochs, 'flush epoch')}; chosen: {every.first_epoch:,} to {every.last_epoch:,}")
    lines.append(f"{plural(every.total, 'crash state')} with up to {every.most} lost requests: {by_number}")
    if record.refused is not None:
        lines.append(f"too many for one exploration: {record.refused}")
    return [*lines, *second_dry_run(record)]


def second_dry_run(record: ExplorationDryRun) -> list[str]:
    """Return a line on the requested second power cuts; none if no second cut is requested."""
    if not record.second_cuts:
        return []
    states = record.second_cuts * record.second_states
    recoveries = plural(record.second_cuts, "recovery", "recoveries")
    return [f"second power cuts: {recoveries}, with at most {states:,} crash states"]


def tested(record: ExplorationRecord) -> str:
    """Return a sentence on the operations whose loss a state could have shown, by kind, and on undecided states."""
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in record.tested.items())
    said = f"acknowledged operations whose loss a state could have shown: {kinds or 'none'}"
    if record.undecided is not None:
        states = plural(record.undecided.states, "state")
        said += f"; in {states} a loss may or may not break a promise: {record.undecided.reason}"
    return said


def control(record: ExplorationRecord) -> str:
    """Return a sentence on the counterfactual states, and on the missing flushes that the states would have shown."""
    by_kind = record.counterfactual
    if not by_kind:
        return "no state shows that the check notices a loss: the crash test has no solo operations"
    lacking, found = sum(one.states for one in by_kind.values()), sum(one.reported for one in by_kind.values())
    said = (
        f"control: {plural(lacking, 'solo operation')} of {plural(len(by_kind), 'kind')} lacked in a checked state; "
    )
    said += f"the check reported {'each' if found == lacking else f'{found:,}'} of them as missing"
    if record.blind:
        said += f", and none of {', '.join(record.blind)}"
    if record.noticed is not None:
        flushes = plural(record.noticed, "missing flush", "missing flushes")
        said += f". The states would have shown {flushes} of a member"
        names = missing_flushes(record.sensitivity, Subject.NAMES)
        if names is not None and names.instances:
            said += f", and {names.in_checked_states:,} of {names.instances:,} that changes of names needed"
    return said


def cold(record: ExplorationRecord) -> str:
    """Return a sentence on the cold checks, which show whether reused checkers gave wrong results."""
    if not record.cold.checked:
        return "no state was checked again on a freshly booted machine"
    agreed = record.cold.checked - len(record.cold.differing)
    said = (
        f"{plural(record.cold.checked, 'state')} checked again on a freshly booted machine: same result for {agreed}"
    )
    if not record.through_nfsd:
        return said
    return f"{said}; the ledger of {plural(record.through_nfsd, 'other state')} was also read through the NFS server"


def filesystems(record: ExplorationRecord) -> str:
    """Return a sentence on the number of states on which the file system's checker (fsck) ran."""
    return f"the file system's checker (fsck) ran on {plural(record.filesystems, 'state')}"


def redundancy(record: ExplorationRecord) -> str:
    """Return a sentence on the states with inconsistent redundancy, and on the resync that would correct it."""
    one, said = record.redundancy, []
    if one.checked:
        said.append(f"copies or parity are inconsistent in {one.differing:,} of {plural(one.checked, 'state')}")
        resync = "md would resync all inconsistent rows"
        if one.unmarked:
            resync = f"in {plural(one.unmarked, 'state')} md would not resync all inconsistent rows"
        if one.uneven:
            resync += f"; in {plural(one.uneven, 'state')} the resync depends on which member's bitmap md reads"
        said += [resync] if one.differing else []
        if one.changed:
            states = plural(one.changed, "state")
            said.append(f"in {states} copies differ because a page changed while md wrote it, which md allows")
        if one.all_marked:
            states = plural(one.all_marked, "state")
            said.append(f"in {states} the bitmap marks every region, so that md would resync every row")
    said += [f"redundancy of {plural(count, 'state')} not computed: {why}" for why, count in one.unchecked.items()]
    return "; ".join(said) or "the redundancy of no state was computed"


def effort(record: ExplorationRecord) -> str:
    """Return a sentence on the median duration of each stage of a check."""
    stages = ", ".join(f"{one.stage} {number(one.median)}" for one in record.stages)
    return f"median time of each stage of a check [ms]: {stages}" if stages else "no state was checked on a machine"


def missing(one: MissingRecord) -> str:
    """Return a clause on a missing acknowledged operation."""
    what = f"block or directory {one.place}, generation {one.generation}"
    return (
        f"{one.kind} of {one.path}, {f'operation {one.place}' if one.kind == APPLICATION else what}: "
        f"acknowledged to {one.client} {number(one.acknowledged_before_s)} s before the cut, but {one.instead}"
    )


def write(one: WriteRecord) -> str:
    """Return a description of a write request: kind, member, sectors, stripe and owner."""
    where = f", stripe {one.stripe:,}" if one.stripe is not None else ""
    owner = f": {one.owner}" if one.owner else ""
    return f"{one.kind} {one.member} sector {one.lba:,} + {one.sectors:,}{where}{owner}"


def shortest(failure: FailureRecord) -> str | None:
    """Return a sentence on the earliest cut that shows a failure; None if the exploration did not search for it."""
    one = failure.shortest
    if one is None:
        return None
    said = "no earlier cut could show the failure"
    if one.not_at is not None:
        said = "no earlier cut that was checked shows the failure"
    if one.earlier:
        after = "" if one.after_word_s is None else f", {number(one.after_word_s)} s after the lost acknowledgement"
        before = f"{plural(one.earlier, 'request')} ({number(one.earlier_s)} s) before the cut of the smallest state"
        said = f"the failure also shows at cut {one.cut:,}, {before}{after}"
    return (
        f"{said}; the shortest history that shows the failure has {one.cut:,} of {plural(one.of, 'request')}, "
        f"{one.acknowledged:,} of {plural(one.of_acknowledged, 'acknowledged operation')}"
    )


def same_as(failures: Sequence[FailureRecord], place: int) -> int | None:
    """Return the number of the first failure with the same state as failure ``place``; None without an earlier one.

    Numbers of failures begin with 1.
    """
    states = [(one.shrunk.state, one.shrunk.lost_state) if one.shrunk else (one.state, None) for one in failures]
    first = states.index(states[place - 1]) + 1
    return first if first < place else None


def together(failure: FailureRecord, other: int) -> str:
    """Return a sentence on a failure that has the same smallest state as failure number ``other``."""
    state = failure.shrunk.state if failure.shrunk else failure.state
    said = [f"same state as failure {other}: {state}"]
    if failure.shortest is not None and failure.shortest.earlier:
        said = [f"{said[0]}; state {failure.shortest.state} shows the failure with a shorter history"]
    if failure.missing is not None:
        said.append(missing(failure.missing))
    return "; ".join(said)


def order(record: OrderRecord) -> str:
    """Return a sentence on a barrier write that survives without an earlier write."""
    barrier, lost = record.barrier, record.lost
    return (
        f"The {barrier.structure} on {barrier.member} (sector {barrier.lba:,}) survives without a write to "
        f"{lost.member} (sector {lost.lba:,}) that had completed before it was issued: it did not wait for a flush"
    )


def agreement(finding: str) -> str:
    """Return a clause on the finding with whose crash states a failure agrees."""
    return f"agrees with the known finding {finding}: ./raidproof findings list {finding}"


def smallest(failure: FailureRecord) -> str:
    """Return a clause on the smallest state that shows a failure."""
    shrunk = failure.shrunk
    if shrunk is None:
        if failure.repeated:
            return f"not shrunk: reproduced in {failure.confirmed} of {failure.repeated} repeated checks"
        return "not shrunk"
    writes = f"{plural(len(shrunk.survivors), 'surviving write')}, {plural(shrunk.not_there, 'lost write')}"
    late = "" if shrunk.whole else ", the time limit ended shrinking"
    return f"{writes}, found by checking {plural(shrunk.tried, 'state')}{late}"


def charts_of_exploration(record: ExplorationRecord) -> tuple[list[Chart], Figures]:
    """Return the charts of an exploration's page: acknowledgements and crash states, on a common time axis."""
    figures = Figures()
    figures.hold("acknowledged", states.acknowledged_rows(record))
    figures.hold("states", states.state_rows(record))
    figures.specifications["acknowledged"] = states.acknowledged(record)
    figures.specifications["states"] = states.judged(record)
    said = states.describe(record)
    return [
        Chart("acknowledged", "acknowledged", "Operations acknowledged to clients over time", said),
        Chart("states", "states", "Judged crash states over time", said),
    ], figures


def show_exploration(record: ExplorationRecord, console: Console, page: Path | None = None) -> None:
    """Print the report of an exploration: a summary, each failure, the outcome, and the path of the HTML report."""
    say(console, summary(record))
    if (every := exhaustive(record)) is not None:
        say(console, every)
    if (second := second_cuts(record)) is not None:
        say(console, second)
    say(console, tested(record))
    say(console, control(record))
    say(console, cold(record))
    say(console, filesystems(record))
    say(console, redundancy(record))
    say(console, effort(record))
    for note in record.notes:
        say(console, note)
    if record.failures:
        console.print()
        console.print(failure_table(record).drawn(console.width))
    blamed = len({failure.blame for failure in record.failures}) > 1
    block = 0
    for place, failure in enumerate(record.failures, start=1):
        other = same_as(record.failures, place)
        if other is None or other != block:
            console.print()
            block = place
        # If all failures have the same blame, only the last line shows the blame.
        for line in lines_of(place, failure, blamed=blamed, other=other):
            say(console, line)
    console.print()
    say_end(console, record.title, record.outcome, record.reason, page, plain=record.loses)


def failure_table(record: ExplorationRecord) -> Table[tuple[int, FailureRecord]]:
    """Return the table of the distinct failures of an exploration, with their numbers from 1."""

    def again(one: FailureRecord) -> str:
        return f"{one.confirmed} of {one.repeated}" if one.repeated else UNKNOWN

    # The column exists only if second cuts were requested.
    second: list[Field[tuple[int, FailureRecord]]] = []
    if record.second_cuts is not None:
        second = [Field("shown by", lambda row: during(row[1]))]
    return Table(
        [
            Field("#", lambda row: str(row[0]), "number"),
            Field("promise", lambda row: Cell(row[1].promise, link=f"#failure-{row[0]}"), names_row=True),
            Field("damage", lambda row: row[1].damage),
            *second,
            Field("states", lambda row: Cell(count(row[1].states), loss=True), "number"),
            Field("cut at", lambda row: number(row[1].at_s), "number", "s"),
            Field("reproduced", lambda row: again(row[1]), "number"),
            Field("smallest state", lambda row: smallest(row[1]), page_only=True),
            Field("blame", lambda row: str(row[1].blame or UNKNOWN), page_only=True),
            Field("finding", lambda row: row[1].finding or UNKNOWN, page_only=True),
        ],
        list(enumerate(record.failures, start=1)),
    )


def write_table(writes: Sequence[WriteRecord], note: str) -> Table[WriteRecord]:
    """Return the table of write requests, with ``note`` below the table."""
    return Table(
        [
            Field("request", lambda one: count(one.request), "number"),
            Field("kind", lambda one: one.kind, "word"),
            Field("member", lambda one: one.member, "word", names_row=True),
            Field("LBA", lambda one: count(one.lba), "number", "512 B"),
            Field("sectors", lambda one: count(one.sectors), "number"),
            Field("stripe", lambda one: count(one.stripe), "number"),
            Field("content of", lambda one: one.owner or UNKNOWN),
        ],
        writes,
        note=note,
    )


def stage_table(record: ExplorationRecord) -> Table[StageTime]:
    """Return the table of the durations of each stage of a check."""
    return Table(
        [
            Field("stage", lambda one: one.stage, names_row=True),
            Field("checks", lambda one: count(one.count), "number"),
            Field("median", lambda one: number(one.median), "number", "ms"),
            Field("90 %", lambda one: number(one.p90), "number", "ms"),
            Field("99 %", lambda one: number(one.p99), "number", "ms"),
            Field("greatest", lambda one: number(one.greatest), "number", "ms"),
        ],
        record.stages,
        note=f"{plural(record.checkers, 'checker')} in parallel. All checks took {number(record.seconds)} s, without "
        "booting and shrinking.",
    )


def lines_of(place: int, failure: FailureRecord, *, blamed: bool = True, other: int | None = None) -> list[str]:
    """Return lines about failure number ``place`` for the terminal.

    ``blamed``: whether to include the blame. ``other``: the number of an earlier failure with the same smallest state:
    then the failure gets a single line; None without one.
    """
    blame = f"; blame: {failure.blame}" if blamed and failure.blame else ""
    if other is not None:
        named = f"; {agreement(failure.finding)}" if failure.finding else ""
        return [f"{place} {failure.promise}: {failure.damage}: {together(failure, other)}{named}{blame}"]
    lines = [f"{place} {failure.promise}: {failure.damage} ({smallest(failure)}){blame}"]
    if failure.finding is not None:
        lines.append(f"  {agreement(failure.finding)}")
    if failure.recovery is not None:
        lines.append(f"  {during(failure)}: recovery of crash state {failure.recovery}")
    if failure.shrunk is not None:
        survivors = failure.shrunk.survivors
        lines += [f"  {write(one)}" for one in survivors[:MOST_WRITES]]
        if len(survivors) > MOST_WRITES:
            lines.append(f"  and {len(survivors) - MOST_WRITES:,} more")
        lost = failure.shrunk.lost[:MOST_WRITES]
        lines += [f"  lost, while all other requests survived: {write(one)}" for one in lost]
    if failure.order is not None:
        lines.append(f"  {order(failure.order)}")
    if failure.difference is not None:
        lines += [f"  {sentence}" for sentence in difference.sentences(failure.difference)]
    if failure.missing is not None:
        lines.append(f"  {missing(failure.missing)}")
    if (part := shortest(failure)) is not None:
        lines.append(f"  {part}")
    return [*lines, f"  {shlex.join(failure.replay)}"]
