"""The pytest plugin: options, progress messages, workers of pytest-xdist, and outcomes beyond passed and failed."""

import fcntl
import io
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

from raidproof.core import log
from raidproof.core.errors import ControlFailed, Inconclusive, ProductError, RequestError, RequirementMissing, RigError
from raidproof.core.waiting import unwinding_on_signals
from raidproof.pytest_plugin import exit_status
from raidproof.pytest_plugin.fixture_functions import (
    current_run,
    cycle,
    default_ledger,
    explore,
    lab,
    lab_topology,
    measure,
    plans,
)
from raidproof.pytest_plugin.stash import CURRENT_RUN, PLANS
from raidproof.record.outcome import REASON_OF_CALL, Outcome
from raidproof.report import words
from raidproof.run.options import OPTIONS, STATES

if TYPE_CHECKING:
    from raidproof.record import CrashTestRecord

__all__ = ["current_run", "cycle", "default_ledger", "explore", "lab", "lab_topology", "measure", "plans"]

ALONE = "alone"
ENDS = pytest.StashKey[list[str]]()
"""Key of pytest's stash, in the main process, for the lines that the workers report about their runs."""
_OUTPUT = "raidproof"
"""Key of a worker's lines about its runs, in the dictionary that pytest-xdist sends to the main process."""
_LOCK = "raidproof-alone.lock"
"""Name of the file that scenarios of all workers lock: shared or, with the marker ``alone``, exclusively."""

EXHAUSTIVE = "exhaustive"
STATES_KEY = "raidproof_states"
"""Key of pytest's configuration file with the number of crash states to check after each power cut."""
PROPERTY = "raidproof-"
"""Prefix of a property of a test case in JUnit XML: the phase of the test follows, and the value is the outcome."""
OUTCOMES: tuple[tuple[type[Exception], Outcome], ...] = (
    (ProductError, Outcome.FAIL),
    (RigError, Outcome.ERROR),
    (RequirementMissing, Outcome.SKIP),
    (ControlFailed, Outcome.INVALID),
    (Inconclusive, Outcome.INCONCLUSIVE),
)
"""For each class of errors, the outcome of a scenario that ends with such an error."""
STATUS: Mapping[Outcome, tuple[str, str]] = {
    Outcome.FAIL: ("failed", "F"),
    Outcome.ERROR: ("error", "E"),
    Outcome.INVALID: ("invalid", "V"),
    Outcome.INCONCLUSIVE: ("inconclusive", "?"),
}
"""For each outcome, pytest's category of reports and the letter in pytest's line of progress."""
Status = tuple[str, str, str | tuple[str, dict[str, bool]]]
Report = Generator[None, pytest.TestReport, pytest.TestReport]
_SCREEN = pytest.StashKey[ExitStack]()


def worker_name(config: pytest.Config) -> str | None:
    """Return the name of this worker of pytest-xdist; None if this process is not a worker."""
    workerinput: dict[str, Any] | None = getattr(config, "workerinput", None)
    return None if workerinput is None else str(workerinput["workerid"])


def send_ends(config: pytest.Config, lines: Sequence[str]) -> None:
    """Send a worker's lines about its runs to the main process; do nothing in the main process."""
    if worker_name(config) is not None:
        output: dict[str, Any] = config.workeroutput  # type: ignore[attr-defined]
        output[_OUTPUT] = list(lines)


def put_in_order(items: list[pytest.Item]) -> None:
    """Put files with a marker ``alone`` last, and keep the order of the others.

    A scenario with the marker ``alone`` waits until the current scenarios of all other workers have ended.
    """
    last = {item.path for item in items if _is_alone(item)}
    items.sort(key=lambda item: (item.path in last, _is_alone(item)))


@contextmanager
def alone_or_shared(item: pytest.Item) -> Iterator[None]:
    """Wait until a scenario may run, and hold the file lock `_LOCK` during the ``with`` block.

    A scenario with the marker ``alone`` waits until no other scenario runs; any other scenario waits until no scenario
    with the marker runs. Without workers of pytest-xdist, scenarios run one after the other and need no lock.
    """
    if worker_name(item.config) is None:
        yield
        return
    # The temporary folders of all workers have the same parent (pytest-xdist).
    path = Path(item.config.option.basetemp).parent / _LOCK
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if _is_alone(item) else fcntl.LOCK_SH)
        yield


class WorkerScreen(io.StringIO):
    """A stream that writes lines, with the worker's name, to standard error despite pytest's capture."""

    def __init__(self, config: pytest.Config) -> None:
        super().__init__()
        self._capture = config.pluginmanager.get_plugin("capturemanager")
        self._name = worker_name(config)

    def write(self, text: str) -> int:
        """Write whole lines; return the number of characters."""
        with ExitStack() as stack:
            if self._capture is not None:
                stack.enter_context(self._capture.global_and_fixture_disabled())
            if sys.__stderr__ is not None:
                sys.__stderr__.write("".join(f"{self._name}: {line}\n" for line in text.splitlines()))
                sys.__stderr__.flush()
        return len(text)


