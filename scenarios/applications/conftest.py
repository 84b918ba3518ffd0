"""Runs of their own for applications: with another image, or with failures that are expected."""

from collections.abc import Iterator

import pytest

from raidproof.pytest_plugin.fixtures import CrashTestRunner, Explore, name_of
from raidproof.run.run import Run
from scenarios.applications.databases import with_databases


@pytest.fixture(scope="module")
def databases(current_run: Run) -> Iterator[Run]:
    """Yield a run whose machines have SQLite and LMDB."""
    current_run.discard_lab()
    with Run("databases", current_run.store.path, with_databases(current_run.topology)) as one:
        yield one


@pytest.fixture
def database_cycle(databases: Run, request: pytest.FixtureRequest) -> CrashTestRunner:
    """Run crash tests on machines with the databases."""
    return CrashTestRunner(databases, name_of(request.node.name))


@pytest.fixture
def database_explore(databases: Run) -> Explore:
    """Explore crash tests of the databases."""
    return Explore(databases)


@pytest.fixture(scope="module")
def own(current_run: Run) -> Iterator[Run]:
    """Yield a separate run, so that expected failures do not fail the run that scenarios share."""
    current_run.discard_lab()
    machines = (current_run.topology.server, current_run.topology.clients[0])
    topology = current_run.topology.model_copy(update={"machines": machines})
    with Run("applications", current_run.store.path, topology) as one:
        yield one
