"""The conclusion of an exploration from its record."""

from collections.abc import Iterator

from raidproof.core.blame import Blame, blamed_as
from raidproof.record.exploration import AllLossesRecord, ExplorationRecord, SecondCutsRecord, StoppedBy
from raidproof.record.outcome import Outcome
from raidproof.record.run import ControlSpec
from raidproof.verdict.conclusion import Control, Part, concluded
from raidproof.verdict.contract import LEAST_JUDGED


def conclude_exploration(record: ExplorationRecord) -> tuple[Outcome, str]:
    """Return the outcome of an exploration, and the reason.

    A failure of a control is no part, but what the control shows: it may be the expected one.
    """
    parts, seen = parts_of(record), judged_states(record)
    failed = next((one for one in parts if one.outcome is Outcome.FAIL), None)
    shown = failed.said if failed is not None else held(record, seen)
    if (spec := record.control) is None:
        return concluded(parts, shown)
    control = Control(
        spec,
        lost=failed is not None or record.loss is not None,
        said=shown,
        by_another=_by_another(record, spec),
        # The states that an interrupted exploration did not check could have shown the loss.
        complete=record.ended_early is None,
    )
    return concluded([one for one in parts if one is not failed], shown, control=control)


def _by_another(record: ExplorationRecord, control: ControlSpec) -> tuple[str, Blame | None] | None:
    """Return the first failure whose blame is not the one that a control expects, with its blame; None without one."""
    for one in record.failures:
        again = one.confirmed or not one.repeated
        if again and not blamed_as(one.blame, control.expects_blame):
            return f"{one.promise}: {one.damage} in crash state {one.state} is", one.blame
    return None


def parts_of(record: ExplorationRecord) -> list[Part]:
    """Return the failure of an exploration, or what it left open without a failure."""
    second = record.second_cuts or SecondCutsRecord(asked=0, states_each=0)
    unreliable = ""
    if differing := [*record.cold.differing, *second.cold.differing]:
        names = ", ".join(differing[:3])
        unreliable = f"a reused checker gave wrong results: a freshly booted machine gave other results for {names}"
        if record.control is not None or not any(one.confirmed for one in record.failures):
            return [_open(Outcome.ERROR, unreliable)]
    if record.failures:
        return [_failed(record, unreliable)]
    return [*_unchecked(record, second), *([] if record.loss is not None else _untested(record))]


def _open(outcome: Outcome, said: str) -> Part:
    """Return what an exploration left open, of a control, too."""
    return Part(outcome, said, in_control=True)


def _unchecked(record: ExplorationRecord, second: SecondCutsRecord) -> Iterator[Part]:
    """Yield why states were not judged, or not enough of them."""
    seen, early = judged_states(record), f"; {record.ended_early}" if record.ended_early else ""
    if record.stopped_by is StoppedBy.RIG:
        yield _open(Outcome.ERROR, record.ended_early or "the rig failed")
    if not record.judged:
        yield _open(Outcome.INCONCLUSIVE, record.ended_early or "no crash state was checked")
        return
    if (unchecked := record.unchecked or second.unchecked) is not None:
        first = f"the first is {unchecked.state}: {unchecked.reason}"
        yield _open(Outcome.ERROR, f"in {unchecked.states:,} of {seen}, {first}")
    if (undecided := record.undecided or second.undecided) is not None:
        first = f"the first is {undecided.state}: {undecided.reason}"
        said = f"in {undecided.states:,} of {seen} a loss may or may not break a promise, {first}"
        yield _open(Outcome.INCONCLUSIVE, said)
    if not any(record.tested.values()):
        said = f"no operation was acknowledged before the cut in any of {seen}{early}"
        yield _open(Outcome.INCONCLUSIVE, said)
    if second.asked and not second.judged:
        said = f"no state of a second power cut was checked; no promise was broken in {seen}{early}"
        yield _open(Outcome.INCONCLUSIVE, said)


def judged_states(record: ExplorationRecord) -> str:
    """Return the numbers of judged states of an exploration as text."""
    return f"{record.judged:,} crash states ({record.distinct:,} different){after_second_cuts(record.second_cuts)}"


def after_second_cuts(second: SecondCutsRecord | None) -> str:
    """Return the numbers of judged states of a second cut as a suffix; empty if none was requested."""
    if second is None:
        return ""
    recoveries = "1 recovery" if len(second.recoveries) == 1 else f"{len(second.recoveries):,} recoveries"
    return f", and {second.judged:,} ({second.distinct:,} different) of a second cut during {recoveries}"


