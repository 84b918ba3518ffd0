"""Kinds register themselves, from a folder of the package or from an entry point."""

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import pytest

from raidproof.core import registry as module
from raidproof.core.errors import RequestError, RigError
from raidproof.core.layer import Spec
from raidproof.core.registry import OneOf, Registry, register_default

KINDS: Registry[type["Shape"]] = Registry("shape", "shapes", "raidproof.shapes")


class Shape(Spec):
    def __init_subclass__(cls, **_: object) -> None:
        KINDS.add(cls.name, cls)

    name: ClassVar[str] = ""


class Round(Shape):
    name = "round"
    type: Literal["round"] = "round"
    radius: int = 1


class Drawing(Spec):
    shape: Annotated[Shape, OneOf(KINDS, default="round")] = Round()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "shapes").mkdir()
    (tmp_path / "shapes" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(KINDS, "_loaded", False)
    for name in ("shapes", "shapes.square"):
        monkeypatch.delitem(__import__("sys").modules, name, raising=False)
    return tmp_path / "shapes"


def test_a_file_in_the_folder_is_a_kind(folder: Path) -> None:
    (folder / "square.py").write_text(
        f"from {__name__} import KINDS\nclass Square: pass\nKINDS.add('square', Square)\n"
    )
    try:
        assert list(KINDS) == ["round", "square"]
        assert "square" in KINDS
        assert dict(KINDS.items())["round"] is Round
    finally:
        KINDS.remove("square")


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(RequestError, match=r"no shape is named 'ruond'; did you mean 'round'"):
        Drawing.model_validate({"shape": {"type": "ruond"}})


def test_a_model_of_a_kind_is_read_and_written_whole() -> None:
    drawing = Drawing.model_validate({"shape": {"type": "round", "radius": 3}})
    assert drawing.shape == Round(radius=3)
    assert drawing.model_dump(mode="json") == {"shape": {"type": "round", "radius": 3}}
    assert drawing.model_dump_json() == '{"shape":{"type":"round","radius":3}}'
    assert drawing.model_dump(exclude_unset=True) == {"shape": {"type": "round", "radius": 3}}
    assert Drawing.model_validate(drawing.model_dump()) == drawing
    assert Drawing(shape=Round(radius=2)).model_dump(exclude_defaults=True) == {"shape": {"radius": 2}}
    assert Drawing.model_validate({"shape": {}}) == Drawing()


@pytest.mark.parametrize(
    ("shape", "said"), [("round", "a shape must be a table with the key 'type'"), ({"radius": "x"}, "radius")]
)
def test_what_is_no_kind_is_refused(shape: object, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        Drawing.model_validate({"shape": shape})


def test_a_field_without_default_needs_the_name() -> None:
    class Strict(Spec):
        shape: Annotated[Shape, OneOf(KINDS)]

    with pytest.raises(RequestError, match=r"a shape needs the key 'type'; valid values: round"):
        Strict.model_validate({"shape": {"radius": 1}})


def test_two_kinds_of_one_name_are_refused() -> None:
    KINDS.add("round", Round)
    with pytest.raises(RequestError, match="two kinds of shape are named 'round'"):
        KINDS.add("round", Drawing)  # type: ignore[arg-type]


def test_an_entry_point_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("bad", "no_such_module_at_all:kind", "raidproof.shapes")
    monkeypatch.setattr(module, "entry_points", lambda group: [point] if group == "raidproof.shapes" else [])
    for _ in range(2):
        with pytest.raises(RigError, match=r"raidproof.shapes: no_such_module_at_all:kind of an unknown distribution"):
            KINDS["round"]


def test_a_model_is_registered_under_the_default_of_its_key() -> None:
    figures: Registry[type[Spec]] = Registry("figure", "shapes", "raidproof.figures")

    class Interface(Spec):
        type: str

    class Line(Interface):
        type: Literal["line"] = "line"
        length: int = 1

    register_default(figures, Interface)
    register_default(figures, Line, axes=["length"])
    assert dict(figures.items()) == {"line": Line}
    with pytest.raises(TypeError, match="Line has axes without fields: width"):
        register_default(figures, Line, axes=["length", "width"])
