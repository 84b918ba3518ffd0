"""Texts from outside: files of the user and outputs of commands, with their origin; hostile content is refused."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from raidproof.core.errors import RequestError
from raidproof.core.units import KIB, MIB

LARGEST = 16 * MIB
"""Bytes of the largest text that is read; configuration files and outputs of commands are far smaller."""
LONGEST = 64 * KIB
"""Characters of the longest line, except in JSON."""
_SHOWN = 60
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f]")
"""Control characters other than tab, newline, form feed and carriage return."""


def plain(text: str) -> str:
    """Return text for messages, comments and records: each character that cannot be printed becomes ``?``."""
    return "".join(one if one.isprintable() else "?" for one in text)


@dataclass(frozen=True)
class Given:
    """The content of a file, or the output of a command."""

    name: str
    """The path of the file, or the command with its machine: for messages and comments."""
    text: str

    def __post_init__(self) -> None:
        if len(self.text) > LARGEST:
            raise RequestError(f"{self.name}: more than {LARGEST // MIB} MiB", remedy="give only the named file")
        if found := _CONTROL.search(self.text):
            line = self.text.count("\n", 0, found.start()) + 1
            raise RequestError(
                f"{self.name}:{line}: contains the control character {found[0]!r}",
                remedy="give a text file, as the command prints it",
            )

    def at(self, line: int) -> str:
        """Return the name with the number of a line."""
        return f"{self.name}:{line}"

    def refuse(self, line: int, why: str, remedy: str | None = None) -> NoReturn:
        """Refuse the text because of a line.

        Raises:
            RequestError: always; the message names the text and the line.
        """
        raise RequestError(f"{self.at(line)}: {plain(why)}", remedy=remedy)

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield each line with its number, from 1 on, without the end of the line.

        Raises:
            RequestError: a line is too long.
        """
        for number, line in enumerate(self.text.replace("\r\n", "\n").split("\n"), 1):
            if len(line) > LONGEST:
                self.refuse(number, f"the line has more than {LONGEST:,} characters")
            yield number, line

    def json(self) -> Any:
        """Return the JSON document.

        Raises:
            RequestError: the text is not JSON.
        """
        try:
            return json.loads(self.text)
        except json.JSONDecodeError as error:
            self.refuse(error.lineno, f"is not JSON: {error.msg}", "write it with lsblk --json")
        except (RecursionError, ValueError) as error:
            self.refuse(1, f"is not JSON that can be read: {type(error).__name__}")


def read_file(path: Path) -> Given:
    """Return the content of a text file.

    Raises:
        RequestError: the file cannot be read, is too large, or is not a text file.
    """
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror}") from error
    return given(str(path), data)


def given(name: str, data: bytes) -> Given:
    """Return bytes as text.

    Raises:
        RequestError: the bytes are too many, or not UTF-8 text.
    """
    if len(data) > LARGEST:
        raise RequestError(f"{name}: more than {LARGEST // MIB} MiB", remedy="give only the named file")
    try:
        return Given(name, data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise RequestError(
            f"{name}:{line}: byte {data[error.start]:#04x} is not UTF-8", remedy="give a text file"
        ) from error


def shortened(text: str) -> str:
    """Return text for a message, without characters that cannot be printed, and at most a part of a long text."""
    shown = plain(text)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
