"""Selects the tests that can detect a change of the code, and runs them in a forked process.

First, all tests run once on the unchanged code, and coverage records which test runs which line. A changed line is
then tested only by the tests that run it. Coverage by test does not contain lines that run during an import, or in a
process that a test starts: such a line is tested by whole test files, namely that of the changed file and those that
import it. A line that runs in the set-up of a fixture counts for all tests of the test file, because these tests may
share the fixture.
"""

import ast
import hashlib
import io
import json
import os
import re
import resource
import signal
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import coverage
import psutil
import pytest
from hypothesis import Phase, settings

from benchmarks.mutant_code import Swap, apply

CPU_S = 240
"""Seconds of CPU time after which a run of tests counts as endless; all tests of these packages take 80 s."""
SLOWER = 8
"""A test counts as endless after this multiple of its CPU time on unchanged code, plus `CPU_LEAST_S`."""
CPU_LEAST_S = 5
"""Seconds of CPU time that each test may use in any case."""
MEMORY = 12 << 30
"""Limit of the address space of a run in bytes, so that a changed program cannot fill the host's memory."""
IDLE_S = 90
"""Seconds without any use of CPU time after which a run counts as endless and is killed."""
SHOWN = 60
"""Number of lines of pytest's output to show if a test fails on the unchanged code."""
PROGRAM = '__name__ == "__main__"'
"""Text in the source of a file that tests may start as a program."""
OPTIONS = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-profile=mutants")
EVERYTHING = (
    "workload",
    "guest",
    "disk",
    "crash",
    "verdict",
    "record",
    "storage/array",
    "fault",
    "run/test_crash_test.py",
    "run/test_crash_test_steps.py",
    "run/test_exploration_source.py",
)
"""Folders and files below tests/ that can detect changes of the mutated packages."""

# Hypothesis generates the same examples in each run and does not shrink a failure, as any failure kills the mutant.
settings.register_profile(
    "mutants",
    derandomize=True,
    deadline=None,
    database=None,
    phases=(Phase.explicit, Phase.generate, Phase.target),
)


@dataclass(frozen=True)
class Stage:
    """Tests that run together in one process."""

    files: list[str]
    """Test files by their path in the tree."""
    tests: frozenset[str] | None = None
    """Node ids of the tests to run; None: all tests of the files."""


@dataclass
class Noted:
    """The lines that each test runs on unchanged code, and its CPU time."""

    of: str
    """Digest of the code and the tests at the time of the recording."""
    cpu_s: dict[str, float] = field(default_factory=dict)
    """Seconds of CPU time by the test's node id."""
    lines: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    """Tests by path of the file in the tree and number of the line as text; a test is an index into ``cpu_s``."""

    def tests(self, path: Path, lines: Sequence[int]) -> set[str]:
        """Return the node ids of the tests that run at least one of these lines of a file."""
        found, names = self.lines.get(str(path), {}), list(self.cpu_s)
        return {names[test] for line in lines for test in found.get(str(line), [])}


def noted(tree: Path, keep: Path | None) -> Noted:
    """Return the lines that each test runs: from the file ``keep`` if its digest is equal, else from a run of all."""
    digest = _digest(tree)
    if keep and keep.exists():
        known = Noted(**json.loads(keep.read_text()))
        if known.of == digest:
            return known
    out, said = tree.parent / "noted.json", tree.parent / "said.txt"
    red = run_tests(tree, Stage([f"tests/{name}" for name in EVERYTHING]), Noted(digest), out, said=said)
    if red:
        lines = said.read_text(errors="replace").splitlines()[-SHOWN:]
        raise SystemExit(
            "\n".join([f"a test fails on the unchanged code: {red}; the output of pytest ends with", *lines])
        )
    text = out.read_text()
    if keep:
        keep.write_text(text)
    return Noted(**json.loads(text))


def _digest(tree: Path) -> str:
    hashed = hashlib.sha256()
    for name in ("conftest.py", "harness", "tests"):
        at = tree / name
        for path in sorted(at.rglob("*.py")) if at.is_dir() else [at]:
            hashed.update(f"{path.relative_to(tree)}\0".encode() + path.read_bytes())
    return hashed.hexdigest()


