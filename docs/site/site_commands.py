"""The commands and the Python code that the documents show, for the tests that run them."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HOME = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*HOME.glob("*.md"), *(HOME / "docs").glob("*.md")])
FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^ {4}.*\n|^\n(?= {4}))+", re.MULTILINE)
CALL = re.compile(r"^(?:\$ )?(?:[A-Z_]+=\S+ )*(?:[\w~./-]*/)?raidproof +([a-z-].*)$")
INLINE = re.compile(r"`\./raidproof ([^`]+)`")
SYNOPSIS = re.compile(r"\[|\.\.\.|\{")
"""Signs of a line that shows the form of a command, not a command."""


class Shown(NamedTuple):
    """A command that a document shows."""

    document: str
    """Name of the document."""
    text: str
    """The words after the name of the program."""

    @property
    def words(self) -> list[str]:
        """The arguments."""
        return shlex.split(self.text)


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield the language and the content of each block of code; the language of an indented block is empty."""
    for match in FENCED.finditer(text):
        yield match[2], match[3]
    for match in INDENTED.finditer(FENCED.sub("\n", text)):
        yield "", re.sub(r"^ {4}", "", match[0], flags=re.MULTILINE).strip("\n") + "\n"


def lines(text: str) -> Iterator[str]:
    """Yield the lines of the blocks with commands; a backslash joins a line with the next."""
    for language, block in blocks(text):
        if language in {"", "sh", "bash", "console"}:
            yield from (line.strip() for line in block.replace("\\\n", " ").splitlines())


def command_of(line: str) -> str | None:
    """Return the arguments of raidproof in a line of a shell; None for another command, and for a synopsis."""
    line = re.sub(r"\$\([^)]*\)", "FOLDER", line)
    found = CALL.match(re.split(r" +#| {3,}| \||<\(| >+ ", line)[0].strip())
    return None if found is None or SYNOPSIS.search(found[1]) else found[1]


def commands() -> list[Shown]:
    """Return the commands of raidproof that the blocks of all documents show."""
    shown = (
        Shown(document.name, text)
        for document in DOCUMENTS
        for line in lines(document.read_text())
        if (text := command_of(line)) is not None
    )
    return list(dict.fromkeys(shown))


def mentions() -> list[Shown]:
    """Return the commands of raidproof that the sentences and tables of all documents mention."""
    return list(
        dict.fromkeys(
            Shown(document.name, text.replace("\\|", "|"))
            for document in DOCUMENTS
            for text in INLINE.findall(FENCED.sub("\n", document.read_text()))
        )
    )


def snippets() -> list[tuple[str, str]]:
    """Return the names of documents and the Python code that each block of them shows."""
    return [
        (document.name, block)
        for document in DOCUMENTS
        for language, block in blocks(document.read_text())
        if language == "python"
        or (not language and re.match(r"(from \S+ import|import \w+\n|class \w|def \w|@|cycle\()", block))
    ]
