"""The conclusion of an exploration from its record."""

from raidproof.core.blame import Blame, blamed_as
from raidproof.record.exploration import AllLossesRecord, ExplorationRecord, SecondCutsRecord, StoppedBy
from raidproof.record.outcome import Outcome
from raidproof.record.run import ControlSpec
from raidproof.verdict.contract import LEAST_JUDGED
from raidproof.verdict.controls import conclude_control_explored


def conclude_exploration(record: ExplorationRecord) -> tuple[Outcome, str]:
    """Return the outcome of an exploration, and the reason.

    The exploration of a control passes if it shows the result that is expected of the control: see `verdict.controls`.
    Outcomes other than PASS and FAIL are the same for a control and for any other crash test.
    """
    outcome, reason = _conclude(record)
    if record.control is None or outcome not in (Outcome.PASS, Outcome.FAIL):
        return outcome, reason
    return conclude_control_explored(
        record.control,
        reason,
        broken=outcome is Outcome.FAIL or record.loss is not None,
        complete=record.ended_early is None,
        by_another=_by_another(record, record.control),
    )


def _by_another(record: ExplorationRecord, control: ControlSpec) -> tuple[str, Blame | None] | None:
    """Return the first failure whose blame is not the one that a control expects, with its blame; None without one."""
    for one in record.failures:
        again = one.confirmed or not one.repeated
        if again and not blamed_as(one.blame, control.expects_blame):
            return f"{one.promise}: {one.damage} in crash state {one.state} is", one.blame
    return None


def _conclude(record: ExplorationRecord) -> tuple[Outcome, str]:
    """Return the outcome and the reason of an exploration as if its crash test were no control."""
    second, seen = record.second_cuts or SecondCutsRecord(asked=0, states_each=0), judged_states(record)
    unreliable = ""
    if differing := [*record.cold.differing, *second.cold.differing]:
        names = ", ".join(differing[:3])
        unreliable = f"a reused checker gave wrong results: a freshly booted machine gave other results for {names}"
        if record.control is not None or not any(one.confirmed for one in record.failures):
            return Outcome.ERROR, unreliable
    if record.failures:
        return _failed(record, unreliable)
    if record.stopped_by is StoppedBy.RIG:
        return Outcome.ERROR, record.ended_early or "the rig failed"
    if not record.judged:
        return Outcome.INCONCLUSIVE, record.ended_early or "no crash state was checked"
    if (unchecked := record.unchecked or second.unchecked) is not None:
        return Outcome.ERROR, (
            f"in {unchecked.states:,} of {seen}, the first is {unchecked.state}: {unchecked.reason}"
        )
    if (undecided := record.undecided or second.undecided) is not None:
        return Outcome.INCONCLUSIVE, (
            f"in {undecided.states:,} of {seen} a loss may or may not break a promise, the first is "
            f"{undecided.state}: {undecided.reason}"
        )
    early = f"; {record.ended_early}" if record.ended_early else ""
    if not any(record.tested.values()):
        return Outcome.INCONCLUSIVE, f"no operation was acknowledged before the cut in any of {seen}{early}"
    if second.asked and not second.judged:
        return (
            Outcome.INCONCLUSIVE,
            f"no state of a second power cut was checked; no promise was broken in {seen}{early}",
        )
    return _held(record, seen, early)


def judged_states(record: ExplorationRecord) -> str:
    """Return the numbers of judged states of an exploration as text."""
    return f"{record.judged:,} crash states ({record.distinct:,} different){after_second_cuts(record.second_cuts)}"


def after_second_cuts(second: SecondCutsRecord | None) -> str:
    """Return the numbers of judged states of a second cut as a suffix; empty if none was requested."""
    if second is None:
        return ""
    recoveries = "1 recovery" if len(second.recoveries) == 1 else f"{len(second.recoveries):,} recoveries"
    return f", and {second.judged:,} ({second.distinct:,} different) of a second cut during {recoveries}"


def _failed(record: ExplorationRecord, unreliable: str) -> tuple[Outcome, str]:
    """Return the outcome and the reason of an exploration with failures.

    ``unreliable``: why the results are not reliable; empty if they are.
    """
    first = next((one for one in record.failures if one.confirmed), record.failures[0])
    if all(one.repeated and not one.confirmed for one in record.failures):
        return (
            Outcome.INCONCLUSIVE,
            f"{first.promise}: {first.damage}; seen in crash state {first.state}, not reproduced",
        )
    kinds = f"{len(record.failures)} distinct failures, one of them is " if len(record.failures) > 1 else ""
    blame = f"; blamed on {first.blame}" if first.blame else ""
    blame += f"; it agrees with the finding {first.finding}" if first.finding else ""
    broken = f"{record.broken:,}"
    if (second := record.second_cuts) is not None:
        broken += f" and {second.broken:,}"
    return (
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


def _held(record: ExplorationRecord, seen: str, early: str) -> tuple[Outcome, str]:
    """Return the outcome and the reason of an exploration in which every promise of the export held.

    ``seen``: the numbers of judged states as text; ``early``: why the exploration ended early, as a suffix.
    """
    if record.loss is not None:
        lost = record.loss
        return (
            Outcome.PASS,
            f"measured loss: up to {lost.operations:,} of {lost.of:,} acknowledged operations in {seen}",
        )
    if few := [f"{count} {kind}" for kind, count in sorted(record.tested.items()) if count < LEAST_JUDGED]:
        counted = (
            f"too few operations could have shown a loss: {', '.join(few)}; {LEAST_JUDGED} of each kind are needed"
        )
        return Outcome.INCONCLUSIVE, f"no promise was broken in {seen}; {counted}{early}"
    if record.idle:
        idle = f"none could have shown a loss of {', '.join(record.idle)}"
        return Outcome.INCONCLUSIVE, f"no promise was broken in {seen}; {idle}{early}"
    if record.blind:
        kinds = ", ".join(f"{kind} ({record.counterfactual[kind].states} states)" for kind in record.blind)
        unseen = f"the check never reported an operation as missing in states that lack one: {kinds}"
        return Outcome.INCONCLUSIVE, f"no promise was broken in {seen}; {unseen}{early}"
    if (every := record.all_losses) is not None:
        # A statement about all states needs no second statement about their number.
        seen = f"{all_losses(every)} ({record.distinct:,} different){after_second_cuts(record.second_cuts)}"
    # The states that the user's interruption left out could have shown a failure.
    outcome = Outcome.INCONCLUSIVE if record.stopped_by is StoppedBy.USER else Outcome.PASS
    return outcome, f"every promise held in {seen}{left_out(record)}{early}"


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
