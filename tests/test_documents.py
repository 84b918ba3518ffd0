"""The documents name files that exist."""

import re
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[1]
DOCUMENTS = [*HOME.glob("*.md"), *(HOME / "docs").glob("*.md")]
NAMED = re.compile(r"`((?:harness|scenarios|findings|tests|vms|docs|benchmarks)/[\w./-]+)`")
LINKED = re.compile(r"\]\((?!https?://|#)([^)#]+)")


def missing(document: Path, text: str) -> list[str]:
    """Return the files that a document names or links to and that do not exist."""
    named = [name for name in NAMED.findall(text) if not (HOME / name).exists()]
    linked = [name for name in LINKED.findall(text) if not (document.parent / name).exists()]
    return named + linked


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_what_a_document_names_exists(document: Path) -> None:
    assert missing(document, document.read_text()) == []


def test_a_file_that_is_not_there_is_found() -> None:
    text = "`harness/raidproof/no_such_file.py` and [this](docs/no-such.md)"
    assert missing(HOME / "README.md", text) == ["harness/raidproof/no_such_file.py", "docs/no-such.md"]
