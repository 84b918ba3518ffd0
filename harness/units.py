"""Sizes in bytes, read and written the way storage people write them."""

from typing import Annotated

from pydantic import BeforeValidator, ByteSize, TypeAdapter

from harness.errors import RequestError

SECTOR = 512
KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

_byte_size = TypeAdapter(ByteSize)


def parse_size(text: str | int) -> int:
    """Read ``"64KiB"``, ``"1MiB"`` or a plain number of bytes.

    Raises:
        RequestError: the text is no size.
    """
    try:
        return int(_byte_size.validate_python(text))
    except ValueError as error:
        raise RequestError(f"not a size: {text!r}", remedy="write for example 64KiB or 1MiB") from error


def format_size(size_bytes: int) -> str:
    """Write a size in the largest binary unit that divides it exactly."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size_bytes and size_bytes % unit == 0:
            return f"{size_bytes // unit}{name}"
    return f"{size_bytes}B"


Size = Annotated[int, BeforeValidator(parse_size)]
"""A pydantic field in bytes that also accepts ``"64KiB"``."""
