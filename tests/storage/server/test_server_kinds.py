"""A kind of NFS server is one file: no other module imports it, or branches on its name."""

import ast
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar, Literal

import pytest

import raidproof
from raidproof.plan.axes import axes
from raidproof.storage.server import SERVERS, ServerSpec
from raidproof.storage.server.server import DEFAULT
from raidproof.storage.stack import StackSpec

HOME = Path(raidproof.__file__).parent
KINDS = dict(SERVERS.items())
FILES = {Path(inspect.getfile(kind)) for kind in KINDS.values()}
MODULES = {kind.__module__ for kind in KINDS.values()}
CLASSES = {kind.__name__ for kind in KINDS.values()}
MAY_NAME = {
    # Offers the default kind to programs that build a request.
    HOME / "storage" / "server" / "__init__.py",
    # Two rules of plans are about wdelay and subtree_check, which only nfsd has.
    HOME / "plan" / "configuration.py",
}
SOURCES = [path for path in sorted(HOME.rglob("*.py")) if path not in FILES | MAY_NAME]


def branches(source: str) -> Iterator[str]:
    """Yield each import of a kind's file, and each comparison with a kind's name or class."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(module=str(module)) if module in MODULES:
                yield f"line {node.lineno}: imports {module}"
            case ast.Import(names=names) if any(one.name in MODULES for one in names):
                yield f"line {node.lineno}: imports a kind"
            case ast.Compare():
                values = [node.left, *node.comparators]
                constants = [one for value in values for one in ast.walk(value) if isinstance(one, ast.Constant)]
                yield from (f"line {node.lineno}: compares {one.value!r}" for one in constants if one.value in KINDS)
            case ast.MatchValue(value=ast.Constant(value=value)) if value in KINDS:
                yield f"line {node.lineno}: matches {value!r}"
            case ast.Subscript(slice=ast.Constant(value=value)) if value in KINDS:
                yield f"line {node.lineno}: looks up {value!r}"
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, kind]):
                named = {one.id for one in ast.walk(kind) if isinstance(one, ast.Name)}
                yield from (f"line {node.lineno}: isinstance {one}" for one in named & CLASSES)


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_no_other_file_knows_a_kind(path: Path) -> None:
    assert list(branches(path.read_text())) == []


@pytest.mark.parametrize(
    "source",
    [
        "from raidproof.storage.server.ganesha import Ganesha",
        "import raidproof.storage.server.knfsd",
        "if spec.type == 'ganesha': pass",
        "if spec.type in {'knfsd', 'other'}: pass",
        "match spec.type:\n    case 'ganesha': pass",
        "table['ganesha']",
        "isinstance(spec, GaneshaSpec)",
    ],
)
def test_each_form_of_a_branch_is_found(source: str) -> None:
    assert list(branches(source))


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_kind_survives_its_record(name: str) -> None:
    stack = StackSpec.model_validate({"array": {"level": 5, "members": ["a", "b", "c"]}, "export": {"type": name}})
    assert StackSpec.model_validate(stack.model_dump(mode="json")) == stack
    assert stack.export.type == name


def test_axes_of_one_kind_are_left_out_of_the_others() -> None:
    known = axes()
    for name, kind in (("wdelay", "knfsd"), ("recovery_backend", "ganesha"), ("nfs_commit", "ganesha")):
        for other in ("knfsd", "ganesha"):
            assert known[name].applies({"server": other}) is (other == kind), (name, other)
        assert known[name].applies({}) is (kind == DEFAULT)
    assert known["threads"].applies({"server": "ganesha"})


def test_an_axis_must_be_a_field() -> None:
    with pytest.raises(TypeError, match="axes without fields: speed"):

        class Odd(ServerSpec):
            axes: ClassVar[Mapping[str, str]] = {"speed": "how fast it is"}
            type: Literal["odd"] = "odd"

    assert "odd" not in SERVERS
