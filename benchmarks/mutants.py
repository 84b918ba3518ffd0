"""Mutation testing: makes small random changes of the code, each of which must make a test fail.

The changes are those of cosmic-ray's operators, and the removal of a statement. The program first draws a place in the
code and then one of the changes that are possible there, so that every place has the same probability. It makes each
change in a copy of the tree, and runs the tests that run the changed line (benchmarks/mutant_tests.py). Run it as
`python -m benchmarks.mutants disk crash`; docs/mutation.md has the set-up and the score.
"""

import argparse
import ast
import difflib
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import parso
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator, operator_names

from benchmarks.figures import load
from benchmarks.mutant_code import swaps, within
from benchmarks.mutant_tests import Noted, Stage, imported, noted, run_tests, stages

ROOT = Path(__file__).resolve().parent.parent
PRELOADED = ("hypothesis", "jinja2", "paramiko", "psutil", "pydantic", "pyroute2", "rich", "typer")
"""Libraries that are imported once, before any process is forked."""
SAME = ("Eq_Is", "Is_Eq", "NotEq_IsNot", "IsNot_NotEq")
"""Operators that do not change the result for small numbers, members of enumerations and None."""
CHECKED = ("frozen", "slots", "repr")
"""Arguments of a dataclass that affect only type checkers and readers."""
LOGGED = ("debug", "info", "warning", "error")
"""Methods of a logger, whose calls are not changed."""

Span = tuple[tuple[int, int], tuple[int, int]]
"""Begin and end of a part of a file, each as line and column."""


class DropStatement(Operator):  # type: ignore[misc]  # cosmic-ray has no types
    """Removes a statement with a side effect: a call, or an assignment to an attribute or item."""

    def mutation_positions(self, node: Any) -> Iterator[Span]:
        """Yield the span of the node, if it is a statement with a side effect."""
        if node.type == "simple_stmt" and _has_effect(node.children[0]):
            yield node.children[0].start_pos, node.children[0].end_pos

    def mutate(self, node: Any, index: int) -> Any:  # noqa: ARG002  an operator's signature
        """Replace the statement of a node by ``pass``."""
        first = node.children[0]
        node.children[0] = parso.parse(f"{first.get_first_leaf().prefix}pass").children[0]
        return node

    @classmethod
    def examples(cls) -> tuple[()]:
        """Return no examples; cosmic-ray requires this method."""
        return ()


@dataclass(frozen=True)
class Mutant:
    """One possible change of one file."""

    path: Path
    """Path of the file in the tree."""
    operator: str
    """Name of cosmic-ray's operator, or ``DropStatement``."""
    occurrence: int
    """Index of the place among all places in the file that the operator can change."""
    span: Span

    @property
    def line(self) -> int:
        """Number of the first changed line."""
        return self.span[0][0]

    def code(self, source: str) -> str | None:
        """Return the changed text of the file with the text ``source``; None if the change has no effect."""
        code: str | None = mutate_code(source, _operators()[self.operator], self.occurrence)
        return None if code == source else code

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.operator.removeprefix('core/')}"


def _has_effect(node: Any) -> bool:
    if node.type in {"atom_expr", "power"}:
        return bool(node.children[-1].type == "trailer" and node.children[-1].children[0].value == "(")
    return bool(node.type == "expr_stmt" and node.children[0].type in {"atom_expr", "power"})


def _operators() -> dict[str, Any]:
    found = {name: get_operator(name) for name in operator_names() if not name.endswith(("/NoOp", *SAME))}
    return {name: made() for name, made in found.items() if not made.arguments()} | {"DropStatement": DropStatement()}


def sites(path: Path, source: str) -> dict[Span, list[Mutant]]:
    """Return the possible changes of a file, by their span.

    Parts without effect on the running program are left out: annotations, parts only for type checkers, log messages,
    and the texts of errors.
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
    found = [one for node in ast.walk(ast.parse(source)) for one in _silent_in(node)]
    return [((one.lineno, one.col_offset), (one.end_lineno or 0, one.end_col_offset or 0)) for one in found]


def _silent_in(node: ast.AST) -> Iterator[ast.stmt | ast.expr | ast.keyword]:
    match node:
        case ast.AnnAssign(annotation=annotation) | ast.arg(annotation=ast.expr() as annotation):
            yield annotation
        case ast.FunctionDef(returns=ast.expr() as annotation):
            yield annotation
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            yield node
        case ast.ClassDef(decorator_list=decorators):
            keywords = [one for made in decorators if isinstance(made, ast.Call) for one in made.keywords]
            yield from (one for one in keywords if one.arg in CHECKED)
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="logger"), attr=attr))) if attr in LOGGED:
            yield node
        case ast.Raise(exc=ast.Call(args=texts)):
            yield from (one for one in texts if isinstance(one, ast.JoinedStr))


def draw(root: Path, places: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """Return up to ``count`` random mutants: draw a span of the code, then one of the changes possible there."""
    rng = Random(seed)  # noqa: S311  a seeded choice, no secret
    found: list[list[Mutant]] = []
    for place in places:
        at = root / "harness" / "raidproof" / place
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


@dataclass(frozen=True)
class MutatedTree:
    """A copy of the tree in which files are changed, and the lines that its tests run."""

    tree: Path
    known: Noted
    """Lines and CPU time of each test on unchanged code."""
    imported: dict[str, set[int]]
    """Lines that run during an import, by file."""

    def killed_by(self, mutant: Mutant, code: str, *, whole: bool = False) -> str | None:
        """Return the test that fails with the changed text ``code`` of a mutant's file, or None if all tests pass."""
        path = self.tree / mutant.path
        source = path.read_text()
        met = stages(self.tree, mutant.path, (mutant.span[0][0], mutant.span[1][0]), self.known, whole=whole)
        swapped = None if whole else swaps(str(path), source, code)
        if swapped and within(swapped, self.imported.get(str(mutant.path), set())):
            swapped = None
        todo = list(met)
        path.write_text(code)
        try:
            return next((red for one in todo if (red := run_tests(self.tree, one, self.known, code=swapped))), None)
        finally:
            path.write_text(source)

    def red_anyway(self, tests: set[str]) -> set[str]:
        """Return the tests among ``tests`` that also fail on unchanged code, so that their kills do not count."""
        found: set[str] = set()
        while rest := tests - found:
            stage = Stage(sorted({one.partition("::")[0] for one in rest}), frozenset(rest))
            if (red := run_tests(self.tree, stage, self.known, code=())) not in rest:
                break
            found.add(red)
        return found


