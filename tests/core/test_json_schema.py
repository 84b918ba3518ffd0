from pydantic import BaseModel

from raidproof.core.json_schema import field_docstrings, json_schema


class Above(BaseModel):
    """A model."""

    first: int
    """The first field,
    in two lines."""
    second: int = 0


class Below(Above):
    """A model that inherits."""

    second: int = 0
    """The second field."""


def test_docstrings_of_fields_are_found_in_all_classes() -> None:
    assert field_docstrings(Above) == {"first": "The first field, in two lines."}
    assert field_docstrings(Below) == {"first": "The first field, in two lines.", "second": "The second field."}


def test_a_class_without_source_has_no_docstrings() -> None:
    assert field_docstrings(type("Made", (BaseModel,), {"__module__": __name__})) == {}


def test_the_head_of_a_schema() -> None:
    made = json_schema(Below, name="below", title="A title", version=3)
    assert list(made)[:4] == ["$schema", "$id", "title", "version"]
    assert (made["$id"], made["title"], made["version"]) == ("urn:raidproof:schema:below:3", "A title", 3)
    assert made["properties"]["second"]["description"] == "The second field."
