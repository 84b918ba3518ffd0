"""JSON Schemas of pydantic models: the docstrings of fields become descriptions, and each schema has an identifier."""

import ast
import inspect
import textwrap
from itertools import pairwise
from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def field_docstrings(model: type) -> dict[str, str]:
    """Return the docstrings below the fields of a model and of the classes it inherits from, by name of the field."""
    found: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        if issubclass(kind, BaseModel) and kind is not BaseModel:
            found |= _own_docstrings(kind)
    return found


def _own_docstrings(model: type) -> dict[str, str]:
    try:
        source = inspect.getsource(model)
    except (OSError, TypeError):  # a class without a source file
        return {}
    (definition,) = ast.parse(textwrap.dedent(source)).body
    body = definition.body if isinstance(definition, ast.ClassDef) else []
    return {
        field.target.id: inspect.cleandoc(text.value.value).replace("\n", " ")
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


class Described(GenerateJsonSchema):
    """A generator of JSON Schemas that describes each field by its docstring."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Return the schema of a model."""
        made = super().model_schema(schema)
        texts = field_docstrings(schema["cls"])
        for name, field in made.get("properties", {}).items():
            if name in texts:
                field.setdefault("description", texts[name])
        return made


def json_schema(
    kind: Any,
    *,
    name: str,
    title: str,
    version: int,
    mode: Literal["validation", "serialization"] = "serialization",
    generator: type[GenerateJsonSchema] = Described,
) -> dict[str, Any]:
    """Return the JSON Schema of a type that pydantic can serialize, with an identifier of name and version.

    ``mode``: whether the schema describes documents that raidproof reads (validation) or writes (serialization).
    """
    made = TypeAdapter(kind).json_schema(schema_generator=generator, mode=mode)
    head = {"$schema": DIALECT, "$id": f"urn:raidproof:schema:{name}:{version}", "title": title, "version": version}
    return head | {key: value for key, value in made.items() if key not in head}
