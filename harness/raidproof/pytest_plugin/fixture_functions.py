"""The fixtures of scenarios, which import the machinery only when a scenario requests them: its import takes a second.

`fixtures` has the classes of what they return.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from raidproof.core.waiting import interrupted, unwinding_on_signals
from raidproof.pytest_plugin.stash import CURRENT_RUN, PLANS

if TYPE_CHECKING:
    from raidproof.core.topology import Topology
    from raidproof.lab.lab import Lab
    from raidproof.pytest_plugin.fixtures import CrashTestRunner, Explore, Measure, Plans
    from raidproof.run.run import Run
    from raidproof.workload.ledger import LedgerSpec

ADMIN_PATHS = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Folders of the programs mkfs and ip, which the PATH of ordinary users may lack."""


@contextmanager
def _on_this_host() -> Iterator[None]:
    """Check that this host can run labs; during the ``with`` block, let signals raise KeyboardInterrupt."""
    from raidproof.run import doctor  # noqa: PLC0415

    with pytest.MonkeyPatch.context() as environment, unwinding_on_signals():
        environment.setenv("PATH", os.pathsep.join([os.environ.get("PATH", os.defpath), *ADMIN_PATHS]))
        doctor.require_host()
        yield


@pytest.fixture(scope="session")
def lab_topology(pytestconfig: pytest.Config) -> "Topology":
    """The machines and disks of the lab that scenarios share; a test file or a conftest.py may override it."""
    from raidproof.core.topology import server_and_clients  # noqa: PLC0415
    from raidproof.pytest_plugin.fixtures import DISK_SIZE, MEMBERS  # noqa: PLC0415
    from raidproof.run.platform import platform_of  # noqa: PLC0415

    platform = platform_of(vars(pytestconfig.option))
    return server_and_clients(disks=len(MEMBERS), disk_size=DISK_SIZE, platform=platform)


@pytest.fixture(scope="session")
def current_run(pytestconfig: pytest.Config, lab_topology: "Topology") -> "Iterator[Run]":
    """The run that all scenarios share; its lab boots when the first scenario uses the lab."""
    from raidproof.run.run import Run  # noqa: PLC0415

    options = pytestconfig.option
    with (
        _on_this_host(),
        suppress(KeyboardInterrupt),
        Run("scenarios", Path(options.results), lab_topology, keep=options.keep) as one,
    ):
        pytestconfig.stash[CURRENT_RUN] = one
        yield one
        if interrupted():
            raise KeyboardInterrupt  # so that the record of the run states the interruption


@pytest.fixture(scope="session")
def plans(pytestconfig: pytest.Config) -> "Iterator[Plans]":
    """The runs of plans that all scenarios share."""
    from raidproof.pytest_plugin.fixtures import Plans  # noqa: PLC0415

    all_plans = Plans(pytestconfig.option, lambda: pytestconfig.stash.get(CURRENT_RUN, None))
    with _on_this_host(), suppress(KeyboardInterrupt), all_plans as one:
        pytestconfig.stash[PLANS] = one
        yield one
        if interrupted():
            raise KeyboardInterrupt  # so that the records of the runs state the interruption


@pytest.fixture
def measure(plans: "Plans") -> "Measure":
    """Measure a cell of a plan: ``measure(cell).must_reach(0.8)``; see `raidproof.plan.cell.cells_of`."""
    from raidproof.pytest_plugin.fixtures import Measure  # noqa: PLC0415

    return Measure(plans)


@pytest.fixture
def default_ledger() -> "LedgerSpec":
    """The ledger of crash tests whose call of `cycle` has none; a test file or a conftest.py may override it."""
    from raidproof.workload.ledger import LedgerSpec  # noqa: PLC0415

    return LedgerSpec()


@pytest.fixture
def cycle(current_run: "Run", default_ledger: "LedgerSpec", request: pytest.FixtureRequest) -> "CrashTestRunner":
    """Run crash tests in the shared lab, each on a new stack on blank disks."""
    from raidproof.pytest_plugin.fixtures import CrashTestRunner, name_of  # noqa: PLC0415
    from raidproof.pytest_plugin.plugin import states_of  # noqa: PLC0415

    return CrashTestRunner(current_run, name_of(request.node.name), states_of(request.config), default_ledger)


@pytest.fixture
def lab(current_run: "Run") -> "Iterator[Lab]":
    """The shared lab with blank disks, which the scenario must leave unused at its end.

    After a scenario that uses this fixture and fails, a new lab is booted.
    """
    from raidproof.pytest_plugin.disks_in_use import must_be_free  # noqa: PLC0415

    machines = current_run.lab
    machines.disks.reset()
    yield machines
    if current_run.has_lab(machines):
        try:
            must_be_free(machines)
        except BaseException:
            current_run.discard_lab()
            raise


@pytest.fixture
def explore(current_run: "Run") -> "Explore":
    """Explore the crash states of a crash test: ``explore(cycle(stack_of()), states=150)``."""
    from raidproof.pytest_plugin.fixtures import Explore  # noqa: PLC0415

    return Explore(current_run)
