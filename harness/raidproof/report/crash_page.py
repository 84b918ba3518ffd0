"""The crash page: one HTML file with a part of a write log, in which a reader moves the power cut."""

import zlib
from base64 import b64encode
from importlib.resources import files
from pathlib import Path

from markupsafe import Markup

from raidproof.record.crash_page import CrashPage
from raidproof.record.results.names import crash_page_of
from raidproof.record.results.store import RunStore
from raidproof.report.html import templates
from raidproof.report.words import count, plural


def write_crash_page(page: CrashPage, store: RunStore) -> Path:
    """Write the crash page of an exploration atomically beside the exploration's files; return its path."""
    return store.write_text(crash_page_of(page.exploration), render_crash_page(page))


def render_crash_page(page: CrashPage) -> str:
    """Return the HTML of a crash page: one file without external files."""
    folder = files("raidproof.report") / "page"
    return (
        templates()
        .get_template("crash_page.html.j2")
        .render(
            page=page,
            words=introduction(page),
            about=about(page),
            slots=["no disk" if member is None else page.members[member] for member in page.slots],
            check="parity" if page.parities else "copies",
            data=packed(page),
            style=Markup((folder / "crash_page.css").read_text()),  # noqa: S704  a file of this package
            script=Markup((folder / "crash_page.js").read_text()),  # noqa: S704  a file of this package
        )
    )


def packed(page: CrashPage) -> str:
    """Return the data of a page as compressed JSON (zlib, RFC 1950) in base64, which `DecompressionStream` reads."""
    return b64encode(zlib.compress(page.model_dump_json().encode(), 9)).decode()


def introduction(page: CrashPage) -> str:
    """Return a sentence on the stack whose log the page shows, and on the task of the reader."""
    array = page.array or "disks without an array that could be assembled"
    return (
        f"{array}, {page.filesystem}, {page.export} export: {plural(len(page.requests), 'write')} of a real run. "
        "A disk may lose each write that no flush has covered. Drag the line, or choose a checked state below."
    )


def about(page: CrashPage) -> list[str]:
    """Return sentences on what the page shows, and on what it leaves out."""
    whole = page.last - page.first
    part = (
        f"The page has {count(whole)} of {count(page.of)} requests of the write log, from {count(page.first)} to "
        f"{count(page.last)}: the part before has only the creation of the array and the file system"
        if page.last == page.of and not page.left_out
        else f"The page has {count(whole)} of {count(page.of)} requests of the write log, from {count(page.first)} to "
        f"{count(page.last)}, around the failing and the checked states; {plural(page.left_out, 'checked state')} "
        "outside of this part are left out"
    )
    return [
        f"{part}.",
        "Requests are in the order of their completion, not to the scale of time. At each cut the page shows the "
        "latest possible instant: all operations acknowledged until then count.",
        "Whether parity and copies fit is decided by 64-bit hashes of the blocks that the requests wrote, for each "
        "choice. The page does not contain the blocks.",
        "What the file system makes of a state was found by a machine with the real kernel. The page has this result "
        "for checked states only, and computes none for other choices.",
        "Only whole writes can be switched. Checked states may have torn writes, of which some sectors survived.",
        "If one disk is missing, the page computes the content that parity gives for the missing chunk of each row "
        "with a volatile write, and compares it with the content before and after each batch of writes to the row: "
        "writes less than 2 ms apart. Content that is neither is garbled: the write hole.",
    ]
