"""Links of the documents, as the site needs them: the repository's files that a page links to are part of the site."""

import os
import re
from pathlib import Path

HOME = Path(__file__).resolve().parents[2]
"""The folder of the clone."""
DOCS = HOME / "docs"
TOP_LEVEL = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
"""Documents outside of docs/ that are pages of the site, and the names of these pages."""
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?://|mailto:|#)([^)#\s]+)(#[^)]*)?\)")
CODE = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)
SOURCES = "files"
"""Folder of the site with copies of files of the repository."""


def site_path(target: Path) -> str | None:
    """Return the path in the site of a file of the repository; None for a folder, and for a file that is missing."""
    if not target.is_file():
        return None
    if target.is_relative_to(DOCS):
        return target.relative_to(DOCS).as_posix()
    inside = target.relative_to(HOME).as_posix()
    # The name ends with .txt, so that a browser shows each file as text.
    return TOP_LEVEL.get(inside) or f"{SOURCES}/{inside}{'' if inside.endswith('.txt') else '.txt'}"


def for_site(text: str, folder: Path) -> str:
    """Return the text of a document with the links of the site; ``folder``: the folder of the document.

    A link to a folder becomes its text. A link to a missing file stays, so that the build reports the link.
    """

    def changed(match: re.Match[str]) -> str:
        image, label, link, anchor = match[1], match[2], match[3], match[4] or ""
        target = Path(os.path.normpath(folder / link))
        if target.is_dir():
            return label
        path = site_path(target)
        return match[0] if path is None else f"{image}[{label}]({path}{anchor})"

    parts = CODE.split(text)
    # Every second part is code.
    return "".join(part if number % 2 else LINK.sub(changed, part) for number, part in enumerate(parts))


def copied(texts: dict[Path, str]) -> dict[str, Path]:
    """Return the files of the repository that documents link to, by their paths in the site."""
    found = {}
    for document, text in texts.items():
        for _, _, link, _ in LINK.findall(text):
            target = Path(os.path.normpath(document.parent / link))
            path = site_path(target)
            if path is not None and path.startswith(f"{SOURCES}/"):
                found[path] = target
    return found
