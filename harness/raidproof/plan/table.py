"""Tables and values of a plan file: how keys are checked, values are read and written, and mistakes are reported."""

import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WrapValidator, model_validator
from pydantic_core import ErrorDetails

from raidproof.core.errors import RequestError, nearest
from raidproof.core.layer import one_of
from raidproof.core.units import format_size, parse_duration, parse_rate, parse_size

Read = TypeVar("Read")

Value = str | int | bool
"""One value of an axis: a size in bytes, a number, a switch, or a word."""
Placement = Literal["outer", "spread"]
"""Where on the real disk's surface the few bytes of the simulated one lie."""


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
    """Return all errors of a document, each with its key."""
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


def read_size(value: Any) -> int:
    """Read a size in bytes.

    Raises:
        RequestError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise RequestError(f"not a size: {value!r}", remedy="write for example 64KiB or 1MiB")
    return parse_size(value)


def read_number(value: Any) -> int:
    """Read a whole number.

    Raises:
        RequestError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise RequestError(f"not a whole number: {value!r}")
    return value


def read_switch(value: Any) -> bool:
    """Read true or false.

    Raises:
        RequestError: it is neither.
    """
    if not isinstance(value, bool):
        raise RequestError(f"neither true nor false: {value!r}")
    return value


def read_text(value: Any) -> str:
    """Read a word that the layer itself judges; versions may be written as numbers.

    Raises:
        RequestError: it is no word.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise RequestError(f"not a word: {value!r}")
    return str(value)


def word_of(*words: str) -> Callable[[Any], str]:
    """Read one of these words; its mistakes are refused at once, with the nearest valid one."""
    return lambda value: one_of("value", read_text(value), words)


def read_sync(value: Any) -> bool:
    """Read ``"sync"`` or ``"async"``: whether it is ``sync``.

    Raises:
        RequestError: it is neither.
    """
    return one_of("value", read_text(value), ("sync", "async")) == "sync"


def write_sync(value: Value) -> str:
    """Write what ``read_sync`` reads."""
    return "sync" if value else "async"


def write_size(value: Value) -> str:
    """Write a size."""
    return format_size(int(value))


def write_plain(value: Value) -> str:
    """Write a number, a switch or a word."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_bandwidth(value: Any) -> float:
    """Read ``"300MB/s"`` in 10^6 bytes a second.

    Raises:
        RequestError: it is no bandwidth.
    """
    if not isinstance(value, str) or (bits_per_s := parse_rate(value)) == 0:
        raise RequestError(f"not a bandwidth: {value!r}", remedy="write for example 300MB/s")
    return bits_per_s / 8e6


def read_seconds(value: Any) -> float:
    """Read a number of seconds, or ``"1.5s"``.

    Raises:
        RequestError: it is neither.
    """
    if isinstance(value, str):
        return parse_duration(value) / 1e9
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RequestError(f"not a duration: {value!r}", remedy="write for example 5 or 5s")
    return float(value)


def read_whole_seconds(value: Any) -> int:
    """Read a whole number of seconds, or ``"10s"``.

    Raises:
        RequestError: it is neither.
    """
    seconds = read_seconds(value)
    if not seconds.is_integer():
        raise RequestError(f"not a whole number of seconds: {value!r}")
    return int(seconds)


def write_seconds(value: Value) -> str:
    """Write what ``read_whole_seconds`` reads."""
    return f"{value}s"


def require_known(what: str, word: str, known: Iterable[str]) -> None:
    """Make sure that there is such a thing.

    Raises:
        RequestError: there is not; the message names the nearest.
    """
    words = list(known)
    if word not in words:
        raise RequestError(f"no such {what} as {word!r}; {nearest(word, words)}")


Bytes = Annotated[int, reader(read_size), Field(ge=0)]
"""A field in bytes that also accepts ``"64KiB"``."""
Bandwidth = Annotated[float, reader(read_bandwidth)]
"""A field in 10^6 bytes a second that accepts ``"300MB/s"``."""
Seconds = Annotated[float, reader(read_seconds)]
"""A field in seconds that also accepts ``"2s"``."""
