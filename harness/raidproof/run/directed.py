"""The directed crash states that are checked right after a crash test."""

from raidproof.core.errors import RequestError
from raidproof.core.log import logger, step
from raidproof.crash.checker import SHOW
from raidproof.crash.exploration import Budget
from raidproof.crash.shrink import EXPLAINED
from raidproof.record.outcome import Outcome
from raidproof.record.run import CrashTestRecord
from raidproof.run.crash_states import Options
from raidproof.run.exploration import exploration_of
from raidproof.run.run import Run
from raidproof.run.source import source_of

STATES = 60
"""Default number of directed states that are checked after a crash test."""
MINUTES = 1.0
"""Greatest duration of these checks in minutes."""
DECIDED = frozenset({Outcome.FAIL, Outcome.ERROR, Outcome.INVALID})
"""Outcomes of a crash test to which its crash states add nothing."""


def check_directed(run: Run, record: CrashTestRecord, states: int = STATES, *, explained: int = EXPLAINED) -> None:
    """Check directed states of a crash test that has just ended, and enter the result into its record.

    Nothing is checked without solo operations, after a failure, and if the provider cannot show a crash state.
    ``explained``: see `Options.explained`.

    Raises:
        KeyboardInterrupt: the user interrupted.
    """
    if not states or not record.solo_operations or record.outcome in DECIDED or run.topology.provider not in SHOW:
        return
    step(f"{record.title}: checking crash states at the replies to solo operations")
    try:
        source = source_of(run.store, record.name)
        # Few states take less time than the boot of another machine.
        options = Options(
            Budget(states, MINUTES), seed=record.seed, only_directed=True, explained=explained, cold=False
        )
        exploration_of(source, options)
    except RequestError as error:
        logger.info("%s: no crash states are checked: %s", record.name, error)
        return
    run.store.read_explorations(run.record)
