"""What makes a crash state fail: sentences and a table from the difference between it and its nearest good states."""

from collections.abc import Mapping

from raidproof.guest.ledger_format import APPLICATION
from raidproof.record.failure import DifferenceRecord, DifferingRequest, Gap, MissingRecord, WriteRecord
from raidproof.report.table import Field, Table
from raidproof.report.words import UNKNOWN, count, number, plural
from raidproof.storage.array.state import Area

_GAPS: Mapping[Gap, str] = {
    Gap.NOT_FLUSHED: "no flush",
    Gap.FLUSH_LIED: "flush not executed",
    Gap.IN_FLIGHT: "in flight",
    Gap.LATER: "issued later",
}
_PARITY: Mapping[Area, str] = {Area.P: "parity", Area.Q: "second parity (Q)"}


def sentences(record: DifferenceRecord) -> list[str]:
    """Return one sentence on what differs, and one on why the request was volatile; without requests only one."""
    if not record.requests:
        return [
            f"State {record.state} fails, and so does the state in which every request that was volatile at the cut "
            "survives: the failure does not depend on these requests."
        ]
    first = next((one for one in record.requests if one.good_state), record.requests[0])
    return [_differs(record, first), _volatile(record, first)]


def _differs(record: DifferenceRecord, one: DifferingRequest) -> str:
    verb, other = ("lacks", "with") if record.lost else ("has", "without")
    end = "shows another failure or has no verdict"
    if one.good_state:
        end = f"is good (state {one.good_state})"
    part = ("a part of " if record.lost else "only a part of ") if one.torn else ""
    what = f"{part}{content(one.write)} ({place(one.write)})"
    whole = "the whole request" if one.torn and record.lost else "this request"
    said = f"State {record.state} {verb} {what}; {other} {whole} the state {end}"
    if rest := len(record.requests) - 1:
        good = sum(1 for another in record.requests if another.good_state)
        said += (
            f". It {verb} {plural(rest, 'more request')}: {other} any one of {good} of these {rest + 1} requests "
            "the state is good"
        )
    return f"{said}."


def _volatile(record: DifferenceRecord, one: DifferingRequest) -> str:
    member, done_s = one.write.member, one.completed_before_cut_s
    if not record.lost:
        if done_s is None:
            return "This request was in flight at the cut: the disk may or may not have written it."
        return f"This request completed {_ms(done_s)} before the cut, and was volatile: a disk may keep or lose it."
    if record.broken is None:
        return _volatile_at_cut(one)
    what, gap_s = f"the acknowledgement of {operation(record.broken)}", one.before_acknowledgement_s
    if one.gap is Gap.LATER:
        after = "" if gap_s is None else f"{_ms(-gap_s)} "
        return f"This request was issued {after}after {what}, so that its loss destroys older, acknowledged data."
    if one.gap is Gap.IN_FLIGHT:
        if gap_s is None:
            return f"This request was in flight at {what}, and still at the cut."
        return f"This request was in flight at {what} and completed {_ms(-gap_s)} after it."
    after = "" if gap_s is None else f"{_ms(gap_s)} "
    if one.gap is Gap.NOT_FLUSHED:
        return (
            f"{_upper(what)} came {after}after this request completed, and no flush of {member} completed in between."
        )
    if not one.lying_flushes:
        return f"{_upper(what)} came {after}after {member} acknowledged this FUA write without making it durable."
    flushes = plural(one.lying_flushes, "flush", "flushes")
    return (
        f"{_upper(what)} came {after}after this request completed; {member} acknowledged {flushes} in between "
        "without making this request durable."
    )


def _volatile_at_cut(one: DifferingRequest) -> str:
    member, done_s = one.write.member, one.completed_before_cut_s
    if done_s is None:
        return "This request was in flight at the cut."
    said = f"This request completed {_ms(done_s)} before the cut"
    if one.gap is Gap.NOT_FLUSHED:
        return f"{said}, and no flush of {member} completed in between."
    if not one.lying_flushes:
        return f"{said}; {member} acknowledged it with FUA without making it durable."
    flushes = plural(one.lying_flushes, "flush", "flushes")
    return f"{said}; {member} acknowledged {flushes} in between without making this request durable."


def content(write: WriteRecord) -> str:
    """Return what a request writes: its part of the array, and the file or structure that the part belongs to."""
    known = write.structure or (write.owner if write.area in {None, Area.DATA} else None)
    if write.area is not None and write.area in _PARITY:
        return f"the {_PARITY[write.area]} of stripe {count(write.stripe)}"
    if write.area is Area.DATA:
        where = f"data of stripe {count(write.stripe)}, chunk {count(write.chunk)}"
        return f"{where}: {known}" if known and known != Area.DATA.value else where
    if write.area is not None:
        return f"the {write.area.value}"
    return known or "a request with unknown content"


def place(write: WriteRecord) -> str:
    """Return the member of a request with its slot in the array, the sectors, and the flag FUA."""
    slot = f", slot {write.role}" if write.role is not None else ""
    fua = ", FUA" if write.fua else ""
    return f"{write.member}{slot}, sectors {write.lba}-{write.lba + write.sectors - 1}{fua}"


def operation(one: MissingRecord) -> str:
    """Return the name of an operation: its kind, and the file and block that it changes."""
    if one.kind == APPLICATION:
        return f"operation {one.place} of {one.path}"
    return f"{one.kind} of {one.path}, block or directory {one.place}, generation {one.generation}"


def table(record: DifferenceRecord) -> Table[DifferingRequest]:
    """Return the table of the requests in which a failing state differs from its nearest good states."""
    note = "Each request alone makes the difference to the state in the last column. "
    note += "The state fails without these requests." if record.lost else "The state fails with these requests."
    since = "before the acknowledgement" if record.broken else "before the cut"
    return Table(
        [
            Field("request", lambda one: count(one.write.request), "number"),
            Field("place", lambda one: place(one.write), names_row=True),
            Field("content", lambda one: content(one.write)),
            Field("completed before the cut", lambda one: _cell(one.completed_before_cut_s), "number", "ms"),
            Field("before the acknowledgement", lambda one: _cell(one.before_acknowledgement_s), "number", "ms"),
            Field(f"flushes not executed {since}", lambda one: count(one.lying_flushes), "number"),
            Field(f"volatile {since}", lambda one: _GAPS[one.gap], "word"),
            Field("good state", lambda one: one.good_state or UNKNOWN, "word"),
        ],
        record.requests,
        note=note,
    )


def _cell(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else number(seconds * 1e3)


def _ms(seconds: float) -> str:
    return f"{number(seconds * 1e3)} ms"


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
