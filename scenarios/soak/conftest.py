"""The numbers of the drawn crash tests, their fixtures, and a summary for all workers."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from raidproof.pytest_plugin.plugin import worker_name
from scenarios.soak.load import Load
from scenarios.soak.resources import Watch


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test of each number."""
    if "number" in metafunc.fixturenames:
        metafunc.parametrize("number", range(metafunc.config.option.soak))


@pytest.fixture(scope="session")
def load(pytestconfig: pytest.Config) -> Iterator[Load]:
    """The load of this worker on the host."""
    workers = int(pytestconfig.workerinput["workercount"]) if worker_name(pytestconfig) else 1  # type: ignore[attr-defined]
    with closing(Load(workers)) as one:
        yield one


@pytest.fixture(scope="session")
def watch() -> Watch:
    """What this worker takes."""
    return Watch()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many crash tests ended how, with and without load, and what the workers took."""
    reports: list[tuple[dict[str, Any], float]] = [
        (dict(report.user_properties), report.duration)
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
    ]
    drawn = [(found, seconds) for found, seconds in reports if "resources" in found]
    if not drawn:
        return
    terminalreporter.section("soak")
    for loaded in (False, True):
        mine = [(found, seconds) for found, seconds in drawn if found["loaded"] is loaded]
        outcomes = Counter(str(found["outcome"]) for found, _ in mine)
        said = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
        longest = max((seconds for _, seconds in mine), default=0.0)
        where = "with busy processors" if loaded else "without other load"
        terminalreporter.write_line(f"{where}: {len(mine)} crash tests: {said}; the longest took {longest:.0f} s")
    for what in ("processes", "threads", "files", "rss"):
        values = [found["resources"][what] for found, _ in drawn]
        terminalreporter.write_line(
            f"{what} of a worker: {min(values):,} to {max(values):,}, at the end {values[-1]:,}"
        )
    for found, _ in drawn:
        if found["outcome"] != "PASS":
            terminalreporter.write_line(f"{found['outcome']}: {found['reason']}")
