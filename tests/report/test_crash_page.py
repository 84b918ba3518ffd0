from base64 import b64decode, b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raidproof.crash.page.data import page_data
from raidproof.crash.states import CrashState
from raidproof.record.crash_page import CrashPage
from raidproof.report.crash_page import about, render_crash_page
from raidproof.storage.array.striping import Striping
from scenarios.crash.browsed import page_in, started_chromium, wrong
from tests.crash.striped import RAID1, RAID5, RAID6, RAID10, StripedRun

STATES = {"5": (RAID5, 100), "6": (RAID6, 60), "1": (RAID1, 60), "10": (RAID10, 60)}


def made(tmp_path: Path, striping: Striping, count: int) -> tuple[StripedRun, dict[str, CrashState], CrashPage, Path]:
    run = StripedRun(tmp_path / "write.log", striping)
    states = run.states(count)
    page = page_data(run.explored(states))
    path = tmp_path / "page.html"
    path.write_text(render_crash_page(page))
    return run, {state.name: state for state in states}, page, path


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with started_chromium() as browser:
        yield browser


@pytest.mark.parametrize("level", STATES)
def test_page_shows_the_rows_and_files_of_each_checked_state(tmp_path: Path, chromium: Any, level: str) -> None:
    run, states, page, path = made(tmp_path, *STATES[level])
    assert len(page.states) == len(states)
    with page_in(chromium) as browser:
        browser.open(path)
        assert wrong(browser, page, run.recording, states) == []
        assert browser.errors == []


def test_a_wrong_hash_is_found(tmp_path: Path, chromium: Any) -> None:
    run, states, page, path = made(tmp_path, RAID5, 60)
    hashes = bytearray(b64decode(page.hashes))
    # The first request of the page writes the whole first member, with its superblock in the first unit.
    whole = page.requests[0]
    assert whole.hashes is not None
    for unit in range(8, len(whole.units)):
        hashes[8 * (whole.hashes + unit)] ^= 1
    path.write_text(render_crash_page(page.model_copy(update={"hashes": b64encode(hashes).decode()})))
    with page_in(chromium) as browser:
        browser.open(path)
        found = wrong(browser, page, run.recording, states)
    assert found
    assert all("the page shows rows" in line for line in found)


def test_keys_and_buttons_change_the_choice(tmp_path: Path, chromium: Any) -> None:
    _, _, page, path = made(tmp_path, RAID5, 40)
    with page_in(chromium, width=400, scheme="dark") as browser:
        browser.open(path)
        keyboard = browser.page.keyboard
        browser.run("cut => { location.hash = `cut-${cut}`; }", page.first + 20)
        browser.page.wait_for_function("cut => document.getElementById('cut').value == cut", arg=page.first + 20)
        keyboard.press("ArrowRight")
        assert browser.run("() => Number(document.getElementById('cut').value)") == page.first + 21
        keyboard.press("Shift+ArrowLeft")
        assert browser.run("() => Number(document.getElementById('cut').value)") == page.first + 11
        browser.run("() => document.getElementById('keep').click()")
        kept = browser.text("#tile-writes b").split()
        assert kept[0] == kept[2] != "0"
        browser.run("() => document.getElementById('drop').click()")
        assert browser.text("#tile-writes b").startswith("0 of ")
        browser.page.focus("#writes label input")
        keyboard.press("Space")
        assert not browser.text("#tile-writes b").startswith("0 of ")
        before = browser.run("() => Number(document.getElementById('cut').value)")
        browser.run("() => document.getElementById('flush-after').click()")
        after = browser.run("() => Number(document.getElementById('cut').value)")
        flushes = [event.number + 1 for event in page.events]
        assert after == next(cut for cut in flushes if cut > before)
        # The page scrolls in one direction only, and tells its state to screen readers.
        assert browser.run("() => document.documentElement.scrollWidth") == 400
        assert browser.text("#tile-rows b") in str(browser.run("() => document.getElementById('summary').textContent"))
        assert browser.errors == []


@pytest.mark.parametrize("width", [400, 1240])
def test_signs_are_small_and_the_log_fills_the_page(tmp_path: Path, chromium: Any, width: int) -> None:
    *_, path = made(tmp_path, RAID5, 10)
    with page_in(chromium, width=width) as browser:
        browser.open(path)
        signs = browser.run("() => [...document.querySelectorAll('.legend svg')].map(one => one.clientWidth)")
        assert set(signs) == {26}
        log, main = (
            browser.run(f"() => document.querySelector('{one}').getBoundingClientRect().width")
            for one in ("#detail", "#page")
        )
        assert log > 0.85 * main


def test_unchecked_choice_gets_no_result(tmp_path: Path, chromium: Any) -> None:
    _, _, page, path = made(tmp_path, RAID5, 10)
    cuts = {state.cut for state in page.states}
    free = next(cut for cut in range(page.first, page.last) if cut not in cuts)
    with page_in(chromium) as browser:
        browser.open(path)
        browser.run("cut => { location.hash = `cut-${cut}`; }", free)
        browser.page.wait_for_function("() => document.getElementById('found').dataset.state === ''")
        assert browser.shown().verdict == "not checked"
        assert browser.shown().missing == {}


def test_page_is_one_file(tmp_path: Path) -> None:
    *_, path = made(tmp_path, RAID5, 10)
    text = path.read_text()
    assert "http:" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https:" not in text
    assert len(text) < 3_000_000


def test_left_out_states_are_named(tmp_path: Path) -> None:
    _, _, page, _ = made(tmp_path, RAID5, 10)
    left_out = about(page.model_copy(update={"left_out": 7}))
    assert "7 checked states outside of this part are left out" in left_out[0]
    assert "left out" not in about(page)[0]
