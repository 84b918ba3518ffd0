"""The handout of a lesson: one HTML page without scripts or external files, for the screen and for paper."""

from pathlib import Path

from markdown_it import MarkdownIt
from markupsafe import Markup

from raidproof.core.errors import RequestError
from raidproof.core.files import write_durably
from raidproof.core.terminal import printable
from raidproof.record.lesson import LessonRecord
from raidproof.report import lesson as words
from raidproof.report.html import templates

HANDOUT = "handout.html"
"""Default name of a handout, in the directory of the lesson's run."""
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table").disable(["image", "html_block", "html_inline"])


def markdown(text: str) -> Markup:
    """Return a text in Markdown as HTML; HTML in the text is escaped, and images stay text."""
    tokens = _MARKDOWN.parse(printable(text))
    for token in tokens:
        # The title of the lesson is the only heading of the first level.
        if token.type in {"heading_open", "heading_close"}:
            token.tag = f"h{min(6, int(token.tag[1:]) + 1)}"
    return Markup(_MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {}))  # noqa: S704  the renderer escapes


def share(value: float | None, most: float) -> str:
    """Return the length of a bar in percent."""
    return f"{100 * max(0.0, value or 0.0) / most:.1f}" if most else "0"


def render_handout(record: LessonRecord) -> str:
    """Return the handout of a lesson."""
    page = templates().get_template("handout.html.j2")
    return page.render(lesson=record, words=words, markdown=markdown, share=share)


def write_handout(record: LessonRecord, path: Path) -> Path:
    """Write the handout of a lesson atomically, and return its path.

    Raises:
        RequestError: the file cannot be written.
    """
    try:
        write_durably(path, render_handout(record))
    except OSError as error:
        raise RequestError(
            f"cannot write the handout {path}: {error.strerror}", remedy="give another file with --handout"
        ) from error
    return path
