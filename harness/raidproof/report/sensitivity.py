"""The sensitivity of a crash test in words and figures: which defects of the stack would have shown."""

from collections.abc import Mapping

from raidproof.record.outcome import Outcome
from raidproof.record.run import CrashTestRecord
from raidproof.record.sensitivity import Defect, Noticed, Sensitivity, Subject, missing_flushes
from raidproof.report.words import UNKNOWN
from raidproof.verdict.crash_states import outcome_of


def clauses(cycle: CrashTestRecord) -> list[str]:
    """Return a clause for each defect of which a crash test's write log has instances: how many would have shown."""
    noticed = noticed_of(cycle)
    checked = {} if noticed is None else {Defect.FLUSH_OF_A_MEMBER: f", in {noticed:,} in the checked crash states"}
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
    return UNKNOWN if noticed is None else f"{noticed.noticed:,} of {noticed.of:,}"


def figures(cycle: CrashTestRecord) -> Mapping[str, int | None]:
    """Return the numbers of missing flushes of a member by name; None if not known."""
    found = missing_flushes(cycle.sensitivity)
    return {
        "flushes": None if found is None else found.instances,
        "flushes_missed_in_some_state": None if found is None else found.in_some_state,
        "flushes_missed_in_the_power_cut": None if found is None else found.in_this_cut,
        "flushes_missed_in_checked_states": noticed_of(cycle),
    }


def noticed_of(cycle: CrashTestRecord) -> int | None:
    """Return the number of missing flushes of a member that the checked crash states of a crash test would have shown.

    Of several explorations the greatest number counts; None if not known.
    """
    return max((one.noticed for one in cycle.explored if one.noticed is not None), default=None)
