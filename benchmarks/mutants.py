"""Mutation testing of what decides: small changes of the code, drawn at random, of which each must turn a test red.

The changes are cosmic-ray's operators and one of our own that leaves out a statement. A place in the code is drawn
first and what is done there second, so that a place where much can be done does not count more. Each change is made
in a copy of the tree, and is met first by the tests that mirror its module (`tests/disk/test_cache.py` for
`harness/raidproof/disk/cache.py`), then by those that import it. Run it as
`python -m benchmarks.mutants disk crash`; docs/mutation.md has the set-up and the score.
"""

import argparse
import ast
import difflib
import os
import resource
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import parso
import pytest
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator, operator_names

from benchmarks.figures import load

ROOT = Path(__file__).parent.parent
CPU_S = 120
"""Seconds of CPU after which a mutant counts as one that never ends: the slowest package's tests take 60."""
MEMORY = 12 << 30
"""Bytes of address space after which it counts as one that takes all memory."""
WALL_S = 600
"""Seconds after which it counts as one that waits for ever."""
PRELOADED = ("hypothesis", "jinja2", "paramiko", "psutil", "pydantic", "pyroute2", "rich", "typer")
EVERYTHING = ("workload", "disk", "crash", "verdict", "record", "cycle")
"""Folders of tests that may tell of any of these packages."""

Span = tuple[tuple[int, int], tuple[int, int]]


class DropStatement(Operator):  # type: ignore[misc]  # cosmic-ray has no types
    """Leaves out a statement that is there for its effect: a call, or what sets something of an object."""

    def mutation_positions(self, node: Any) -> Iterator[Span]:
        """Yield the place of the statement, if the node is one."""
        if node.type == "simple_stmt" and _has_effect(node.children[0]):
            yield node.children[0].start_pos, node.children[0].end_pos

    def mutate(self, node: Any, index: int) -> Any:  # noqa: ARG002  an operator's signature
        """Put ``pass`` into its place."""
        first = node.children[0]
        node.children[0] = parso.parse(f"{first.get_first_leaf().prefix}pass").children[0]
        return node

    @classmethod
    def examples(cls) -> tuple[()]:
        """Give none."""
        return ()


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    path: Path
    """Of the file, below the tree."""
    operator: str
    occurrence: int
    span: Span

    @property
    def line(self) -> int:
        """Where it is."""
        return self.span[0][0]

    def code(self, source: str) -> str | None:
        """Return the changed file; None if nothing changes."""
        code: str | None = mutate_code(source, _operators()[self.operator], self.occurrence)
        return None if code == source else code

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.operator.removeprefix('core/')}"


def _has_effect(node: Any) -> bool:
    if node.type in {"atom_expr", "power"}:
        return bool(node.children[-1].type == "trailer" and node.children[-1].children[0].value == "(")
    return bool(node.type == "expr_stmt" and node.children[0].type in {"atom_expr", "power"})


def _operators() -> dict[str, Any]:
    found = {name: get_operator(name) for name in operator_names() if name != "core/NoOp"}
    return {name: made() for name, made in found.items() if not made.arguments()} | {"DropStatement": DropStatement()}


def sites(path: Path, source: str) -> dict[Span, list[Mutant]]:
    """Return what can be done in a file, by the place in it.

    What says nothing when the program runs is left out: annotations, and what a type checker alone reads.
    """
    silent = _silent(source)
    tree, found = get_ast(source), dict[Span, list[Mutant]]()
    for name, operator in sorted(_operators().items()):
        spans = (span for node in ast_nodes(tree) for span in operator.mutation_positions(node))
        for occurrence, span in enumerate(spans):
            if not any(first <= span[0] and span[1] <= last for first, last in silent):
                found.setdefault(span, []).append(Mutant(path, name, occurrence, span))
    return found


def _silent(source: str) -> list[Span]:
    spans = []
    for node in ast.walk(ast.parse(source)):
        annotation = getattr(node, "returns", None) or getattr(node, "annotation", None)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            annotation = node
        if annotation is not None:
            start, end = (annotation.lineno, annotation.col_offset), (annotation.end_lineno, annotation.end_col_offset)
            spans.append((start, end))
    return spans


