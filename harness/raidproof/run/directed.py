"""The directed crash states that are checked right after a crash test."""

from raidproof.core.errors import RequestError
from raidproof.core.log import say, step
from raidproof.crash.checker import require_shown
from raidproof.crash.exploration import Budget
from raidproof.crash.shrink import EXPLAINED
from raidproof.record.outcome import Outcome
from raidproof.record.run import CrashTestRecord
from raidproof.run.crash_states import Options
from raidproof.run.exploration import exploration_of
from raidproof.run.options import STATES
from raidproof.run.run import Run
from raidproof.run.source import source_of

MINUTES = 1.0
"""Greatest duration of these checks in minutes."""
BUSY_MINUTES = 10.0
"""The same for a self-test, whose result must not depend on other load of the host."""
ENOUGH = 3
"""Number of broken states that show that a promise is broken."""
DECIDED = frozenset({Outcome.FAIL, Outcome.ERROR, Outcome.INVALID})
"""Outcomes of a crash test to which its crash states add nothing."""


def check_directed(run: Run, record: CrashTestRecord, states: int = STATES, *, briefly: bool = False) -> None:
    """Check directed states of a crash test that has just ended, and enter the result into its record.

    Nothing is checked without solo operations, and after a failure. If the provider cannot show a crash state, or the
    crash test has no usable write log, the record says so.
    ``briefly``: end after a few broken states, neither check them again nor shrink them, and write no crash page.

    Raises:
        KeyboardInterrupt: the user interrupted.
    """
    if not states or not record.solo_operations or record.outcome in DECIDED:
        return
    try:
        require_shown(run.topology.provider)
        step(f"{record.title}: checking crash states at the replies to solo operations")
        source = source_of(run.store, record.name)
        # Few states take less time than the boot of another machine.
        options = Options(
            Budget(states, BUSY_MINUTES, broken=ENOUGH) if briefly else Budget(states, MINUTES),
            seed=record.seed,
            only_directed=True,
            explained=0 if briefly else EXPLAINED,
            cold=False,
            crash_page=not briefly,
        )
        exploration_of(source, options)
    except RequestError as error:
        say(f"{record.title}: no crash states are checked: {error}")
        record.no_states = str(error)
        return
    run.store.read_explorations(run.record)
