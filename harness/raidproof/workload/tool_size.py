"""Sizes the way fio and dd read them: a bare letter is binary, 4k is 4096 bytes."""

import re
from typing import Annotated

from pydantic import BeforeValidator

from raidproof.core.errors import RequestError
from raidproof.core.units import GIB, KIB, MIB, parse_size

_LETTERS = {"k": KIB, "m": MIB, "g": GIB, "t": 1024 * GIB}


def parse_tool_size(text: str | int) -> int:
    """Read ``4k``, ``1M`` or ``4g`` as the tools do, and all else as everywhere (``64KiB``, ``64kB``).

    Raises:
        RequestError: the text is no size.
    """
    if isinstance(text, str) and (match := re.fullmatch(r"(\d+)([kmgt])", text.strip(), re.IGNORECASE)):
        return int(match.group(1)) * _LETTERS[match.group(2).lower()]
    # pydantic reads as far as it understands: fio's 50% would be 50 bytes.
    if isinstance(text, str) and not re.fullmatch(r"[\w.\s]+", text):
        raise RequestError(f"not a size: {text!r}", remedy="write for example 4k or 64KiB")
    return parse_size(text)


ToolSize = Annotated[int, BeforeValidator(parse_tool_size)]
"""A pydantic field in bytes that reads ``4k`` as 4096."""