class Workers:
    """Hooks in the main process of pytest-xdist: SIGTERM ends the workers, and their lines about runs are stored."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        """Make SIGTERM end the workers as Ctrl-C does."""
        with unwinding_on_signals() if self._config.getoption("numprocesses", None) else nullcontext():
            return (yield)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Store the lines about runs that a worker sends at its end; a killed worker sends none."""
        lines = getattr(node, "workeroutput", {}).get(_OUTPUT, [])
        self._config.stash.setdefault(ENDS, []).extend(lines)


def _is_alone(item: pytest.Item) -> bool:
    return item.get_closest_marker(ALONE) is not None


def outcome_of(error: BaseException) -> Outcome | None:
    """Return the outcome of a scenario that an error ended; None if the error's class is not in ``OUTCOMES``."""
    return next((outcome for kind, outcome in OUTCOMES if isinstance(error, kind)), None)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add raidproof's options to pytest."""
    group = parser.getgroup("raidproof")
    # Options are text, as pytest-xdist passes only plain values to its workers.
    group.addoption("--results", default="results", metavar="DIR", help="folder in which runs are stored")
    group.addoption("--keep", action="store_true", help="keep the last lab running, for `raidproof shell`")
    for option in OPTIONS:
        action = "append" if option.repeated else "store"
        group.addoption(f"--{option.name}", metavar=option.metavar, help=option.help, action=action)
    group.addoption(
        "--states",
        type=int,
        metavar="N",
        help=f"crash states to check after each power cut with solo operations, at most (default {STATES}; 0: none)",
    )
    parser.addini(STATES_KEY, "crash states to check after each power cut, if --states is not given", default="")
    group.addoption("--exhaustive", action="store_true", help="run the slow scenarios (marker exhaustive) too")


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers and the hooks of pytest-xdist, and check the options about machines."""
    config.addinivalue_line("markers", f"{EXHAUSTIVE}: slow; runs only with --exhaustive or -m {EXHAUSTIVE}")
    config.addinivalue_line("markers", f"{ALONE}: measures speed; no other scenario runs at the same time")
    config.pluginmanager.register(Workers(config))
    config.stash[_SCREEN] = ExitStack()
    states_of(config)
    if any(getattr(config.option, one.name) for one in OPTIONS):
        check_platform(config)


def states_of(config: pytest.Config) -> int:
    """Return the greatest number of crash states to check after each power cut: option, configuration file, default.

    Raises:
        pytest.UsageError: the number is not a number, or negative.
    """
    asked = config.option.states if config.option.states is not None else config.getini(STATES_KEY)
    if asked == "":
        return STATES
    try:
        states = int(asked)
    except ValueError:
        states = -1
    if states < 0:
        raise pytest.UsageError(
            f"{STATES_KEY}, --states: expected a number of crash states of 0 or more, not {asked!r}"
        )
    return states


def check_platform(config: pytest.Config) -> None:
    """Check the options about machines.

    Raises:
        pytest.UsageError: an option is invalid, or requests something unknown.
    """
    from raidproof.run.platform import platform_of, refuse_unknown  # noqa: PLC0415  the import takes a second

    try:
        refuse_unknown(platform_of(vars(config.option)))
    except RequestError as error:
        raise pytest.UsageError(str(error)) from error


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Show progress messages while scenarios run, despite pytest's capture."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    screen: io.StringIO | None = None
    if worker_name(session.config) is not None:
        screen = WorkerScreen(session.config)
    elif isinstance(reporter, pytest.TerminalReporter):
        screen = Screen(session.config, reporter)
    if screen is not None:
        session.config.stash[_SCREEN].enter_context(log.shown_on(screen, width=1000))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop showing progress messages."""
    config.stash[_SCREEN].close()


