"""A crash page in headless Chromium, and its comparison with what the exploration computed from the disks' bytes."""

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from raidproof.crash.checker_worker import RecordingCursor
from raidproof.crash.states import CrashState, Recording
from raidproof.record.crash_page import CrashPage, PageState

NOT_COMPARED = "not compared"
READ = """() => ({
    rows: document.getElementById('stripes').dataset.inconsistent,
    files: [...document.querySelectorAll('#files tr')].map(row => [row.dataset.file, row.dataset.missing]),
    acknowledged: document.querySelector('#tile-acknowledged b').textContent,
    verdict: document.querySelector('#tile-found b').textContent,
})"""
"""Reads from the page what it shows."""
SHOW = f"""async names => {{
    const found = {{}};
    for (const name of names) {{
        const chosen = new Promise(done => window.addEventListener('hashchange', done, {{ once: true }}));
        location.hash = name;
        await chosen;
        const shown = document.getElementById('found').dataset.state;
        if (shown !== name) throw new Error(`the page shows ${{shown}}, not ${{name}}`);
        found[name] = ({READ})();
    }}
    return found;
}}"""
"""Chooses states by their names, and reads what the page shows for each."""


class Shown(NamedTuple):
    """What a page shows for one state."""

    rows: str
    """Offsets in the array of the inconsistent rows, or `NOT_COMPARED`."""
    missing: dict[int, int]
    """Number of missing operations of each file that has some, by index in `CrashPage.files`."""
    acknowledged: int
    verdict: str


class Browser:
    """A crash page in a browser."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.errors: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._console)

    def _console(self, message: Any) -> None:
        if message.type in {"error", "warning"}:
            self.errors.append(message.text)

    def open(self, path: Path) -> None:
        """Open a page from its file, and wait until it shows its data."""
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("#page:not([hidden])")

    def run(self, script: str, argument: object = None) -> Any:
        """Return the value of an expression or a function in the page."""
        return self.page.evaluate(script, argument)

    def text(self, selector: str) -> str:
        """Return the text of an element."""
        return str(self.page.inner_text(selector))

    def show(self, names: Iterable[str]) -> dict[str, Shown]:
        """Choose checked states by their names one after the other; return what the page shows for each."""
        found = self.run(SHOW, list(names))
        assert isinstance(found, dict)
        return {name: _read(one) for name, one in found.items()}

    def shown(self) -> Shown:
        """Return what the page shows for the present choice."""
        found = self.run(f"() => ({READ})()")
        assert isinstance(found, dict)
        return _read(found)


def _read(found: dict[str, Any]) -> Shown:
    return Shown(
        found["rows"],
        {int(file): int(missing) for file, missing in found["files"] if missing not in {"0", "?"}},
        int(found["acknowledged"].split()[0].replace(",", "")),
        found["verdict"],
    )


@contextmanager
def started_chromium() -> Iterator[Any]:
    """Yield a headless Chromium, a `Browser` of Playwright; skip the test if the host has none."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("the host has no Chromium (Debian package chromium)")
    playwright = pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed")
    with playwright.sync_playwright() as started:
        # In a container and as root Chromium has no sandbox of its own; it opens a file that the test has made.
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def page_in(chromium: Any, width: int = 1240, scheme: str = "light") -> Iterator[Browser]:
    """Yield a new page of a started Chromium, which shares nothing with its other pages."""
    page = chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    try:
        yield Browser(page)
    finally:
        page.close()


@contextmanager
def chromium(width: int = 1240, scheme: str = "light") -> Iterator[Browser]:
    """Yield a page of a headless Chromium of its own; skip the test if the host has none."""
    with started_chromium() as browser, page_in(browser, width, scheme) as page:
        yield page


def computed_rows(recording: Recording, states: Iterable[CrashState]) -> dict[str, str]:
    """Return the inconsistent rows of states by name, computed from the bytes of the disks, as `Shown.rows`."""
    cursor, found = RecordingCursor(recording), {}
    for state in sorted(states, key=lambda one: one.cut):
        cursor.go(state.cut)
        array = cursor.redundancy.array(state)
        if isinstance(array, str) or array.incomplete is not None:
            found[state.name] = NOT_COMPARED
        else:
            differ = cursor.redundancy.accuracy(state).differ
            found[state.name] = ",".join(map(str, sorted({one.array_offset for one in differ})))
    return found


def wrong(browser: Browser, page: CrashPage, recording: Recording, states: dict[str, CrashState]) -> list[str]:
    """Return the states in which a page shows other rows or files than the exploration found, each as a line."""
    judged = [one for one in page.states if one.files is not None and one.name in states]
    rows = computed_rows(recording, (states[one.name] for one in judged))
    shown = browser.show(one.name for one in judged)
    return [line for one in judged for line in _differences(shown[one.name], one, rows[one.name])]


def _differences(shown: Shown, state: PageState, rows: str) -> Iterator[str]:
    if shown.rows != rows:
        yield f"{state.name}: the page shows rows {shown.rows}, the bytes have {rows}"
    missing = {one.file: one.missing for one in state.files or ()}
    if shown.missing != missing:
        yield f"{state.name}: the page shows missing operations {shown.missing}, the check found {missing}"
    if shown.acknowledged != state.acknowledged:
        yield f"{state.name}: the page counts {shown.acknowledged} acknowledged operations, not {state.acknowledged}"
