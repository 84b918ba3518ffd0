"""Fixtures of the scenarios on clusters."""

import pytest

from raidproof.crash.exploration import Budget
from raidproof.pytest_plugin.fixtures import CrashTestRunner, stack_of
from raidproof.run.crash_states import Options
from raidproof.run.exploration import explore_cycle
from raidproof.run.run import Run
from raidproof.run.source import source_of
from scenarios.cluster.recorded import STATES, Recorded


@pytest.fixture(scope="session")
def recorded(current_run: Run) -> Recorded:
    ended_cycle = CrashTestRunner(current_run, "cluster")(stack_of()).must_pass()
    source = source_of(current_run.store, ended_cycle.record.name)
    explore_cycle(source, Options(Budget(STATES)))
    current_run.discard_lab()
    # The clients of the scenarios run in directories of their own.
    return Recorded(current_run.store.path.resolve(), ended_cycle.record.name)
