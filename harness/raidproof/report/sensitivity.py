"""The sensitivity of a crash test in words and figures: which defects of the stack would have shown."""

from collections.abc import Iterable, Mapping

from raidproof.record.outcome import Outcome
from raidproof.record.run import CrashTestRecord
from raidproof.record.sensitivity import Defect, Noticed, Sensitivity, Subject, missing_flushes
from raidproof.report.words import UNKNOWN, plural
from raidproof.verdict.crash_states import noticed_by, outcome_of


def clauses(cycle: CrashTestRecord) -> list[str]:
    """Return a clause for each defect of which a crash test's write log has instances: how many would have shown."""
    best = most_noticed(cycle)
    checked = (
        {} if best is None else {Defect.FLUSH_OF_A_MEMBER: f", in {best[0]:,} in {best[1]:,} checked crash states"}
    )
    return [
        f"{one.defect} {_effect(one)} in {one.in_some_state:,} of {one.instances:,} cases in some crash state"
        + ("" if one.in_this_cut is None else f", in {one.in_this_cut:,} in this power cut")
        + (checked.get(one.defect, "") if one.subject is Subject.DATA else "")
        for one in cycle.sensitivity
        if one.instances
    ]


def _effect(one: Sensitivity) -> str:
    """Return what an instance of a defect does, as a verb with its object."""
    if one.defect is Defect.COMMIT_FIRST:
        return "would have been durable before older requests"
    return f"would have lost acknowledged {'data' if one.subject is Subject.DATA else 'changes of names'}"


def worth(cycle: CrashTestRecord) -> str:
    """Return what the PASS of a crash test without a loss is worth, as a clause; else, and if not known, empty."""
    lost = cycle.on_server is not None and cycle.on_server.lost_total
    if outcome_of(cycle)[0] is not Outcome.PASS or lost:
        return ""
    return next(iter(clauses(cycle)), "")


def noticed_in_words(noticed: Noticed | None) -> str:
    """Return how many missing flushes of a member a crash test would have shown, as text for a table."""
    if noticed is None:
        return UNKNOWN
    states = f" (with {plural(noticed.states, 'crash state')})" if noticed.states else ""
    return f"{noticed.noticed:,} of {noticed.of:,}{states}"


def figures(cycle: CrashTestRecord) -> Mapping[str, int | None]:
    """Return the numbers of missing flushes of a member, and of checked crash states, by name; None if not known."""
    best = most_noticed(cycle)
    found = missing_flushes(cycle.sensitivity)
    return {
        "flushes": None if found is None else found.instances,
        "flushes_missed_in_some_state": None if found is None else found.in_some_state,
        "flushes_missed_in_the_power_cut": None if found is None else found.in_this_cut,
        "flushes_missed_in_checked_states": None if best is None else best[0],
        "crash_states": sum(one.judged for one in cycle.explored) if cycle.explored else None,
    }


def most_noticed(cycle: CrashTestRecord) -> tuple[int, int] | None:
    """Return how many missing flushes of a member an exploration of a crash test would have shown, and its states.

    Of several explorations, the one that would have shown most counts; None if not known.
    """
    return max(((one.noticed, one.judged) for one in cycle.explored if one.noticed is not None), default=None)


def in_checked(cycle: CrashTestRecord, one: Sensitivity) -> str:
    """Return how many instances of a defect the checked crash states would have shown, as text for a table."""
    best = most_noticed(cycle)
    known = best is not None and one.defect is Defect.FLUSH_OF_A_MEMBER and one.subject is Subject.DATA
    return f"{best[0]:,}" if known and best is not None else UNKNOWN


def least_sensitive(cycles: Iterable[CrashTestRecord]) -> CrashTestRecord | None:
    """Return the crash test whose PASS is worth least: it would have noticed the smallest share of missing flushes.

    None if it is not known of any crash test that passed.
    """
    known = [(one, noticed) for one in cycles if worth(one) and (noticed := noticed_by(one)) is not None]
    return min(known, key=lambda pair: pair[1].noticed / pair[1].of, default=(None, None))[0]
