"""raidproof under pytest: options, progress, and ends that look like what they are.

A promise that was broken is a failure, a rig that failed an error, a missing requirement a skip; INVALID and
INCONCLUSIVE keep their own words. Tests that ask for none of the fixtures see nothing of this.
"""

import io
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from xml.etree import ElementTree

import pytest

from raidproof.core import log
from raidproof.core.errors import ControlFailed, Inconclusive, ProductError, RequestError, RequirementMissing, RigError
from raidproof.provider.registry import Lab
from raidproof.pytest_plugin.explorations import explore
from raidproof.pytest_plugin.fixtures import CAMPAIGN, PLANS, Consoles, campaign, cycle, lab, measure, plans
from raidproof.pytest_plugin.suites import suite
from raidproof.pytest_plugin.xdist import (
    ALONE,
    ENDS,
    LONG,
    Workers,
    WorkerScreen,
    put_in_order,
    tell_ends,
    turn,
    worker_name,
)
from raidproof.record.outcome import Outcome
from raidproof.run.options import OPTIONS
from raidproof.run.platform import platform_of, refuse_unknown

__all__ = ["campaign", "cycle", "explore", "lab", "measure", "plans", "suite"]

EXHAUSTIVE = "exhaustive"
PROPERTY = "raidproof-"
"""And a phase of a test: the property of a test case in JUnit XML that has the end of that phase, in our word."""
WORDS: tuple[tuple[type[Exception], Outcome], ...] = (
    (ProductError, Outcome.FAIL),
    (RigError, Outcome.ERROR),
    (RequirementMissing, Outcome.SKIP),
    (ControlFailed, Outcome.INVALID),
    (Inconclusive, Outcome.INCONCLUSIVE),
)
STATUS: Mapping[Outcome, tuple[str, str]] = {
    Outcome.FAIL: ("failed", "F"),
    Outcome.ERROR: ("error", "E"),
    Outcome.INVALID: ("invalid", "V"),
    Outcome.INCONCLUSIVE: ("inconclusive", "?"),
}
"""pytest's category, and the letter for its shortest display."""
Status = tuple[str, str, str | tuple[str, dict[str, bool]]]
Report = Generator[None, pytest.TestReport, pytest.TestReport]
_SCREEN = pytest.StashKey[ExitStack]()


