"""Texts for users do not use the words that `docs/glossary.md` excludes."""

import ast
import re
from pathlib import Path

import pytest
import typer.main

from raidproof.cli.main import app

HOME = Path(__file__).resolve().parents[1]
GLOSSARY = HOME / "docs" / "glossary.md"
PAGES = sorted([HOME / "README.md", HOME / "CONTRIBUTING.md", *(HOME / "docs").glob("*.md")])
TEMPLATES = sorted((HOME / "harness" / "raidproof" / "report" / "page").glob("*.j2"))


def rows(title: str) -> dict[str, str]:
    """Return the rows of a table in the glossary: first column to second column."""
    part = GLOSSARY.read_text().partition(title)[2]
    lines = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")]
    return {line[0]: line[1] for line in lines[1:]}


def unused() -> list[str]:
    return [word for words in rows("## Words that are not used") for word in words.split(", ")]


def found(text: str) -> list[str]:
    """Return the excluded words in a text; code and quoted output do not count."""
    prose = re.sub(r"```.*?```|^ {4}.*$|`[^`]*`", "", text, flags=re.DOTALL | re.MULTILINE)
    return [word for word in unused() if re.search(rf"\b{word}s?\b", prose, re.IGNORECASE)]


def helps(command: object) -> list[str]:
    """Return all texts of help of a command and of the commands below it."""
    texts = [getattr(command, "help", None) or ""]
    texts += [getattr(option, "help", None) or "" for option in getattr(command, "params", [])]
    for below in getattr(command, "commands", {}).values():
        texts += helps(below)
    return texts


@pytest.mark.parametrize("page", [page for page in PAGES if page != GLOSSARY], ids=lambda page: page.name)
def test_documents_keep_to_the_glossary(page: Path) -> None:
    assert found(page.read_text()) == []


def test_help_keeps_to_the_glossary() -> None:
    texts = helps(typer.main.get_command(app))
    assert len(texts) > 50
    assert [(text, words) for text in texts if (words := found(text))] == []


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_pages_keep_to_the_glossary(template: Path) -> None:
    text = re.sub(r"\{[{%#].*?[}%#]\}|<[^>]*>", "", template.read_text(), flags=re.DOTALL)
    assert found(text) == []


@pytest.mark.parametrize("room", ["report", "verdict"])
def test_sentences_of_reports_keep_to_the_glossary(room: str) -> None:
    for path in sorted((HOME / "harness" / "raidproof" / room).rglob("*.py")):
        tree = ast.parse(path.read_text())
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        texts = [
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
        ]
        sentences = [text for text in texts if " " in text.strip()]
        assert [(path.name, text, words) for text in sentences if (words := found(text))] == []


def test_the_glossary_is_in_alphabetical_order_and_has_no_word_twice() -> None:
    words = list(rows("special sense."))
    own = words[: words.index("write log") + 1]
    assert len(own) > 20
    assert own == sorted(own) or own == sorted(own, key=str.lower)


def test_a_word_that_is_not_used_is_found() -> None:
    assert found("Nobody visits it; `visit` is code.") == ["nobody", "visit"]