def imported(tree: Path) -> dict[str, set[int]]:
    """Import the harness and its tests into this process; return the lines that ran during the import, by file."""
    os.chdir(tree)
    ran = coverage.Coverage(data_file=None, include=[f"{tree}/harness/raidproof/*"], config_file=False)
    ran.start()
    with redirect_stdout(io.StringIO()):
        pytest.main([*OPTIONS, "--collect-only", *(f"tests/{name}" for name in EVERYTHING)])
    ran.stop()
    data = ran.get_data()
    return {str(Path(name).relative_to(tree)): set(data.lines(name) or []) for name in data.measured_files()}


def stages(tree: Path, path: Path, span: tuple[int, int], known: Noted, *, whole: bool = False) -> Iterator[Stage]:
    """Yield the tests that can detect a change of the lines ``span`` (first, last) of a file, the likeliest first.

    Whole test files follow if ``whole``, if no test is known to run these lines, or if the file is also a program.
    """
    seen = known.tests(path, lines_of(tree / path, span))
    if seen:
        mirrored = str(_mirrored(path))
        files = {test.partition("::")[0] for test in seen}
        cost = {one: sum(known.cpu_s[test] for test in seen if test.startswith(f"{one}::")) for one in files}
        yield Stage(sorted(files, key=lambda one: (one != mirrored, cost[one], one)), frozenset(seen))
    if whole or not seen or PROGRAM in (tree / path).read_text():
        yield from _files(tree, path, whole=whole)


def lines_of(path: Path, span: tuple[int, int]) -> list[int]:
    """Return the lines whose coverage shows that the lines ``span`` (first, last) of a file have an effect.

    These are the lines of the innermost statement that contains the span, without its inner statements. For
    decorators, defaults and the name of a function, they are all lines of the function: these parts run during the
    import of the module, but take effect when the function is called.
    """
    first, last = span
    around: ast.stmt | None = None
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.stmt) and _first(node) <= first and last <= (node.end_lineno or 0):
            around = node  # ast.walk yields an inner statement after the outer one
    if around is None or isinstance(around, ast.ClassDef):
        return []
    end, body = around.end_lineno or last, getattr(around, "body", None)
    if body is None:
        return list(range(around.lineno, end + 1))
    within: int = body[0].lineno
    if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef):
        return list(range(within, end + 1))
    return list(range(around.lineno, max(around.lineno, last, within - 1) + 1))


def _first(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(one.lineno for one in decorators)])


def _mirrored(path: Path) -> Path:
    below = path.relative_to("harness/raidproof")
    return Path("tests") / below.parent / f"test_{below.name}"


def _tests_in(path: Path) -> list[Path]:
    return sorted(path.rglob("test_*.py")) if path.is_dir() else [path]


def _files(tree: Path, path: Path, *, whole: bool) -> Iterator[Stage]:
    mirrored = tree / _mirrored(path)
    module = ".".join(path.with_suffix("").parts)
    folder, name = module.rsplit(".", 1)
    imports = re.compile(rf"{re.escape(module)}\b|from {re.escape(folder)} import .*\b{name}\b")
    importing = [one for one in sorted((tree / "tests").rglob("test_*.py")) if imports.search(one.read_text())]
    rest = [one for name in EVERYTHING for one in _tests_in(tree / "tests" / name)]
    some = mirrored.exists() or importing
    done: set[Path] = set()
    for stage in ([mirrored] if mirrored.exists() else [], importing, rest if whole or not some else []):
        if files := [one for one in stage if one not in done]:
            done.update(files)
            yield Stage([str(one.relative_to(tree)) for one in files])