def copied(folder: Path) -> Path:
    """Copy the tree into a folder, import the harness from the copy from now on, and return the copy's path."""
    tree = folder / "tree"
    shutil.copytree(ROOT, tree, ignore=left_out, symlinks=True)
    # Python would use the bytecode of the unchanged file for a mutant of the same second and size.
    sys.dont_write_bytecode = True
    others = (
        one for one in (in_copy(Path(one or "."), tree) for one in sys.path) if one not in {tree, tree / "harness"}
    )
    sys.path[:] = [str(one) for one in (tree, tree / "harness", *others)]
    for name in [one for one in sys.modules if one.partition(".")[0] == "raidproof"]:
        del sys.modules[name]
    return tree


def left_out(folder: str, names: list[str]) -> set[str]:
    """Return the names in a folder that the copy does not need; packages are named ``results``, too."""
    found = shutil.ignore_patterns("__pycache__", ".venv*", ".git", "*.egg-info", ".*_cache")(folder, names)
    return found | ({"results", "build"} & {*names} if Path(folder) == ROOT else set())


def in_copy(path: Path, tree: Path) -> Path:
    """Return the same folder in the copy ``tree`` of the tree; a folder outside, or of an environment, as it is.

    PYTHONPATH may name folders of the tree: without this change, tests would import unchanged files from there.
    """
    path = path.resolve()
    below = path.relative_to(ROOT) if path.is_relative_to(ROOT) else None
    return path if below is None or (below.parts[:1] and below.parts[0].startswith(".venv")) else tree / below


def changed(source: str, code: str) -> str:
    """Return the difference between two texts of a file, without context, as indented lines."""
    lines = difflib.unified_diff(source.splitlines(), code.splitlines(), n=0, lineterm="")
    return "".join(f"\n    {line}" for line in lines if line[:1] in "+-" and line[:3] not in {"+++", "---"})


def main() -> None:
    """Draw mutants, run their tests, and print the mutants that survived."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "places", nargs="+", help="rooms or files of the package, for example: disk guest/ledger_writer.py"
    )
    parser.add_argument("--mutants", type=int, default=100, help="number of mutants to draw")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--skip", type=int, default=0, help="number of drawn mutants to skip at the beginning")
    parser.add_argument(
        "--only", type=int, nargs="+", help="test only the drawn mutants with these numbers, from 1 on"
    )
    parser.add_argument("--noted", type=Path, help="file that stores which test runs which line, for later runs")
    parser.add_argument("--whole", action="store_true", help="run all tests of these packages on each survivor")
    arguments = parser.parse_args()
    for name in PRELOADED:
        __import__(name)
    ends: list[str | None] = []
    with TemporaryDirectory(prefix="mutants-") as folder:
        tree = copied(Path(folder))
        known = noted(tree, arguments.noted and arguments.noted.absolute())
        copy = MutatedTree(tree, known, imported(tree))
        drawn = draw(tree, arguments.places, arguments.mutants, arguments.seed)
        chosen = arguments.only or range(arguments.skip + 1, len(drawn) + 1)
        for number in chosen:
            mutant = drawn[number - 1]
            source = (tree / mutant.path).read_text()
            code = mutant.code(source) or source
            red = copy.killed_by(mutant, code, whole=arguments.whole)
            word = "killed" if red else "SURVIVED"
            print(f"{number} {word} {mutant} [{red or ''}]{changed(source, code)}", flush=True)
            ends.append(red)
        false = copy.red_anyway({red for red in ends if red and "::" in red})
    for test in sorted(false):
        print(f"FAILS ON UNCHANGED CODE, so its kills are not counted: {test}")
    killed = sum(red is not None and red not in false for red in ends)
    print(f"{killed} of {len(ends)} killed: {killed / max(1, len(ends)):.0%}; seed {arguments.seed}; {load()}")


if __name__ == "__main__":
    main()