def outcome_of(error: BaseException) -> Outcome | None:
    """Return which end an error is, or None for one that is not ours."""
    return next((outcome for kind, outcome in WORDS if isinstance(error, kind)), None)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add raidproof's options."""
    group = parser.getgroup("raidproof")
    # Text, for workers are handed the options, and of these plain values only.
    group.addoption("--results", default="results", metavar="DIR", help="where runs are kept")
    group.addoption("--keep", action="store_true", help="leave the last lab running, for `raidproof shell`")
    for option in OPTIONS:
        action = "append" if option.repeated else "store"
        group.addoption(f"--{option.name}", metavar=option.metavar, help=option.help, action=action)
    group.addoption(
        "--suite-path", action="append", metavar="NAME=PATH", help="where a peer's suite is, as fsx=/usr/local/bin/fsx"
    )
    group.addoption("--exhaustive", action="store_true", help="run the slow scenarios, too")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker, and find a way to the terminal that pytest's capture leaves open."""
    config.addinivalue_line("markers", f"{EXHAUSTIVE}: slow; left out unless --exhaustive or -m {EXHAUSTIVE} is given")
    config.addinivalue_line("markers", f"{ALONE}: measures; no other scenario runs meanwhile")
    config.addinivalue_line("markers", f"{LONG}: takes minutes; of several workers one begins with its file")
    config.pluginmanager.register(Workers(config))
    config.stash[_SCREEN] = ExitStack()
    try:
        refuse_unknown(platform_of(vars(config.option)))
    except RequestError as error:
        raise pytest.UsageError(str(error)) from error


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Show progress while scenarios run, whatever pytest captures."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    screen: io.StringIO | None = None
    if worker_name(session.config) is not None:
        screen = WorkerScreen(session.config)
    elif isinstance(reporter, pytest.TerminalReporter):
        screen = Screen(session.config, reporter)
    if screen is not None:
        session.config.stash[_SCREEN].enter_context(log.shown_on(screen, width=1000))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Give the screen back."""
    config.stash[_SCREEN].close()


class Screen(io.StringIO):
    """Writes between pytest's own lines, past its capture."""

    def __init__(self, config: pytest.Config, reporter: pytest.TerminalReporter) -> None:
        super().__init__()
        self._capture = config.pluginmanager.get_plugin("capturemanager")
        self._reporter = reporter

    def write(self, text: str) -> int:
        """Write, beginning on a new line if pytest has begun one."""
        with ExitStack() as stack:
            if self._capture is not None:
                stack.enter_context(self._capture.global_and_fixture_disabled())
            self._reporter.ensure_newline()
            self._reporter.write(text, flush=True)
        return len(text)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is slow, unless it is asked for; what takes long comes first, what runs alone last."""
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
    """Run a scenario that measures while no other one does."""
    with turn(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Judge the kernel logs of a scenario that works in the lab itself; end the lab of one that fails in it."""
    machines = getattr(item, "funcargs", {}).get("lab")
    if not isinstance(machines, Lab):
        yield
        return
    consoles = Consoles(machines)
    try:
        yield
        consoles.must_be_calm()
    except BaseException:
        # Nobody knows in which state it was left.
        item.config.stash[CAMPAIGN].discard_lab()
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Report:
    """Note which end an error is, and make a skip of a missing requirement."""
    report = yield
    outcome = outcome_of(call.excinfo.value) if call.excinfo is not None else None
    if outcome is not None and call.excinfo is not None:
        said = (f"{PROPERTY}{call.when}", outcome.value)
        report.user_properties.append(said)
        # The XML takes them from the report of the teardown.
        item.user_properties.append(said)
        if outcome is Outcome.SKIP:
            report.outcome = "skipped"
            path, line, _ = item.location
            report.longrepr = (path, (line or 0) + 1, f"Skipped: {call.excinfo.value}")
    return report


def word_of(report: pytest.TestReport) -> Outcome | None:
    """Return which end of ours a report tells of."""
    return next(
        (Outcome(str(value)) for name, value in report.user_properties if name == f"{PROPERTY}{report.when}"), None
    )


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(report: pytest.CollectReport | pytest.TestReport) -> Status | None:
    """Give each end its own word."""
    if not isinstance(report, pytest.TestReport) or not report.failed:
        return None
    outcome = word_of(report)
    if outcome is None or outcome not in STATUS:
        return None
    category, letter = STATUS[outcome]
    word = "FAILED" if outcome is Outcome.FAIL else outcome.value
    return category, letter, (word, {"red": True})


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was INVALID or INCONCLUSIVE and why, and where the report is."""
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
    """Yield how this process's own runs have ended, and where their reports are."""
    shared, of_plans = config.stash.get(CAMPAIGN, None), config.stash.get(PLANS, None)
    for run in [*([shared] if shared else []), *(of_plans.campaigns if of_plans else [])]:
        if run.record.cycles or run.record.cells:
            yield f"{run.record.outcome}: {run.record.reason}"
        if run.report is not None:
            yield f"report: {run.report}"


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """After pytest has written its JUnit XML: what is no failure of the product is an error there."""
    yield
    tell_ends(session.config, [*ends_of(session.config)])
    path = session.config.option.xmlpath
    if path is not None and Path(path).is_file():
        mark_junit(Path(path))


def mark_junit(path: Path) -> None:
    """Turn failures whose end has another word into errors of that type; a file without any stays as it is."""
    tree = ElementTree.parse(path)  # noqa: S314  pytest has just written it
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
