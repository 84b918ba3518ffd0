"""The outcome of a subject from its parts: one rule for crash tests, controls, crash states, cells, runs and the rest.

The first row that applies decides.

| what is known of the subject | outcome |
|---|---|
| a part that counts did not pass | the worst of these parts; worst first: FAIL, INVALID, ERROR, INCONCLUSIVE, SKIP |
| nothing could have shown a failure | INCONCLUSIVE |
| a control that expects no loss shows one | FAIL |
| a control that expects a loss shows none | INVALID; INCONCLUSIVE if it is not complete |
| its loss is blamed on another part than the expected one | FAIL if that part is under test, else INVALID |
| anything else | PASS |

All parts count; of a control that expects a loss those only that neither the requested options nor defects of a disk
can explain (`Part.in_control`).

The parts of each subject, and after the semicolon why nothing could have shown a failure:

| subject | parts |
|---|---|
| crash test | what is missing or not in effect, the rig's error, the verdicts; an async export without a loss |
| the same, explored | the crash test, and its explorations that are FAIL or INVALID |
| crash state | verdicts that are FAIL or ERROR, and those on kinds of missing operations |
| exploration | its failures, or what it left open; no acknowledged operation in any state |
| cell | the request not in effect, the explored crash test, a blind control, the rig's error; not measured |
| run | crash tests and suites, or the cells and controls of a plan; none ran, no cell has a rank |
| comparison, advice | cells and differences; controls |
| self-test, lesson | crash tests; actions |
| storm | seeds that failed, and the rig's errors; no seed held |

Exit status, badge, JUnit, tables and pages show these outcomes, and derive none of their own.
"""

from collections.abc import Sequence
from typing import NamedTuple

from raidproof.core.blame import Blame, Culprit, text_of
from raidproof.record.outcome import Outcome, Verdict, worst
from raidproof.record.run import ControlSpec

OF_A_REQUEST = frozenset({Culprit.DISKS, Culprit.ASYNC_EXPORT, Culprit.FILESYSTEM_SETTINGS})
"""Culprits that the harness requested or simulates; any other culprit is a part of the system under test."""


class Part(NamedTuple):
    """What one part of a subject adds to its outcome: a verdict, an error, a crash test, a cell."""

    outcome: Outcome
    said: str
    """The reason, which names the part."""
    in_control: bool = False
    """Whether the part counts in a control that expects a loss, too."""


class Control(NamedTuple):
    """What a control shows beside its parts."""

    spec: ControlSpec
    lost: bool
    """Whether acknowledged operations are lost."""
    said: str
    """What was lost, or that nothing was, as a clause."""
    by_another: tuple[str, Blame | None] | None = None
    """The first loss whose blame is not the expected one, and this blame; None without one."""
    complete: bool = True
    """Whether all was observed that could have shown a loss."""


def concluded(
    parts: Sequence[Part], held: str, *, nothing: str = "", control: Control | None = None
) -> tuple[Outcome, str]:
    """Return the outcome of a subject by the table above, and the reason: that of the first part that decides.

    ``held``: the reason of a PASS. ``nothing``: why nothing could have shown a failure; empty if something could.
    """
    expects_loss = control is not None and control.spec.expects_loss
    counted = [one for one in parts if one.in_control or not expects_loss]
    outcome = worst([Outcome.PASS, *(one.outcome for one in counted)])
    named = "" if control is None else "control: "
    if outcome is not Outcome.PASS:
        return outcome, named + next(one.said for one in counted if one.outcome is outcome)
    if nothing:
        return Outcome.INCONCLUSIVE, named + nothing
    return (Outcome.PASS, held) if control is None else _of_control(control)


def _of_control(control: Control) -> tuple[Outcome, str]:
    """Return the outcome of a control of which no part decides, and the reason."""
    if control.lost is not control.spec.expects_loss:
        if control.lost:
            return Outcome.FAIL, f"control: expected no failure, but {control.said}"
        outcome = Outcome.INVALID if control.complete else Outcome.INCONCLUSIVE
        return outcome, f"control: expected a loss of acknowledged operations, but {control.said}"
    if control.lost and control.by_another is not None:
        what, blame = control.by_another
        wanted = control.spec.expects_blame
        expected = "" if wanted is None else f"; expected: {text_of(wanted)}"
        tested = blame is not None and blame.culprit not in OF_A_REQUEST
        said = f"control: {what} blamed on {blame or 'no part of the system'}{expected}"
        return Outcome.FAIL if tested else Outcome.INVALID, said
    return Outcome.PASS, f"control behaved: {control.said}"


def part_of(verdict: Verdict) -> Part:
    """Return what a verdict adds to the outcome of a crash test."""
    blame = f"; blamed on {verdict.blame}" if verdict.blame else ""
    return Part(verdict.outcome, f"{verdict.checker}: {verdict.reason}{blame}", verdict.of_the_stack)