def run_tests(
    tree: Path,
    stage: Stage,
    known: Noted,
    note: Path | None = None,
    code: Sequence[Swap] | None = None,
    said: Path | None = None,
) -> str | None:
    """Run tests in a forked process; return the failed test, the signal or the status, or None if all tests passed.

    ``note``: file to which the lines that each test runs are written; then no test counts as endless. ``code``: new
    code of functions; None: import the harness and its tests again. ``said``: file for the output of pytest.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _confine(tree, said)
        if code is None or not apply(code):
            _import_again(tree)
        watch: Red = Notes(tree, known, note) if note else Watch(stage, known)
        status = pytest.main([*OPTIONS, f"--basetemp={tree.parent / 'base'}", *stage.files], plugins=[watch])
        os.write(writing, watch.red.encode())
        os._exit(int(status))
    os.close(writing)
    status = _wait(child)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # processes that the tests started
    with os.fdopen(reading) as pipe:
        failed = pipe.read() if status > 0 else ""
    if status in {0, pytest.ExitCode.NO_TESTS_COLLECTED}:
        return None
    return f"signal {-status}" if status < 0 else failed or f"status {status}"


def _wait(child: int) -> int:
    used, active = 0.0, time.monotonic()
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
        if time.monotonic() - active > IDLE_S:
            if (now := _cpu(child)) - used < 0.05:
                os.killpg(child, signal.SIGKILL)
            used, active = now, time.monotonic()


def _cpu(pid: int) -> float:
    total = 0.0
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            with suppress(psutil.Error):
                times = one.cpu_times()
                total += times.user + times.system
    return total


def _confine(tree: Path, said: Path | None) -> None:
    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.chdir(tree)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    output = os.open(said or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for fd in (1, 2):
        os.dup2(output, fd)


def _import_again(tree: Path) -> None:
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(f"{tree}/") or name in {"raidproof", "tests"}:
            del sys.modules[name]


class Red:
    """A pytest plugin that records the first test that fails, or the first test file that cannot be imported."""

    def __init__(self) -> None:
        self.red = ""
        """Node id of the first failed test or test file; empty if none has failed."""

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Record the first test file that cannot be imported."""
        if report.failed and not self.red:
            self.red = report.nodeid

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the first failed test."""
        if report.failed and not self.red:
            self.red = report.nodeid


class Watch(Red):
    """A pytest plugin that deselects tests that a stage does not contain, and limits the CPU time of each test."""

    def __init__(self, stage: Stage, known: Noted) -> None:
        super().__init__()
        self._stage, self._known = stage, known

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep only the tests of the stage."""
        if (wanted := self._stage.tests) is not None:
            items[:] = [one for one in items if one.nodeid in wanted]

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Set the limit of the CPU time, at which the kernel kills the process."""
        limit = CPU_LEAST_S + SLOWER * self._known.cpu_s.get(item.nodeid, CPU_LEAST_S)
        resource.setrlimit(
            resource.RLIMIT_CPU, (min(CPU_S, round(time.process_time() + limit)), resource.RLIM_INFINITY)
        )


class Notes(Red):
    """A pytest plugin that records the lines that each test runs, and its CPU time."""

    def __init__(self, tree: Path, known: Noted, out: Path) -> None:
        super().__init__()
        self._tree, self._known, self._out = tree, known, out
        self._began = 0.0
        self._coverage = coverage.Coverage(data_file=None, include=[f"{tree}/harness/raidproof/*"], config_file=False)
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Measure a test's CPU time."""
        began = time.process_time()
        done = yield
        self._known.cpu_s[item.nodeid] = round(time.process_time() - began, 4)
        self._coverage.switch_context("")
        return done

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Count lines from now on for the test's fixtures."""
        self._coverage.switch_context(f"{item.nodeid}|setup")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        """Count lines from now on for the test itself."""
        self._coverage.switch_context(f"{item.nodeid}|call")

    def pytest_sessionfinish(self) -> None:
        """Write the lines and CPU times of all tests to the file."""
        self._coverage.stop()
        data = self._coverage.get_data()
        for name in sorted(data.measured_files()):
            lines = data.contexts_by_lineno(name).items()
            found = {str(line): sorted(self._ran(contexts)) for line, contexts in lines}
            self._known.lines[str(Path(name).relative_to(self._tree))] = found
        self._out.write_text(json.dumps(vars(self._known)))

    def _ran(self, contexts: Sequence[str]) -> set[int]:
        phases = [one.rpartition("|") for one in contexts if one]
        named = {test for test, _, phase in phases if phase == "call"}
        files = {test.partition("::")[0] for test, _, phase in phases if phase == "setup"}
        return {
            place for place, test in enumerate(self._known.cpu_s) if test in named or test.partition("::")[0] in files
        }
