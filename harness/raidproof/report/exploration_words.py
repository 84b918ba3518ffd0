"""An exploration in words and rows, for the terminal and for the page."""

from collections.abc import Sequence

from raidproof.record.exploration import ExplorationRecord, FailureRecord, MissingRecord, Possible, WriteRecord
from raidproof.report.words import count, number, plural


def possible(value: Possible) -> str:
    """Write how many states there could have been."""
    return count(value.exact) if value.exact is not None else f"10^{value.log10:.0f}"


def summary(record: ExplorationRecord) -> str:
    """Return what was looked at, in one sentence."""
    of = f" of {record.asked:,} asked" if record.asked and record.judged < record.asked else ""
    speed = f", {record.states_per_minute:,.0f} a minute" if record.states_per_minute else ""
    looks = f"{record.checked:,} on machines"
    if record.checked_per_minute:
        looks += f", {record.checked_per_minute:,.0f} a minute"
    return (
        f"{record.cuts:,} cuts in {record.requests:,} requests allow {possible(record.possible)} crash states; "
        f"{plural(record.judged, 'state')}{of} judged{speed}: {record.distinct:,} different, {looks}; "
        f"{record.broken:,} broken"
    )


def tested(record: ExplorationRecord) -> str:
    """Return the operations whose loss a state could have shown, by kind, and in how many states it stays open."""
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in record.tested.items())
    said = f"acknowledged operations that a state could have lost: {kinds or 'none'}"
    if record.undecided is not None:
        said += f"; undecided in {plural(record.undecided.states, 'state')}: {record.undecided.reason}"
    return said


def cold(record: ExplorationRecord) -> str:
    """Say whether reusing a machine has hidden anything."""
    if not record.cold.checked:
        return "no state was looked at on a machine that had just booted"
    agreed = record.cold.checked - len(record.cold.differing)
    said = f"{plural(record.cold.checked, 'state')} looked at again on a machine that had just booted: {agreed} agree"
    return said + (f"; {record.through_nfsd:,} others were read through nfsd too" if record.through_nfsd else "")


def filesystems(record: ExplorationRecord) -> str:
    """Say at how many states the file system's own checker has looked."""
    return f"the file system's own checker looked for damage in {plural(record.filesystems, 'state')}"


def redundancy(record: ExplorationRecord) -> str:
    """Say in how many states the array's redundancy did not agree with its data, and whether md would put it right."""
    one, said = record.redundancy, []
    if one.checked:
        said.append(f"rows of the array differ in {one.differing:,} of {plural(one.checked, 'state')}")
        left = f"in {one.unmarked:,} md would not resync all of them" if one.unmarked else "md would resync them"
        if one.uneven:
            left += f", in {one.uneven:,} that depends on the member whose bitmap it reads"
        said += [left] if one.differing else []
        if one.changed:
            said.append(f"in {one.changed:,} copies differ where a page changed under write-back, which md allows")
        if one.all_marked:
            said.append(f"in {one.all_marked:,} the bitmap marked every region, and could have left no row out")
    said += [f"{plural(count, 'state')} not compared: {why}" for why, count in one.unchecked.items()]
    return "; ".join(said) or "no state's redundancy was compared"


def effort(record: ExplorationRecord) -> str:
    """Return the median of each stage of a check."""
    stages = ", ".join(f"{one.stage} {number(one.median)}" for one in record.stages)
    return f"milliseconds a state (median): {stages}" if stages else "no state was looked at on a machine"


def missing(one: MissingRecord) -> str:
    """Name an acknowledged operation that is not there."""
    return (
        f"{one.client} had been told {number(one.acknowledged_before_s)} s before the cut that {one.kind} of "
        f"{one.path} {one.place}, generation {one.generation}, is done: {one.instead}"
    )


def write(one: WriteRecord) -> str:
    """Name a surviving write."""
    where = f", stripe {one.stripe:,}" if one.stripe is not None else ""
    owner = f": {one.owner}" if one.owner else ""
    return f"{one.kind} {one.member} sector {one.lba:,} + {one.sectors:,}{where}{owner}"


def shortest(failure: FailureRecord) -> str | None:
    """Say how much of the history shows a failure; None where nobody has looked for it."""
    one = failure.shortest
    if one is None:
        return None
    said = "shown at no earlier cut that was tried" if one.not_at is not None else "no earlier cut could show it"
    if one.earlier:
        word = f", {number(one.after_word_s)} s after the word" if one.after_word_s is not None else ""
        said = f"shown already {plural(one.earlier, 'request')}, {number(one.earlier_s)} s earlier: at cut {one.cut:,}"
        said += word
    return (
        f"{said}; so much of the history is needed: {one.cut:,} of {plural(one.of, 'request')}, "
        f"{one.acknowledged:,} of {plural(one.of_acknowledged, 'acknowledged operation')}"
    )


def same_as(failures: Sequence[FailureRecord], place: int) -> int | None:
    """Return which earlier failure is shown in the same state as the one at this place; places count from 1."""
    states = [(one.shrunk.state, one.shrunk.lost_state) if one.shrunk else (one.state, None) for one in failures]
    first = states.index(states[place - 1]) + 1
    return first if first < place else None


def together(failure: FailureRecord, other: int) -> str:
    """Tell of a failure that is shown in the same state as another, of that number."""
    state = failure.shrunk.state if failure.shrunk else failure.state
    said = [f"in the same state as {other}, {state}"]
    if failure.shortest is not None and failure.shortest.earlier:
        said = [f"{said[0]}, with a shorter history in {failure.shortest.state}"]
    if failure.missing is not None:
        said.append(missing(failure.missing))
    return "; ".join(said)


def smallest(failure: FailureRecord) -> str:
    """Say what the smallest state that shows a failure is."""
    shrunk = failure.shrunk
    if shrunk is None:
        if failure.repeated:
            return f"not shrunk: shown again {failure.confirmed} of {failure.repeated} times"
        return "not shrunk"
    survived = plural(len(shrunk.survivors), "surviving write")
    short = "" if shrunk.whole else ", and shrinking ran out of time"
    return f"{survived}, {shrunk.not_there:,} lost, after {plural(shrunk.tried, 'state')}{short}"
