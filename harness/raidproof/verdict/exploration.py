"""The conclusion of an exploration of crash states: its outcome and the reason."""

from raidproof.core.blame import blamed_as
from raidproof.record.exploration import ExplorationRecord, StoppedBy
from raidproof.record.outcome import Outcome
from raidproof.verdict.contract import LEAST_JUDGED


def conclude_exploration(record: ExplorationRecord) -> tuple[Outcome, str]:
    """Return the outcome of an exploration, and the reason.

    An exploration of a control passes (exit status 0) if it showed what the control's crash test had to show,
    else it is INVALID, as in `conclude_control`. Outcomes other than PASS and FAIL are returned unchanged.
    """
    outcome, reason = _conclude(record)
    if record.control is None or outcome not in (Outcome.PASS, Outcome.FAIL):
        return outcome, reason
    broken = outcome is Outcome.FAIL or record.loss is not None
    if not record.control.expects_loss:
        if broken:
            return Outcome.INVALID, f"control: expected no failure, yet {reason}"
        return Outcome.PASS, f"as it must, a control: {reason}"
    if not broken:
        # An interrupted exploration could still have found the loss.
        outcome = Outcome.INVALID if record.ended_early is None else Outcome.INCONCLUSIVE
        return outcome, f"control: had to lose acknowledged work, yet {reason}"
    for one in record.failures:
        again = one.confirmed or not one.repeated
        if again and not blamed_as(one.blame, record.control.expects_blame):
            return Outcome.INVALID, f"control: {one.promise}: {one.damage} is blamed on {one.blame} in {one.state}"
    return Outcome.PASS, f"as it must, a control: {reason}"


def _conclude(record: ExplorationRecord) -> tuple[Outcome, str]:
    """Return the outcome and the reason, ignoring that the crash test may be a control."""
    seen = f"{record.judged:,} crash states ({record.distinct:,} different)"
    hid = ""
    if record.cold.differing:
        names = ", ".join(record.cold.differing[:3])
        hid = f"a reused checker gave wrong results: {names} differed on a freshly booted machine"
        if record.control is not None or not any(one.confirmed for one in record.failures):
            return Outcome.ERROR, hid
    if record.failures:
        # Prefer a failure that was reproduced.
        first = next((one for one in record.failures if one.confirmed), record.failures[0])
        if all(one.repeated and not one.confirmed for one in record.failures):
            return (
                Outcome.INCONCLUSIVE,
                f"{first.promise}: {first.damage}; seen once in {first.state}, not reproduced",
            )
        kinds = f"{len(record.failures)} kinds of failure, one of them: " if len(record.failures) > 1 else ""
        blame = f"; blamed on {first.blame}" if first.blame else ""
        return (
            Outcome.FAIL,
            f"{record.broken:,} of {seen} break a promise; {kinds}{first.promise}: {first.damage}{blame}"
            f"{f'; also, {hid}' if hid else ''}",
        )
    if record.stopped_by is StoppedBy.RIG:
        return Outcome.ERROR, record.ended_early or "the rig failed"
    if not record.judged:
        return Outcome.INCONCLUSIVE, record.ended_early or "no crash state was checked"
    if record.undecided is not None:
        open_ = record.undecided
        return Outcome.INCONCLUSIVE, f"undecided in {open_.states:,} of {seen}: {open_.reason}, in {open_.state}"
    early = f"; {record.ended_early}" if record.ended_early else ""
    if not any(record.tested.values()):
        return Outcome.INCONCLUSIVE, f"no operation had been acknowledged at the cut of any of {seen}{early}"
    return _held(record, seen, early)


def _held(record: ExplorationRecord, seen: str, early: str) -> tuple[Outcome, str]:
    """Return the outcome and the reason if no promise of the export was broken."""
    if record.loss is not None:
        lost = record.loss
        return (
            Outcome.PASS,
            f"measured loss: up to {lost.operations:,} of {lost.of:,} acknowledged operations in {seen}",
        )
    if few := [f"{count} {kind}" for kind, count in sorted(record.tested.items()) if count < LEAST_JUDGED]:
        reason = f"no promise broke in {seen}; too few operations could have shown a loss: {', '.join(few)}{early}"
        return Outcome.INCONCLUSIVE, reason
    return Outcome.PASS, f"every promise held in {seen}{early}"
