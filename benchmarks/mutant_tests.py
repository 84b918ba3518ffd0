"""Which tests may see a change of the code, and a run of them in a process of its own.

The tests are run once without any change, and which of them runs which line is noted. A changed line is then met by
the tests that run it and no others. What is run while modules are imported, and what is run in a process that a test
starts, is noted nowhere: such a line is met by whole files of tests, those that mirror its file and those that import
it. What a line leaves in a fixture that several tests share is seen by all tests of the file, so they all count.
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
"""Seconds of CPU after which a run counts as one that never ends: all tests of these packages take 80."""
SLOWER = 8
"""A mutated test counts as endless after this multiple of its CPU time without a change, plus `CPU_LEAST_S`."""
CPU_LEAST_S = 5
MEMORY = 12 << 30
"""Bytes of address space after which a run counts as one that takes all memory."""
IDLE_S = 90
"""Seconds without any use of CPU after which a run counts as one that waits for ever."""
PROGRAM = '__name__ == "__main__"'
"""What a file has that tests may start as a program."""
OPTIONS = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-profile=mutants")
EVERYTHING = (
    "workload",
    "guest",
    "disk",
    "crash",
    "verdict",
    "record",
    "storage/array",
    "run/test_crash_test.py",
    "run/test_crash_test_steps.py",
    "run/test_exploration_source.py",
)
"""Folders and files of tests that may tell of any of these packages."""

# The same examples as ever; what fails once has failed, however small an example of it there is.
settings.register_profile(
    "mutants",
    derandomize=True,
    deadline=None,
    database=None,
    phases=(Phase.explicit, Phase.generate, Phase.target),
)


@dataclass(frozen=True)
class Stage:
    """Tests that are run together."""

    files: list[str]
    tests: frozenset[str] | None = None
    """Those of the files that are run; None for all."""


@dataclass
class Noted:
    """What each test runs, and takes."""

    of: str
    """Digest of the code and the tests that it was noted of."""
    cpu_s: dict[str, float] = field(default_factory=dict)
    """Seconds of CPU of each test."""
    lines: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    """Tests by file and line: files by their path in the tree, lines as text, tests by their place in ``cpu_s``."""

    def tests(self, path: Path, lines: Sequence[int]) -> set[str]:
        """Return the tests that run any of some lines."""
        found, names = self.lines.get(str(path), {}), list(self.cpu_s)
        return {names[test] for line in lines for test in found.get(str(line), [])}


def noted(tree: Path, keep: Path | None) -> Noted:
    """Return what each test runs: as it was kept, if it was of this code and these tests; else by running them all."""
    digest = _digest(tree)
    if keep and keep.exists():
        known = Noted(**json.loads(keep.read_text()))
        if known.of == digest:
            return known
    out = tree.parent / "noted.json"
    red = run_tests(tree, Stage([f"tests/{name}" for name in EVERYTHING]), Noted(digest), out)
    if red:
        raise SystemExit(f"a test is red without any change: {red}")
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
    """Import the harness and its tests into this process; return the lines that this ran, by file."""
    os.chdir(tree)
    ran = coverage.Coverage(data_file=None, include=[f"{tree}/harness/raidproof/*"], config_file=False)
    ran.start()
    with redirect_stdout(io.StringIO()):
        pytest.main([*OPTIONS, "--collect-only", *(f"tests/{name}" for name in EVERYTHING)])
    ran.stop()
    data = ran.get_data()
    return {str(Path(name).relative_to(tree)): set(data.lines(name) or []) for name in data.measured_files()}


def stages(tree: Path, path: Path, span: tuple[int, int], known: Noted, *, whole: bool = False) -> Iterator[Stage]:
    """Yield the tests that may see a change of some lines (first, last) of a file, those first that are likely to.

    Whole files come last if ``whole``, if no test is known to run these lines, or if the file is a program, too.
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
    """Return the lines whose run is the run of some lines (first, last) of a file.

    They are the statement around them, without the statements within that; and all of a function for its decorators,
    its defaults and its name, which are run when the module is imported and matter when the function is called.
    """
    first, last = span
    around: ast.stmt | None = None
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.stmt) and _first(node) <= first and last <= (node.end_lineno or 0):
            around = node  # an inner one comes later than the one around it
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
    tree: Path, stage: Stage, known: Noted, note: Path | None = None, code: Sequence[Swap] | None = None
) -> str | None:
    """Run tests in a process of its own; return what ended it, or None if all passed.

    With ``note`` the file is written that says what each test runs, and no test is taken for one that never ends.
    Functions get other code as ``code`` says; if it is None, the harness and its tests are imported again.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _confine(tree)
        _import_again(tree) if code is None else apply(code)
        watch: Red = Notes(tree, known, note) if note else Watch(stage, known)
        status = pytest.main([*OPTIONS, f"--basetemp={tree.parent / 'base'}", *stage.files], plugins=[watch])
        os.write(writing, watch.red.encode())
        os._exit(int(status))
    os.close(writing)
    status = _wait(child)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what its tests started
    with os.fdopen(reading) as said:
        word = said.read() if status > 0 else ""
    if status in {0, pytest.ExitCode.NO_TESTS_COLLECTED}:
        return None
    return f"signal {-status}" if status < 0 else word or f"status {status}"


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


def _confine(tree: Path) -> None:
    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.chdir(tree)
    silent = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(silent, fd)


def _import_again(tree: Path) -> None:
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(f"{tree}/") or name in {"raidproof", "tests"}:
            del sys.modules[name]


class Red:
    """Notes the first test that is red; a plug-in of pytest."""

    def __init__(self) -> None:
        self.red = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Look at a test's report."""
        if report.failed and not self.red:
            self.red = report.nodeid


class Watch(Red):
    """Leaves out the tests that are not wanted, and ends the process at a test that never ends."""

    def __init__(self, stage: Stage, known: Noted) -> None:
        super().__init__()
        self._stage, self._known = stage, known

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep those that are wanted."""
        if (wanted := self._stage.tests) is not None:
            items[:] = [one for one in items if one.nodeid in wanted]

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Set what this test may take."""
        limit = CPU_LEAST_S + SLOWER * self._known.cpu_s.get(item.nodeid, CPU_LEAST_S)
        resource.setrlimit(
            resource.RLIMIT_CPU, (min(CPU_S, round(time.process_time() + limit)), resource.RLIM_INFINITY)
        )


class Notes(Red):
    """Notes what each test runs and takes."""

    def __init__(self, tree: Path, known: Noted, out: Path) -> None:
        super().__init__()
        self._tree, self._known, self._out = tree, known, out
        self._began = 0.0
        self._coverage = coverage.Coverage(data_file=None, include=[f"{tree}/harness/raidproof/*"], config_file=False)
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Measure a test's use of CPU."""
        began = time.process_time()
        done = yield
        self._known.cpu_s[item.nodeid] = round(time.process_time() - began, 4)
        self._coverage.switch_context("")
        return done

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Note what the fixtures run."""
        self._coverage.switch_context(f"{item.nodeid}|setup")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        """Note what the test runs."""
        self._coverage.switch_context(f"{item.nodeid}|call")

    def pytest_sessionfinish(self) -> None:
        """Write it all."""
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
