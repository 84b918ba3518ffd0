"""Fixtures that several folders of scenarios share, the marker of the core, and the recorder of coverage."""

import os
import tempfile
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from raidproof.core.errors import RequirementMissing
from raidproof.provider.namespace_lab import NamespaceLab
from raidproof.pytest_plugin.plugin import EXHAUSTIVE, put_in_order, worker_name
from raidproof.pytest_plugin.stash import CURRENT_RUN, PLANS
from raidproof.run.run import Run
from raidproof.workload.ledger import LedgerSpec
from scenarios import core, rotation
from scenarios.coverage import PLANTS, Axis, Recorder, Row, recording
from scenarios.hosts.hardware import Hardware

CORE = "core"
"""Marker of the scenarios that `./raidproof test core` runs; see `scenarios.core`."""
_ROWS = "raidproof-rows"
"""Name of the property of a test report that has the rows of a scenario."""
_RECORDER = pytest.StashKey[Recorder]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that records what each scenario exercises, and those of the soak."""
    parser.addoption(
        "--record-coverage",
        action="store_true",
        help="store the duration of each passed scenario, and what it exercises, in scenarios/coverage.json",
    )
    parser.addoption("--soak", type=int, default=0, metavar="N", help="run N crash tests of scenarios/soak")
    parser.addoption("--soak-seed", type=int, default=1, metavar="SEED", help="the seed by which they are drawn")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the soak unless it is requested."""
    return True if collection_path.name == "soak" and not config.option.soak else None


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, and begin to record if requested."""
    config.addinivalue_line("markers", f"{CORE}: one of the scenarios that together exercise each kind of thing")
    config.addinivalue_line("markers", f"{PLANTS}: plants a defect that the harness must find")
    if not config.option.record_coverage:
        return
    if worker_name(config) is None:
        config.pluginmanager.register(Coverage())
    if worker_name(config) is not None or not config.getoption("numprocesses", None):
        recorder = config.stash[_RECORDER] = Recorder()
        undo = ExitStack()
        undo.enter_context(recording(recorder))
        config.add_cleanup(undo.close)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    """Mark the scenarios of the core, before pytest selects by markers; let workers begin with the longest files."""
    for item in items:
        if item.get_closest_marker(EXHAUSTIVE) is None and core.is_core(item.nodeid):
            item.add_marker(CORE)
    yield
    if worker_name(config) is not None:
        files = core.longest_first((item.nodeid for item in items), core.load())
        items.sort(key=lambda item: files.index(core.file_of(item.nodeid)))
        put_in_order(items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Begin to record a scenario."""
    if (recorder := item.config.stash.get(_RECORDER, None)) is not None:
        recorder.begin()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the rows of a scenario to its last report."""
    report = yield
    recorder = item.config.stash.get(_RECORDER, None)
    if recorder is not None and call.when == "teardown":
        shared, plans = item.config.stash.get(CURRENT_RUN, None), item.config.stash.get(PLANS, None)
        runs = [*([shared] if shared else []), *(plans.runs if plans else [])]
        own = getattr(item, "funcargs", {}).get("tmp_path")
        recorder.read([*(run.store.path for run in runs), *([own] if own else [])])
        if item.get_closest_marker(PLANTS):
            recorder.rows.add(Row(Axis.PLANT, item.nodeid.partition("::")[2]))
        report.user_properties.append((_ROWS, sorted(map(str, recorder.rows))))
    return report


class Coverage:
    """Collects, in the main process, the reports of all scenarios, and stores those of the passed ones."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)
        self._rows: dict[str, frozenset[Row]] = {}
        self._not_passed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the duration of a phase, and the rows."""
        self._seconds[report.nodeid] += report.duration
        if not report.passed:
            self._not_passed.add(report.nodeid)
        for name, value in report.user_properties:
            if name == _ROWS and isinstance(value, list):
                self._rows[report.nodeid] = frozenset(map(Row.parse, value))

    def pytest_sessionfinish(self) -> None:
        """Write the file: scenarios that did not run or did not pass keep what an earlier run recorded."""
        new = {
            name: core.Recorded(self._seconds[name], rows)
            for name, rows in self._rows.items()
            if name not in self._not_passed
        }
        core.store({**core.load(), **new})


@pytest.fixture
def default_ledger(request: pytest.FixtureRequest) -> LedgerSpec:
    """The ledger of crash tests whose call has none: some kinds of worker, or all; see `rotation`."""
    return rotation.ledger_of(request.node.nodeid)


@pytest.fixture
def hardware(current_run: Run) -> Iterator[Hardware]:
    """Yield the machines of a lab in the role of existing hardware, whose disks raidproof may overwrite."""
    if os.geteuid() != 0:
        raise RequirementMissing("only root may enter the network namespace of another lab")
    current_run.discard_lab()
    lab = current_run.lab
    if not isinstance(lab, NamespaceLab):
        raise RequirementMissing("this run uses existing machines; this scenario needs a lab of provider uml or qemu")
    with tempfile.TemporaryDirectory(prefix="hw-") as folder:
        made = Hardware(lab, Path(folder))
        with made.powered():
            made.adopt()
            yield made
    current_run.discard_lab()
