"""No rule of the judge reads a sentence: text for people can change without a verdict changing."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import raidproof

HOME = Path(raidproof.__file__).parent
JUDGES = ("verdict", "crash", "record", "core/blame.py")
PROSE = {"reason", "reasons", "said", "message", "proof", "sentence", "wording", "explanation", "detail"}
"""Names of fields and variables that hold text for people."""
METHODS = {"startswith", "endswith", "find", "index", "count", "removeprefix", "partition", "split"}
PATTERNS = {"match", "search", "fullmatch", "findall"}


def judges() -> list[Path]:
    found = (HOME / name for name in JUDGES)
    return sorted(path for one in found for path in (one.rglob("*.py") if one.is_dir() else [one]))


def names_prose(node: ast.expr) -> bool:
    """Whether an expression is a field or variable of text for people, or is made of one."""
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name in PROSE
        case ast.Call(func=ast.Name(id="str"), args=[inner]):
            return names_prose(inner) or (isinstance(inner, ast.Attribute) and inner.attr == "blame")
        case ast.Subscript(value=inner):
            return names_prose(inner)
        case _:
            return False


def comparisons(source: str) -> Iterator[int]:
    """Yield the lines in which text for people is compared with other text."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Compare(left=left, ops=ops, comparators=right):
                texts = not any(isinstance(op, ast.Is | ast.IsNot) for op in ops)
                empty = any(isinstance(one, ast.Constant) and one.value in ("", None) for one in (left, *right))
                if texts and not empty and any(map(names_prose, (left, *right))):
                    yield node.lineno
            case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in METHODS and names_prose(value):
                yield node.lineno
            case ast.Call(func=ast.Attribute(attr=name), args=[_, text, *_]) if name in PATTERNS and names_prose(text):
                yield node.lineno


@pytest.mark.parametrize("path", judges(), ids=lambda path: str(path.relative_to(HOME)))
def test_no_text_for_people_is_compared(path: Path) -> None:
    assert list(comparisons(path.read_text())) == []


@pytest.mark.parametrize(
    "line",
    [
        'verdict.reason == "lost"',
        '"lost" in verdict.reason',
        "one.reason in other.reason",
        'verdict.reason.startswith("lost")',
        're.match("lost", verdict.reason)',
        'str(verdict.blame) != "the disks"',
        'reasons[0] == "x"',
    ],
)
def test_a_comparison_is_found(line: str) -> None:
    assert list(comparisons(line)) == [1]


@pytest.mark.parametrize("line", ['verdict.reason != ""', "verdict.outcome == FAIL", "verdict.reason is None"])
def test_what_reads_no_text_is_not_found(line: str) -> None:
    assert list(comparisons(line)) == []
