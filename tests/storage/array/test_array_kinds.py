"""A kind of array, and a kind of member layer, is one file: no other module imports it, or branches on its name."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

import pytest

import raidproof
from raidproof.core.errors import RequestError
from raidproof.plan.axes import axes
from raidproof.storage.array import ARRAYS, ArraySpec, MdSpec
from raidproof.storage.member import MEMBER_LAYERS, MemberLayer
from raidproof.storage.stack import StackSpec
from raidproof.storage.volume import VOLUMES
from tests.kinds import Kinds

HOME = Path(raidproof.__file__).parent
KINDS: dict[str, type[ArraySpec] | type[MemberLayer]] = {**dict(ARRAYS.items()), **dict(MEMBER_LAYERS.items())}
OURS = Kinds(
    KINDS, ambiguous=frozenset({"disk"}), more_classes=frozenset({"MdArray", "LvmArray", "BtrfsRaid", "ZfsRaid"})
)
"""All names except ``disk``, which is no layer and also another word."""
MAY_IMPORT = {
    HOME / "storage" / "array" / "__init__.py",  # offers the default kind to programs that build a request
    HOME / "storage" / "array" / "md.py",  # the default member layer
    # The file systems of the same name as their arrays.
    HOME / "storage" / "filesystem" / "btrfs.py",
    HOME / "storage" / "filesystem" / "zfs.py",
}
OTHERS = Kinds(dict(VOLUMES.items())).files
"""Kinds of another family, of which one has the same name as a member layer: ``crypt``."""
READERS = {"existing", "provider", "report"}
"""Rooms that read or write the texts of other programs, in which words such as ``crypt`` have other meanings."""
SOURCES = [path for path in sorted(HOME.rglob("*.py")) if path.relative_to(HOME).parts[0] not in READERS]


@pytest.mark.parametrize("path", [path for path in SOURCES if path not in OURS.files | OTHERS | MAY_IMPORT], ids=str)
def test_no_other_file_knows_a_kind(path: Path) -> None:
    assert list(OURS.branches(path.read_text())) == []


@pytest.mark.parametrize(
    "source",
    [
        "from raidproof.storage.array.lvm import GROUP",
        "import raidproof.storage.member.integrity",
        "if spec.type == 'lvm': pass",
        "if spec.type in {'md', 'other'}: pass",
        "match spec.type:\n    case 'crypt': pass",
        "table['lvm']",
        "isinstance(spec, MdSpec)",
        "isinstance(spec, (str, LvmSpec))",
    ],
)
def test_each_form_of_a_branch_is_found(source: str) -> None:
    assert list(OURS.branches(source))


def test_a_request_without_a_kind_is_for_md() -> None:
    stack = StackSpec.model_validate({"array": {"level": 5, "members": ["a", "b", "c"]}})
    assert isinstance(stack.array, MdSpec)
    assert StackSpec.model_validate(stack.model_dump(mode="json")) == stack


@pytest.mark.parametrize("name", sorted(ARRAYS))
def test_a_kind_survives_its_record(name: str) -> None:
    filesystem = {"type": ARRAYS[name].only_filesystem or "xfs"}
    array = {"type": name, "level": 5, "members": ["a", "b", "c"]}
    stack = StackSpec.model_validate({"array": array, "filesystem": filesystem})
    assert StackSpec.model_validate(stack.model_dump(mode="json")) == stack
    assert stack.array.type == name


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    with pytest.raises(RequestError, match=r"no raid is named 'raidframe'.*lvm"):
        StackSpec.model_validate({"array": {"type": "raidframe", "members": ["a", "b"]}})


def test_axes_of_md_are_left_out_of_other_kinds() -> None:
    known = axes()
    for name in ("layout", "legs", "bitmap", "bitmap_chunk", "consistency_policy", "spares", "stripe_cache_size"):
        assert not known[name].applies({"raid": "lvm", "level": "5", "layout": "left-symmetric"}), name
    assert known["bitmap"].applies({"level": "5"})
    assert known["integrity"].applies({"raid": "lvm"})
    assert not known["integrity"].applies({})
    assert known["member_layer"].applies({})
    assert not known["member_layer"].applies({"raid": "lvm"})


def test_an_axis_must_be_a_field() -> None:
    with pytest.raises(TypeError, match="axes without fields: speed"):

        class Odd(MdSpec):
            axes: ClassVar[Mapping[str, str]] = {"speed": "how fast it is"}
            type: Literal["odd"] = "odd"  # type: ignore[assignment]

    assert "odd" not in ARRAYS