def draw(root: Path, places: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """Draw mutants: a place in the code first, of all files alike, then what is done there."""
    rng = Random(seed)  # noqa: S311  a seeded choice, no secret
    found: list[list[Mutant]] = []
    for place in places:
        at = root / "harness" / place
        for path in sorted(at.rglob("*.py")) if at.is_dir() else [at]:
            found += sites(path.relative_to(root), path.read_text()).values()
    drawn, source = [], dict[Path, str]()
    rng.shuffle(found)
    for mutants in found:
        mutant = rng.choice(mutants)
        text = source.setdefault(mutant.path, (root / mutant.path).read_text())
        code = mutant.code(text)
        if code is not None and _compiles(code):
            drawn.append(mutant)
        if len(drawn) == count:
            break
    return drawn


def _compiles(code: str) -> bool:
    try:
        compile(code, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def stages(tree: Path, path: Path, *, whole: bool = False) -> Iterator[list[str]]:
    """Yield files of tests, those first that are likely to see a change of a module.

    All of `EVERYTHING` comes last if ``whole``, or if no test mirrors or imports the module.
    """
    below = path.relative_to("harness")
    mirrored = tree / "tests" / below.parent / f"test_{below.name}"
    module = ".".join(path.with_suffix("").parts)
    importing = [one for one in sorted((tree / "tests").rglob("test_*.py")) if module in one.read_text()]
    done: set[Path] = set()
    rest = [one for name in EVERYTHING for one in sorted((tree / "tests" / name).rglob("test_*.py"))]
    known = mirrored.exists() or importing
    for stage in ([mirrored] if mirrored.exists() else [], importing, rest if whole or not known else []):
        if files := [one for one in stage if one not in done]:
            done.update(files)
            yield [str(one.relative_to(tree)) for one in files]


def killed_by(tree: Path, mutant: Mutant, *, whole: bool = False) -> str | None:
    """Return what turned red for a mutant, or None if all stayed green."""
    for files in stages(tree, mutant.path, whole=whole):
        if said := run_tests(tree, files):
            return said
    return None


def run_tests(tree: Path, files: Sequence[str]) -> str | None:
    """Run tests in a process of its own; return what ended it, or None if all passed."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        os._exit(_in_child(tree, files, writing))
    os.close(writing)
    signal.signal(signal.SIGALRM, lambda *_: os.killpg(child, signal.SIGKILL))
    signal.alarm(WALL_S)
    with os.fdopen(reading) as said:
        word = said.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    signal.alarm(0)
    if status < 0:
        return f"signal {-status}"
    return (word or f"status {status}") if status else None


def _in_child(tree: Path, files: Sequence[str], writing: int) -> int:
    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    os.chdir(tree)
    silent = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(silent, fd)
    first = First()
    status = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *files], plugins=[first])
    os.write(writing, first.red.encode())
    return int(status)


class First:
    """Notes the first test that is red; a plug-in of pytest."""

    def __init__(self) -> None:
        self.red = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Look at a test's report."""
        if report.failed and not self.red:
            self.red = report.nodeid


def copied(folder: Path) -> Path:
    """Return a copy of the tree in which files may be changed, and from which the harness is imported from now on."""
    tree = folder / "tree"
    ignored = shutil.ignore_patterns("__pycache__", ".venv*", ".git", "results", "*.egg-info", ".*_cache")
    shutil.copytree(ROOT, tree, ignore=ignored, symlinks=True)
    # A mutant of the same second and size would be taken for the file before it.
    sys.dont_write_bytecode = True
    sys.path[:] = [str(tree), *(one for one in sys.path if Path(one or ".").resolve() != ROOT)]
    for name in [one for one in sys.modules if one.partition(".")[0] == "harness"]:
        del sys.modules[name]
    return tree


def red_anyway(tree: Path, tests: set[str]) -> set[str]:
    """Return those of some tests that are red without any change: what they killed was killed by nothing."""
    found: set[str] = set()
    while tests - found and (red := run_tests(tree, sorted(tests - found))) in tests:
        found.add(red)
    return found


def changed(source: str, code: str) -> str:
    """Return the lines of a file that a mutant changes, indented."""
    lines = difflib.unified_diff(source.splitlines(), code.splitlines(), n=0, lineterm="")
    return "".join(f"\n    {line}" for line in lines if line[:1] in "+-" and line[:3] not in {"+++", "---"})


def main() -> None:
    """Draw, change, test, and print what survived."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("places", nargs="+", help="packages of harness/, or files, as disk or workload/agent.py")
    parser.add_argument("--mutants", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--skip", type=int, default=0, help="number of drawn mutants to leave out, from the first on")
    parser.add_argument("--whole", action="store_true", help="show each survivor to all tests of these packages too")
    arguments = parser.parse_args()
    for name in PRELOADED:
        __import__(name)
    ends: list[str | None] = []
    with TemporaryDirectory(prefix="raidproof-mutants-") as folder:
        tree = copied(Path(folder))
        drawn = draw(tree, arguments.places, arguments.mutants, arguments.seed)[arguments.skip :]
        for mutant in drawn:
            path = tree / mutant.path
            source = path.read_text()
            code = mutant.code(source) or source
            path.write_text(code)
            try:
                red = killed_by(tree, mutant, whole=arguments.whole)
            finally:
                path.write_text(source)
            print(f"{'killed' if red else 'SURVIVED'} {mutant} [{red or ''}]{changed(source, code)}", flush=True)
            ends.append(red)
        false = red_anyway(tree, {red for red in ends if red and "::" in red})
    for test in sorted(false):
        print(f"RED WITHOUT ANY CHANGE, so its kill is not counted: {test}")
    killed = sum(red is not None and red not in false for red in ends)
    print(f"{killed} of {len(drawn)} killed: {killed / max(1, len(drawn)):.0%}; seed {arguments.seed}; {load()}")


if __name__ == "__main__":
    main()
