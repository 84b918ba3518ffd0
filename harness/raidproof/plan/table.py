"""Tables and values of a plan file: validation of keys, parsers and formatters of values, error messages."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    WrapValidator,
    model_validator,
)
from pydantic_core import ErrorDetails

from raidproof.core.errors import RequestError, nearest
from raidproof.core.layer import one_of
from raidproof.core.units import (
    DURATION_SCHEMA,
    RATE_SCHEMA,
    SIZE_SCHEMA,
    format_size,
    parse_duration,
    parse_rate,
    parse_size,
)

Read = TypeVar("Read")

Value = str | int | bool
"""One value of an axis: a size in bytes, a number, a switch, or a word."""
Placement = Literal["outer", "spread"]
"""Which part of the real drive a simulated disk, which is smaller than the drive, occupies."""


class Table(BaseModel):
    """Base class of the tables of a plan: immutable; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        if unknown := [str(key) for key in data if key not in cls.model_fields]:
            raise ValueError("; ".join(f"unknown key {key!r}; {nearest(key, cls.model_fields)}" for key in unknown))
        return data


def refusal(read: Callable[..., Read], *arguments: Any) -> Read:
    """Call a function and turn its RequestError into a ValueError, to which pydantic adds the key in the document.

    Raises:
        ValueError: the function raised RequestError.
    """
    try:
        return read(*arguments)
    except RequestError as error:
        raise ValueError(str(error)) from error


def reader(read: Callable[[Any], Any]) -> BeforeValidator:
    """Return a pydantic validator that parses a field with a function that raises RequestError."""
    return BeforeValidator(lambda value: refusal(read, value))


placed = WrapValidator(lambda value, handler: refusal(handler, value))
"""A pydantic validator for a field whose own type raises RequestError: the message gets the key in the document."""


def reasons(error: ValidationError) -> str:
    """Return all validation errors of a plan as text, each with the key in the document."""
    return "; ".join(_reason(detail) for detail in error.errors())


def _reason(detail: ErrorDetails) -> str:
    where = "".join(f"[{part + 1}]" if isinstance(part, int) else f".{part}" for part in detail["loc"]).lstrip(".")
    context = detail.get("ctx", {})
    match detail["type"]:
        case "value_error":
            reason = str(context["error"])
        case "missing":
            reason = "is missing"
        case "literal_error":
            words = re.findall(r"'([^']*)'", str(context["expected"]))
            reason = f"unknown value {detail['input']!r}; {nearest(str(detail['input']), words)}"
        case "union_tag_invalid":
            tags = str(context["expected_tags"]).replace("'", "").split(", ")
            reason = f"unknown value {context['tag']!r}; {nearest(str(context['tag']), tags)}"
        case "union_tag_not_found":
            reason = f"{str(context['discriminator']).strip(chr(39))} is missing"
        case "extra_forbidden":
            reason = "unknown key"
        case _:
            reason = f"{detail['msg']}, not {detail['input']!r}"
    return f"{where}: {reason}" if where else reason


def read_size(value: Any) -> int:
    """Return a size in bytes.

    Raises:
        RequestError: the value is not a size such as ``64KiB``.
    """
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise RequestError(f"not a size: {value!r}", remedy="write for example 64KiB or 1MiB")
    return parse_size(value)


def read_number(value: Any) -> int:
    """Return the value if it is a whole number.

    Raises:
        RequestError: the value is not a whole number.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise RequestError(f"not a whole number: {value!r}")
    return value


def read_switch(value: Any) -> bool:
    """Return the value if it is true or false.

    Raises:
        RequestError: the value is neither true nor false.
    """
    if not isinstance(value, bool):
        raise RequestError(f"neither true nor false: {value!r}")
    return value


def read_text(value: Any) -> str:
    """Return a text or number as text, as in ``vers = 4.2``. The layer of the stack validates the text.

    Raises:
        RequestError: the value is neither text nor a number.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise RequestError(f"not text: {value!r}")
    return str(value)


@dataclass(frozen=True)
class WordOf:
    """A function that accepts only these words; its error names the nearest valid word."""

    words: tuple[str, ...]

    def __call__(self, value: Any) -> str:
        """Return the value as text.

        Raises:
            RequestError: the value is none of the words.
        """
        return one_of("value", read_text(value), self.words)


def word_of(*words: str) -> WordOf:
    """Return a function that accepts only these words."""
    return WordOf(words)


def read_sync(value: Any) -> bool:
    """Return true for ``"sync"`` and false for ``"async"``.

    Raises:
        RequestError: the value is neither ``"sync"`` nor ``"async"``.
    """
    return one_of("value", read_text(value), ("sync", "async")) == "sync"


def write_sync(value: Value) -> str:
    """Return ``"sync"`` for true and ``"async"`` for false."""
    return "sync" if value else "async"


def write_size(value: Value) -> str:
    """Return a size in bytes as text with a unit."""
    return format_size(int(value))


def write_plain(value: Value) -> str:
    """Return a number, a word, or true or false as text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_bandwidth(value: Any) -> float:
    """Return a bandwidth, written as ``"300MB/s"``, in 10^6 bytes per second.

    Raises:
        RequestError: the value is not a bandwidth such as ``"300MB/s"``.
    """
    if not isinstance(value, str) or (bits_per_s := parse_rate(value)) == 0:
        raise RequestError(f"not a bandwidth: {value!r}", remedy="write for example 300MB/s")
    return bits_per_s / 8e6


def read_seconds(value: Any) -> float:
    """Return a duration in seconds, written as a number or as ``"1.5s"``.

    Raises:
        RequestError: the value is not a duration such as ``"5s"``.
    """
    if isinstance(value, str):
        return parse_duration(value) / 1e9
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RequestError(f"not a duration: {value!r}", remedy="write for example 5 or 5s")
    return float(value)


def read_whole_seconds(value: Any) -> int:
    """Return a duration in whole seconds, written as a number or as ``"10s"``.

    Raises:
        RequestError: the value is not a duration, or not a whole number of seconds.
    """
    seconds = read_seconds(value)
    if not seconds.is_integer():
        raise RequestError(f"not a whole number of seconds: {value!r}")
    return int(seconds)


def write_seconds(value: Value) -> str:
    """Return a number of seconds as text: ``10s``."""
    return f"{value}s"


SECONDS_SCHEMA = {**DURATION_SCHEMA, "type": ["number", "string"], "examples": ["5s"]}
"""JSON Schema of the values that `read_seconds` accepts."""
Bytes = Annotated[int, reader(read_size), Field(ge=0), WithJsonSchema(SIZE_SCHEMA, mode="validation")]
"""A field in bytes that also accepts ``"64KiB"``."""
Bandwidth = Annotated[
    float, reader(read_bandwidth), WithJsonSchema({**RATE_SCHEMA, "type": "string"}, mode="validation")
]
"""A field in 10^6 bytes per second that accepts ``"300MB/s"``."""
Seconds = Annotated[float, reader(read_seconds), WithJsonSchema(SECONDS_SCHEMA, mode="validation")]
"""A field in seconds that also accepts ``"2s"``."""
