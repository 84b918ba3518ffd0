"""A kind of NFS server is one file: no other module imports it, or branches on its name."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

import pytest

import raidproof
from raidproof.plan.axes import axes
from raidproof.storage.server import SERVERS, ServerSpec
from raidproof.storage.server.server import DEFAULT
from raidproof.storage.stack import StackSpec
from tests.kinds import Kinds

HOME = Path(raidproof.__file__).parent
KINDS = dict(SERVERS.items())
OURS = Kinds(KINDS)
MAY_NAME = {
    # Offers the default kind to programs that build a request.
    HOME / "storage" / "server" / "__init__.py",
    # Two rules of plans are about wdelay and subtree_check, which only nfsd has.
    HOME / "plan" / "configuration.py",
}
SOURCES = [path for path in sorted(HOME.rglob("*.py")) if path not in OURS.files | MAY_NAME]


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_no_other_file_knows_a_kind(path: Path) -> None:
    assert list(OURS.branches(path.read_text())) == []


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
    assert list(OURS.branches(source))


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_kind_survives_its_record(name: str) -> None:
    stack = StackSpec.model_validate({"array": {"level": 5, "members": ["a", "b", "c"]}, "export": {"type": name}})
    assert StackSpec.model_validate(stack.model_dump(mode="json")) == stack
    assert stack.export.type == name


def test_axes_of_one_kind_are_left_out_of_the_others() -> None:
    known = axes()
    for name, kind in (("wdelay", "knfsd"), ("io_cache_write", "knfsd"), ("nfs_commit", "ganesha")):
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
