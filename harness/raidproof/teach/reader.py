"""The reader of lesson files: Markdown with a head in TOML and steps in TOML blocks; errors name file and line."""

import hashlib
import re
import tomllib
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from pydantic import TypeAdapter, ValidationError

from raidproof.core.errors import RequestError, nearest
from raidproof.plan.table import reasons
from raidproof.teach.action import Action
from raidproof.teach.lesson import Head, Lesson, Placed, Question, Result, Text

FENCE = "+++"
"""The line before and after the head."""
MOST_BYTES = 1 << 20
"""Greatest size of a lesson file in bytes."""
BLOCKS: dict[str, TypeAdapter[Any]] = {
    "action": TypeAdapter(Action),
    "question": TypeAdapter(Question),
    "result": TypeAdapter(Result),
}
"""The kinds of TOML blocks. Blocks with another word, or with none, are part of the text."""
_AT_LINE = re.compile(r"\(at line (\d+), column \d+\)|\(at end of document\)")


def load_lesson(path: Path) -> Lesson:
    """Read and check a lesson file.

    Raises:
        RequestError: the file cannot be read, or is no lesson; the message names file and line.
    """
    try:
        data = path.read_bytes()[: MOST_BYTES + 1]
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:  # a null character in the path
        raise RequestError(f"{str(path)!r} cannot be read: {error}") from error
    if len(data) > MOST_BYTES:
        raise RequestError(f"{path} is larger than 1 MiB, and no lesson")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise RequestError(f"{path}:{line}: not UTF-8") from error
    return read_lesson(text, source=str(path), name=path.stem)


def read_lesson(text: str, *, source: str, name: str) -> Lesson:
    """Return the lesson that a text contains.

    Raises:
        RequestError: the text is no lesson; the message names ``source`` and line.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    head, begin = _head(lines, source)
    lesson = Lesson(
        name=name,
        source=source,
        digest=hashlib.sha256(text.encode()).hexdigest()[:16],
        head=head,
        placed=tuple(_steps(lines, begin, source)),
    )
    lesson.check()
    return lesson


def _head(lines: list[str], source: str) -> tuple[Head, int]:
    """Return the head, and the index of the first line after it."""
    if lines[0].strip() != FENCE:
        raise RequestError(
            f"{source}:1: a lesson begins with a line {FENCE}, followed by title, minutes and learn",
            remedy="docs/teaching.md has an example",
        )
    end = next((number for number, line in enumerate(lines[1:], start=1) if line.strip() == FENCE), None)
    if end is None:
        raise RequestError(f"{source}:1: no line {FENCE} ends the head of the lesson")
    return _table(TypeAdapter(Head), lines[1:end], 2, source), end + 1


def _steps(lines: list[str], begin: int, source: str) -> Iterator[Placed]:
    tokens = MarkdownIt("commonmark").parse("\n".join(lines[begin:]))
    at = begin
    for token in tokens:
        word = token.info.split()[0] if token.type == "fence" and token.info.split() else ""
        if token.level or token.map is None or not word:
            continue
        if word not in BLOCKS:
            if get_close_matches(word, BLOCKS, cutoff=0.75):
                line = begin + token.map[0] + 1
                raise RequestError(f"{source}:{line}: unknown block {word!r}", remedy=nearest(word, BLOCKS))
            continue
        first, last = begin + token.map[0], begin + token.map[1]
        yield from _text(lines, at, first)
        yield Placed(_table(BLOCKS[word], token.content.split("\n"), first + 2, source), first + 1)
        at = last
    yield from _text(lines, at, len(lines))


def _text(lines: list[str], first: int, last: int) -> Iterator[Placed]:
    """Yield the text between two lines, if there is any."""
    while first < last and not lines[first].strip():
        first += 1
    if markdown := "\n".join(lines[first:last]).strip():
        yield Placed(Text(markdown), first + 1)


def _table(kind: TypeAdapter[Any], lines: list[str], first: int, source: str) -> Any:
    """Return the content of a TOML block whose first line has the number ``first``."""
    try:
        document = tomllib.loads("\n".join(lines))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        found = _AT_LINE.search(str(error))
        line = first + (int(found[1]) - 1 if found and found[1] else len(lines) - 1)
        raise RequestError(f"{source}:{line}: not TOML: {_AT_LINE.sub('', str(error)).strip()}") from error
    try:
        return kind.validate_python(document)
    except ValidationError as error:
        raise RequestError(f"{source}:{first + _line_of(error, lines)}: {reasons(error)}") from error
    except RequestError as error:
        raise RequestError(f"{source}:{first}: {error}") from error


def _line_of(error: ValidationError, lines: list[str]) -> int:
    """Return the index of the line with the first key of a validation error; 0 if no line has it."""
    first = error.errors()[0]
    words = [part for part in first["loc"] if isinstance(part, str)]
    words += ["do"] if first["type"].startswith("union_tag") else []
    words += re.findall(r"^Value error, (\w+): ", first["msg"])
    words += re.findall(r"unknown key '(\w+)'", first["msg"])
    for word in reversed(words):
        for number, line in enumerate(lines):
            if re.search(rf"(?<![\w.-]){re.escape(word)}\s*=|^\[+{re.escape(word)}\b", line):
                return number
    return 0
