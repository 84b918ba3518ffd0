"""`docs/report-says.md` has an entry for each word that a report shows, and no entry that no report shows."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from raidproof.core.blame import Culprit
from raidproof.monitor.bottleneck import Limit
from raidproof.record.comparison import PairFinding
from raidproof.record.outcome import Outcome
from raidproof.verdict.cell import SafetyWord
from raidproof.verdict.change.host import HOST_DIFFERS, NO_REFERENCE, OTHER_VERSION
from raidproof.verdict.check import CHECKS
from raidproof.verdict.checks.crash_state import OfState

HOME = Path(__file__).resolve().parents[2]
PAGE = (HOME / "docs" / "report-says.md").read_text()
CODE = HOME / "harness" / "raidproof"


def rows(title: str, page: str = PAGE) -> list[str]:
    """Return the first column of the table below a title."""
    part = re.split(r"^## ", page.partition(f"\n## {title}\n")[2], flags=re.MULTILINE)[0]
    table = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")]
    return [row[0] for row in table[1:]]


@pytest.mark.parametrize(
    ("title", "words"),
    [
        ("Verdicts", Outcome),
        ("Safety", SafetyWord),
        ("Blame", Culprit),
        ("Limits of a cell", Limit),
        ("Results of a comparison", PairFinding),
    ],
)
def test_every_word_has_an_entry(title: str, words: type[Outcome]) -> None:
    assert set(rows(title)) == {word.value for word in words}


def part_of(part: ast.expr) -> str:
    """Return a part of an f-string: a text, the name of a constant, or a sign for any other value."""
    if isinstance(part, ast.Constant):
        return str(part.value)
    value = part.value if isinstance(part, ast.FormattedValue) else part
    return value.id if isinstance(value, ast.Name) and value.id.isupper() else "\0"


def literals(node: ast.AST) -> Iterator[str]:
    """Yield the texts below a node, those of an f-string joined with a sign for each value."""
    for one in ast.iter_child_nodes(node):
        if isinstance(one, ast.JoinedStr):
            yield "".join(map(part_of, one.values))
        elif isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield one.value
        else:
            yield from literals(one)


def sentences(file: str, *functions: str) -> list[str]:
    """Return the sentences that functions of a file make, without docstrings and single words."""
    tree = ast.parse((CODE / file).read_text())
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name in functions]
    assert {node.name for node in found} == set(functions)
    texts = [
        text
        for node in found
        for text in literals(node)
        if text != ast.get_docstring(node, clean=False)
        and len(re.findall(r"[a-z]{2,}", text)) >= (1 if "\0" in text else 3)
    ]
    assert texts
    return texts


def uncovered(entries: list[str], texts: list[str]) -> tuple[list[str], list[str]]:
    """Return the texts that contain no entry, and the entries that no text contains."""
    return (
        [text for text in texts if not any(entry in text for entry in entries)],
        [entry for entry in entries if not any(entry in text for text in texts)],
    )


@pytest.mark.parametrize(
    ("title", "texts"),
    [
        ("Warnings about a value", [*sentences("verdict/cell.py", "flags"), " less than min_seconds, "]),
        ("Why a cell has no rank", sentences("verdict/cell.py", "why_no_rank", "why_not_of_the_hardware")),
        ("Cells of stored runs that are undecided", [NO_REFERENCE, OTHER_VERSION, HOST_DIFFERS]),
        (
            "Differences from a deployed server",
            [
                *sentences("storage/array/array.py", "caveats"),
                *sentences("storage/member/crypt.py", "caveats"),
                *sentences("storage/volume/crypt.py", "caveats"),
                *(text for text in sentences("storage/tuning.py", "caveats") if "not the default" in text),
                *(text for text in sentences("storage/server/server.py", "caveats") if "not the default" in text),
            ],
        ),
    ],
)
def test_every_warning_has_an_entry(title: str, texts: list[str]) -> None:
    assert uncovered(rows(title), texts) == ([], [])


def test_a_warning_without_an_entry_is_found() -> None:
    assert uncovered(["is slow", "is gone"], ["the disk is slow", "the disk is new"]) == (
        ["the disk is new"],
        ["is gone"],
    )


def checkers() -> set[str]:
    """Return the names of the checks that the judge's code makes, without the place where a check looked."""
    trees = [ast.parse(path.read_text()) for path in sorted((CODE / "verdict").rglob("*.py"))]
    constants = {target: text for tree in trees for target, text in every_assignment(tree)}
    names: set[str] = set()
    for tree in trees:
        mine = dict(every_assignment(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg == "checker":
                value = node.value
                if isinstance(value, ast.Name) and value.id not in mine:
                    names.add(constants.get(value.id, ""))
                elif isinstance(value, ast.Name):
                    names |= {text for target, text in every_assignment(tree) if target == value.id}
                else:
                    names |= set(literals(ast.Expr(value)))
    # The checks of a crash state have the name of a check of a crash test.
    names |= {kind.promise for _, kind in CHECKS.items() if issubclass(kind, OfState)}
    plain = {re.sub(r", seen \0$", "", name) for name in names}
    plain = {constants.get(name, name) for name in plain}
    return {name.replace("\0, ", "") for name in plain if name not in {"", "\0"}}


def every_assignment(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of all assignments of a module."""
    for node in ast.walk(tree):
        yield from assigned(node)


def assigned(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the names and the texts that an assignment gives them."""
    if not isinstance(node, ast.Assign):
        return
    for target in node.targets:
        pairs = [(target, node.value)]
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = list(zip(target.elts, node.value.elts, strict=False))
        for name, value in pairs:
            text = next(iter(literals(ast.Expr(value))), None)
            if isinstance(name, ast.Name) and text is not None and isinstance(value, ast.Constant | ast.JoinedStr):
                yield name.id, text


def test_every_check_has_an_entry() -> None:
    entries = set(rows("Checks of a crash test"))
    assert {"kernel log", "file system", "after recovery"} <= checkers()
    assert checkers() - entries == set()


def doctor_checks() -> set[str]:
    """Return the names of doctor's checks that are texts, with the alternatives of a check's name."""
    tree = ast.parse((CODE / "run" / "doctor.py").read_text())
    names = {text for target, text in every_assignment(tree) if target == "name"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "HostCheck" and node.args:
            names |= {text for text in literals(ast.Expr(node.args[0])) if "\0" not in text}
    return names


def test_every_check_of_doctor_has_an_entry() -> None:
    entries = {part for row in rows("doctor") for part in [row, *row.split(", ")]}
    assert len(doctor_checks()) > 10
    assert {name for name in doctor_checks() if len(name) > 1} - entries == set()
