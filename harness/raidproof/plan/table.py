"""A table of a plan: how its keys are checked, and how a mistake in it is told: where, what, and the nearest valid."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, WrapValidator, model_validator
from pydantic_core import ErrorDetails

from raidproof.core.errors import RequestError, nearest

Read = TypeVar("Read")


class Table(BaseModel):
    """A part of a plan: frozen, without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        if unknown := [str(key) for key in data if key not in cls.model_fields]:
            raise ValueError("; ".join(f"no such key as {key!r}; {nearest(key, cls.model_fields)}" for key in unknown))
        return data


def refusal(read: Callable[..., Read], *arguments: Any) -> Read:
    """Call what raises RequestError; the error becomes one that pydantic gives a place in the document.

    Raises:
        ValueError: what was asked cannot be.
    """
    try:
        return read(*arguments)
    except RequestError as error:
        raise ValueError(str(error)) from error


def reader(read: Callable[[Any], Any]) -> BeforeValidator:
    """Read a field with a function that raises RequestError."""
    return BeforeValidator(lambda value: refusal(read, value))


placed = WrapValidator(lambda value, handler: refusal(handler, value))
"""Give a place to what a field of another layer's type refuses."""


def reasons(error: ValidationError) -> str:
    """Tell all that is wrong with a document, each with the key where it stands."""
    return "; ".join(_reason(detail) for detail in error.errors())


def _reason(detail: ErrorDetails) -> str:
    where = "".join(f"[{part + 1}]" if isinstance(part, int) else f".{part}" for part in detail["loc"]).lstrip(".")
    context = detail.get("ctx", {})
    match detail["type"]:
        case "value_error":
            said = str(context["error"])
        case "missing":
            said = "is missing"
        case "literal_error":
            words = re.findall(r"'([^']*)'", str(context["expected"]))
            said = f"no such thing as {detail['input']!r}; {nearest(str(detail['input']), words)}"
        case "union_tag_invalid":
            tags = str(context["expected_tags"]).replace("'", "").split(", ")
            said = f"no such thing as {context['tag']!r}; {nearest(str(context['tag']), tags)}"
        case "union_tag_not_found":
            said = f"{str(context['discriminator']).strip(chr(39))} is missing"
        case "extra_forbidden":
            said = "no such key"
        case _:
            said = f"{detail['msg']}, not {detail['input']!r}"
    return f"{where}: {said}" if where else said
