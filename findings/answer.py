"""The answer of a reproducer: whether the software under test shows the finding."""

from collections.abc import Callable

from raidproof.core.errors import Inconclusive, ProductError
from raidproof.machine.machine import Machine
from raidproof.record.finding import ANSWER, KERNEL, MEASURED, Answer

Record = Callable[[str, object], None]
"""The type of the fixture ``record``: called with the name and the value of a property."""


def conclude(record: Record, server: Machine, measured: str, *, wrong: int, seen: int, least: int) -> None:
    """Store what a reproducer measured, and end it with its answer: return if the finding does not show.

    ``measured`` says in words what ``wrong`` of ``seen`` events are. At least ``least`` events are needed to conclude
    that the finding does not show.

    Raises:
        ProductError: the finding shows: at least one event is wrong.
        Inconclusive: no event is wrong, but fewer than ``least`` were seen.
    """
    answer = Answer.AFFECTED if wrong else Answer.NOT_AFFECTED if seen >= least else Answer.UNDECIDED
    record(KERNEL, server.succeed(["uname", "--kernel-release"]).strip())
    record(MEASURED, measured)
    record(ANSWER, answer.value)
    if answer is Answer.AFFECTED:
        raise ProductError(measured)
    if answer is Answer.UNDECIDED:
        raise Inconclusive(f"{measured}; at least {least} are needed")