class Screen(io.StringIO):
    """A stream that writes to the terminal between pytest's lines, despite pytest's capture."""

    def __init__(self, config: pytest.Config, reporter: pytest.TerminalReporter) -> None:
        super().__init__()
        self._capture = config.pluginmanager.get_plugin("capturemanager")
        self._reporter = reporter

    def write(self, text: str) -> int:
        """Write text on a new line; return the number of characters."""
        with ExitStack() as stack:
            if self._capture is not None:
                stack.enter_context(self._capture.global_and_fixture_disabled())
            self._reporter.ensure_newline()
            self._reporter.write(text, flush=True)
        return len(text)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the scenarios of a worker, and deselect scenarios with marker ``exhaustive`` unless they are requested."""
    if worker_name(config) is not None:
        put_in_order(items)
    if config.option.exhaustive or EXHAUSTIVE in config.option.markexpr:
        return
    slow = [item for item in items if item.get_closest_marker(EXHAUSTIVE)]
    if slow:
        items[:] = [item for item in items if item not in slow]
        config.hook.pytest_deselected(items=slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Run a scenario with the marker ``alone`` while no other scenario runs."""
    with alone_or_shared(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Judge the kernel logs after a scenario that uses the fixture ``lab``; end the lab if the scenario fails."""
    machines = getattr(item, "funcargs", {}).get("lab")
    if machines is None:
        yield
        return
    from raidproof.lab.lab import Lab  # noqa: PLC0415  the import takes a second, and only a scenario needs it
    from raidproof.pytest_plugin.fixtures import Consoles  # noqa: PLC0415

    if not isinstance(machines, Lab):
        yield
        return
    consoles = Consoles(machines)
    try:
        yield
        consoles.must_be_calm()
    except BaseException:
        # After a failure, the state of the lab is unknown.
        item.config.stash[CURRENT_RUN].discard_lab()
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Report:
    """Store the outcome of an error of raidproof in the report; report a missing requirement as a skip."""
    report = yield
    outcome = outcome_of(call.excinfo.value) if call.excinfo is not None else None
    if report.failed and call.excinfo is not None:
        ended = exit_status.status_of(call.excinfo.value, outcome)
        report.user_properties.append((exit_status.PROPERTY, ended.name))
    if outcome is not None and call.excinfo is not None:
        named = (f"{PROPERTY}{call.when}", outcome.value)
        report.user_properties.append(named)
        # The JUnit XML takes the properties from the report of the teardown, which copies them from the item.
        item.user_properties += [named, (REASON_OF_CALL, str(call.excinfo.value))]
        if outcome is Outcome.SKIP:
            report.outcome = "skipped"
            path, line, _ = item.location
            report.longrepr = (path, (line or 0) + 1, f"Skipped: {call.excinfo.value}")
    return report


def stored_outcome(report: pytest.TestReport) -> Outcome | None:
    """Return the outcome that `pytest_runtest_makereport` stored in a report; None if it stored none."""
    return next(
        (Outcome(str(value)) for name, value in report.user_properties if name == f"{PROPERTY}{report.when}"), None
    )


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(report: pytest.CollectReport | pytest.TestReport) -> Status | None:
    """Return pytest's category, letter and word for a raidproof outcome; None leaves the choice to pytest."""
    if not isinstance(report, pytest.TestReport) or not report.failed:
        return None
    outcome = stored_outcome(report)
    if outcome is None or outcome not in STATUS:
        return None
    category, letter = STATUS[outcome]
    word = "FAILED" if outcome is Outcome.FAIL else outcome.value
    return category, letter, (word, {"red": True})


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the reason of each scenario that ended INVALID or INCONCLUSIVE, and the path of each run's report."""
    for outcome in (Outcome.INVALID, Outcome.INCONCLUSIVE):
        category, _ = STATUS[outcome]
        for report in terminalreporter.getreports(category):
            terminalreporter.section(f"{outcome}: {report.nodeid}", sep="_", red=True)
            terminalreporter.write_line(report.longreprtext)
    ends = [*ends_of(config), *config.stash.get(ENDS, [])]
    if ends:
        terminalreporter.section("raidproof", sep="-")
    for line in ends:
        terminalreporter.write_line(line)


def ends_of(config: pytest.Config) -> Iterator[str]:
    """Yield lines with the outcome, the reason and the path of the report of each run of this process."""
    shared, of_plans = config.stash.get(CURRENT_RUN, None), config.stash.get(PLANS, None)
    for run in [*([shared] if shared else []), *(of_plans.runs if of_plans else [])]:
        if run.record.cycles or run.record.cells:
            yield f"{run.record.outcome}: {run.record.reason}{counted(run.record.cycles)}"
        if run.report is not None:
            yield f"report: {run.report}"


def counted(cycles: "Sequence[CrashTestRecord]") -> str:
    """Return the acknowledged and lost operations of crash tests other than controls; empty if none was checked."""
    checked = [one for one in cycles if one.control is None and one.on_server is not None]
    if not checked:
        return ""
    acknowledged = sum(one.on_server.acknowledged_total for one in checked if one.on_server)
    lost = sum(max(place.lost_total for place in (one.on_server, one.on_client) if place) for one in checked)
    return f" ({words.plural(len(checked), 'crash test')}: {acknowledged:,} acknowledged, {lost:,} lost)"


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Send a worker's lines about runs, and mark the outcomes in the JUnit XML, which pytest has written already."""
    yield
    send_ends(session.config, [*ends_of(session.config)])
    path = session.config.option.xmlpath
    if path is not None and Path(path).is_file():
        mark_junit(Path(path))


def mark_junit(path: Path) -> None:
    """Turn each failure in JUnit XML with an outcome other than FAIL into an error whose type is the outcome."""
    tree = ElementTree.parse(path)  # noqa: S314  pytest has just written the file
    changed = False
    for group in tree.iter("testsuite"):
        for case in group.iter("testcase"):
            word = case.find(f"properties/property[@name='{PROPERTY}call']")
            failure = case.find("failure")
            if word is None or failure is None or word.get("value") == Outcome.FAIL:
                continue
            failure.tag = "error"
            failure.set("type", word.get("value", ""))
            changed = True
        for counted, tag in (("failures", "failure"), ("errors", "error")):
            group.set(counted, str(len(group.findall(f"testcase/{tag}"))))
    if changed:
        tree.write(path, encoding="utf-8", xml_declaration=True)
