"""How the values of a plan are read and written: each has one form, so that equal values are seen to be equal."""

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal

from pydantic import Field

from raidproof.core.errors import RequestError, nearest
from raidproof.core.layer import one_of
from raidproof.core.units import format_size, parse_duration, parse_rate, parse_size
from raidproof.plan.table import reader

Value = str | int | bool
"""One value of an axis: a size in bytes, a number, a switch, or a word."""


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
Placement = Literal["outer", "spread"]
"""Where on the real disk's surface the few bytes of the simulated one lie."""