def _failed(record: ExplorationRecord, unreliable: str) -> Part:
    """Return what the failures of an exploration add to its outcome.

    ``unreliable``: why the results are not reliable; empty if they are.
    """
    first = next((one for one in record.failures if one.confirmed), record.failures[0])
    if all(one.repeated and not one.confirmed for one in record.failures):
        said = f"{first.promise}: {first.damage}; seen in crash state {first.state}, not reproduced"
        return _open(Outcome.INCONCLUSIVE, said)
    kinds = f"{len(record.failures)} distinct failures, one of them is " if len(record.failures) > 1 else ""
    blame = f"; blamed on {first.blame}" if first.blame else ""
    blame += f"; it agrees with the finding {first.finding}" if first.finding else ""
    broken = f"{record.broken:,}"
    if (second := record.second_cuts) is not None:
        broken += f" and {second.broken:,}"
    return Part(
        Outcome.FAIL,
        f"{broken} of {judged_states(record)} break a promise{unrecovered(second)}; "
        f"{kinds}{first.promise}: {first.damage}{blame}{f'; also, {unreliable}' if unreliable else ''}",
    )


def unrecovered(second: SecondCutsRecord | None) -> str:
    """Return the number of states that break a promise after their recovery as a suffix; empty if there are none."""
    count = sum(one.broken for one in second.recoveries) if second is not None else 0
    return f", and {count:,} after the whole recovery" if count else ""


def all_losses(record: AllLossesRecord) -> str:
    """Return the states of an exhaustive exploration as text, with the number done if some are left."""
    done, total = sum(record.judged), record.total
    states = f"all {total:,}" if record.complete else f"{done:,} of the {total:,}"
    epochs = f"all {record.epochs:,} flush epochs"
    if record.epochs < record.of_epochs:
        epochs = f"the flush epochs {record.first_epoch:,} to {record.last_epoch:,} of {record.of_epochs:,}"
    return f"{states} crash states with up to {record.most} lost requests of {epochs}"


def _untested(record: ExplorationRecord) -> Iterator[Part]:
    """Yield what the judged states could not have shown."""
    seen, early = judged_states(record), f"; {record.ended_early}" if record.ended_early else ""
    unbroken = f"no promise was broken in {seen}"
    if few := [f"{count} {kind}" for kind, count in sorted(record.tested.items()) if count < LEAST_JUDGED]:
        counted = (
            f"too few operations could have shown a loss: {', '.join(few)}; {LEAST_JUDGED} of each kind are needed"
        )
        yield _open(Outcome.INCONCLUSIVE, f"{unbroken}; {counted}{early}")
    if record.idle:
        idle = f"none could have shown a loss of {', '.join(record.idle)}"
        yield _open(Outcome.INCONCLUSIVE, f"{unbroken}; {idle}{early}")
    if record.blind:
        kinds = ", ".join(f"{kind} ({record.counterfactual[kind].states} states)" for kind in record.blind)
        unseen = f"the check never reported an operation as missing in states that lack one: {kinds}"
        yield _open(Outcome.INCONCLUSIVE, f"{unbroken}; {unseen}{early}")
    if record.stopped_by is StoppedBy.USER:
        # The states that the user's interruption left out could have shown a failure.
        yield _open(Outcome.INCONCLUSIVE, held(record, seen))


def held(record: ExplorationRecord, seen: str) -> str:
    """Return the reason of an exploration in which every promise of the export held.

    ``seen``: the numbers of judged states as text.
    """
    if (lost := record.loss) is not None:
        return f"measured loss: up to {lost.operations:,} of {lost.of:,} acknowledged operations in {seen}"
    if (every := record.all_losses) is not None:
        # A statement about all states needs no second statement about their number.
        seen = f"{all_losses(every)} ({record.distinct:,} different){after_second_cuts(record.second_cuts)}"
    early = f"; {record.ended_early}" if record.ended_early else ""
    return f"every promise held in {seen}{left_out(record)}{early}"


def left_out(record: ExplorationRecord) -> str:
    """Return the numbers of requested states and recoveries that were not checked as a suffix; empty if all were."""
    parts = []
    if record.asked is not None and record.all_losses is None:
        requested = min(record.asked, record.candidates or record.asked)
        if (left := requested - record.judged) > 0:
            parts.append(f"; {left:,} of {requested:,} requested states were not checked")
    if (second := record.second_cuts) is not None and (left := second.asked - len(second.recoveries)) > 0:
        parts.append(f"; {left:,} of {second.asked:,} requested recoveries got no second cut")
    return "".join(parts)
