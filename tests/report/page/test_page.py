"""The HTML reports in headless Chromium: figures, links, filters, widths, colours."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright
from playwright.sync_api import Page as Tab

from raidproof.record.block_life import BlockLife, DiskRequest
from raidproof.record.run import RunRecord
from raidproof.report import html
from raidproof.report.results.history import render_history
from raidproof.verdict.cell import SafetyWord, safety_in
from raidproof.verdict.change.history import histories
from tests.report.conftest import planned, sample
from tests.report.test_exploration import exploration
from tests.stored_runs import SYNC, run_with

CONTRAST = """() => {
  const parse = (text) => { const [r, g, b, a] = text.match(/[\\d.]+/g).map(Number); return { r, g, b, a: a ?? 1 }; };
  const light = ({ r, g, b }) => [r, g, b].map((one) => one / 255)
    .map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4))
    .reduce((sum, one, at) => sum + one * [0.2126, 0.7152, 0.0722][at], 0);
  const ground = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const colour = parse(getComputedStyle(one).backgroundColor);
      if (colour.a === 1) return colour;
    }
    return { r: 255, g: 255, b: 255 };
  };
  const ratio = (element, property) => {
    const colour = parse(getComputedStyle(element)[property]);
    const [low, high] = [light(colour), light(ground(element))].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const found = [];
  for (const element of document.querySelectorAll("p, td, th, dt, dd, a, summary, figcaption, .outcome, label")) {
    if (element.textContent.trim() && element.getClientRects().length) {
      found.push([ratio(element, "color"), element.textContent.trim().slice(0, 40)]);
    }
  }
  for (const element of document.querySelectorAll("svg text")) {
    if (element.textContent.trim()) {
      found.push([ratio(element, "fill"), element.textContent.slice(0, 40)]);
    }
  }
  return found.sort((a, b) => a[0] - b[0])[0];
}"""
"""JavaScript that returns the least contrast of a text with its background (WCAG 2), and this text."""
LEAST_CONTRAST = 4.5
COVERED = """() => {
  const found = [];
  for (const chart of document.querySelectorAll(".chart")) {
    const room = chart.getBoundingClientRect();
    const texts = [...chart.querySelectorAll("svg text")]
      .filter((one) => one.textContent.trim() && Number(getComputedStyle(one).opacity) > 0)
      .map((one) => [one.textContent, one.getBoundingClientRect()]);
    texts.forEach(([text, box], place) => {
      if (box.left < room.left - 1 || box.right > room.right + 1) found.push(`${chart.id}: ${text} is cut off`);
      for (const [other, near] of texts.slice(0, place)) {
        const across = Math.min(box.right, near.right) - Math.max(box.left, near.left);
        const down = Math.min(box.bottom, near.bottom) - Math.max(box.top, near.top);
        if (across > 1 && down > 3) found.push(`${chart.id}: ${text} covers ${other}`);
      }
    });
  }
  return found;
}"""
"""JavaScript that returns the texts of charts that are cut off, or cover each other."""


BROKEN_NAMES = """() => {
  const broken = [];
  for (const name of document.querySelectorAll("#table th[scope=row] a")) {
    const text = name.firstChild;
    for (const word of name.textContent.matchAll(/\\S+/g)) {
      const range = document.createRange();
      range.setStart(text, word.index);
      range.setEnd(text, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map((one) => one.top)).size > 1) broken.push(word[0]);
    }
  }
  return broken;
}"""
"""JavaScript that returns the settings in names of rows that a line break separates."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed: `./raidproof test` installs vms/host-packages-test.txt")
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


Open = Callable[..., Tab]


@pytest.fixture
def shown(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """A function that opens a page and returns its tab; the test fails if the page has an error or needs a network."""
    context = browser.new_context(offline=True)
    wrong: list[str] = []

    def show(text: str, width: int = 1200, scheme: Any = "light") -> Tab:
        path = tmp_path / "report.html"
        path.write_text(text)
        tab = context.new_page()
        tab.set_viewport_size({"width": width, "height": 900})
        tab.emulate_media(color_scheme=scheme)
        tab.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.on(
            "request", lambda one: None if one.url.startswith(("file:", "data:", "blob:")) else wrong.append(one.url)
        )
        tab.goto(path.as_uri())
        tab.wait_for_function("document.documentElement.dataset.drawn === 'yes'")
        return tab

    yield show
    context.close()
    assert wrong == []


def with_lives(run: RunRecord) -> RunRecord:
    request = DiskRequest(member="disk1", request=7, sector=2048, begun_s=-0.4, ended_s=-0.39)
    life = BlockLife(client="client1", path="f", kind="fsync", block=3, generation=2, found="the block is missing",
                     written_s=-0.6, replied_s=-0.5, reported_s=-0.49, requests=[request])  # fmt: skip
    run.cycles[1].lives = [life]
    return run


@pytest.fixture(scope="module")
def plan_page() -> str:
    """The page of `planned`."""
    return html.render(planned())


@pytest.fixture(scope="module")
def run_page() -> str:
    """The page of `sample` with a life."""
    return html.render(with_lives(sample()))


def rows(tab: Tab, chart: str, data: str) -> list[dict[str, Any]]:
    """Return the rows that a chart of the page draws."""
    found: list[dict[str, Any]] = json.loads(
        tab.evaluate("([chart, data]) => JSON.stringify(raidproof.views[chart].data(data))", [chart, data])
    )
    return found


def open_all(tab: Tab) -> None:
    tab.evaluate("() => document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    tab.wait_for_function(
        "[...document.querySelectorAll('.chart')]"
        ".every((one) => { one.scrollIntoView(); return one.querySelector('svg'); })"
    )


def test_the_charts_have_the_values_of_the_record(shown: Open, plan_run: RunRecord, plan_page: str) -> None:
    tab = shown(plan_page)
    by_name = {cell.name: cell for cell in plan_run.cells}
    drawn = rows(tab, "medians-1", "repetitions")
    for name in {row["name"] for row in drawn}:
        values = [row["value"] for row in drawn if row["name"] == name]
        assert values == pytest.approx(by_name[name].measured)
    for row in rows(tab, "tradeoff-1", "points"):
        [cycle] = [one for one in plan_run.cycles if one.name == by_name[row["name"]].cycle]
        assert (row["speed"], row["lost_s"]) == (pytest.approx(by_name[row["name"]].median), cycle.loss_window_s)


def test_every_part_opens_and_every_link_leads_somewhere(shown: Open, run_page: str) -> None:
    tab = shown(run_page)
    open_all(tab)
    assert (
        tab.evaluate(
            "() => [...document.querySelectorAll('a[href^=\"#\"]')].map((one) => one.hash).filter((one) => "
            "!document.getElementById(one.slice(1)))"
        )
        == []
    )
    steps = rows(tab, "life-2-1", "lives")
    assert {row["step"] for row in steps if row["at"] is not None} >= {"client's write", "disk request", "cut"}
    values = tab.locator("#life-2-1 + details.values tbody tr")
    assert values.count() == len(steps)


def test_a_large_page_shows_details_of_the_part_that_a_link_names(
    shown: Open, plan_run: RunRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(html, "MOST_INLINE", 2)
    tab = shown(html.render(plan_run))
    assert tab.locator("#cell-3 table").count() == 0
    tab.locator("a[href='#cell-3']").first.click()
    tab.wait_for_selector("#cell-3 table")
    tab.wait_for_selector("#cell-3 .chart svg")


def test_the_filter_and_the_axes_of_the_heat_map_change_what_is_shown(
    shown: Open, plan_run: RunRecord, plan_page: str
) -> None:
    tab = shown(plan_page)
    name = plan_run.cells[0].name
    tab.locator("#filter input").fill(name)
    tab.wait_for_function(
        "name => raidproof.views['medians-1'].data('repetitions').every((one) => one.name.includes(name))", arg=name
    )
    named = sum(all(word in cell.name for word in name.split()) for cell in plan_run.cells)
    assert tab.locator("table.ranking tbody tr:not(.apart):visible").count() == named < len(plan_run.cells)
    assert tab.locator("#cells > details:visible").count() == named
    tab.locator("#filter input").fill("")
    tab.locator("#filter select").select_option("SAFE")
    shown_cells = tab.locator("#cells > details:visible > summary").all_inner_texts()
    safe = [cell.name for cell in plan_run.cells if safety_in(plan_run, cell).word is SafetyWord.SAFE]
    assert len(shown_cells) == len(safe)
    for heat in tab.locator("select[name=across]").all():
        options = heat.locator("option").all_inner_texts()
        heat.select_option(label=options[-1])
        chart = heat.get_attribute("data-for")
        assert (
            tab.evaluate("id => document.getElementById(id).dataset.params", chart).count(f"axis:{options[-1]}") == 1
        )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(shown: Open, run_page: str, scheme: str) -> None:
    tab = shown(run_page, scheme=scheme)
    open_all(tab)
    least, text = tab.evaluate(CONTRAST)
    assert least >= LEAST_CONTRAST, text


def test_nothing_is_wider_than_a_narrow_screen(shown: Open, plan_page: str, run_page: str) -> None:
    pages = [plan_page, run_page]
    stored = histories([run_with([100.0 + day], day=day) for day in range(12)], SYNC)
    pages.append(render_history(stored, SYNC, Path("results")))
    for text in pages:
        tab = shown(text, width=400)
        open_all(tab)
        assert tab.evaluate("document.documentElement.scrollWidth") <= 400
        right = "(one) => one.getBoundingClientRect().right"
        assert tab.evaluate(f"Math.max(...[...document.querySelectorAll('.chart svg')].map({right}))") <= 400


@pytest.mark.parametrize("width", [1280, 420, 360])
def test_no_setting_in_the_name_of_a_row_is_broken(shown: Open, plan_page: str, width: int) -> None:
    tab = shown(plan_page, width=width)
    open_all(tab)
    assert tab.evaluate(BROKEN_NAMES) == []


def test_the_controls_can_be_reached_by_keyboard(shown: Open, plan_page: str) -> None:
    tab = shown(plan_page)
    reached = set()
    for _ in range(40):
        tab.keyboard.press("Tab")
        reached.add(tab.evaluate("document.activeElement.tagName"))
    assert {"A", "SUMMARY", "INPUT", "SELECT"} <= reached


@pytest.mark.parametrize("width", [1280, 420, 360])
def test_no_text_of_a_chart_is_cut_off_or_covered(shown: Open, plan_page: str, run: RunRecord, width: int) -> None:
    for cycle in run.cycles[2:]:
        cycle.loss_window_s, cycle.throughput = run.cycles[0].loss_window_s, run.cycles[0].throughput
    for text in (plan_page, html.render(with_lives(run)), html.render_exploration(exploration())):
        tab = shown(text, width=width)
        open_all(tab)
        assert tab.evaluate(COVERED) == []


def test_without_a_loss_the_first_chart_has_a_bar_for_each_speed(shown: Open, run: RunRecord) -> None:
    for cycle in run.cycles:
        cycle.loss_window_s = 0.0
    tab = shown(html.render(run))
    measured = [one.throughput.sequential_write_mb_s for one in run.cycles]
    speeds = [one for one in measured if one is not None]
    bars = tab.locator("#tradeoff-0 .mark-rect path").all()
    lengths = [box["width"] for bar in bars if (box := bar.bounding_box())]
    assert len(lengths) == len(speeds)
    assert max(lengths) / min(lengths) == pytest.approx(max(speeds) / min(speeds), rel=0.02)
    assert "No acknowledged work was lost" in tab.locator("figure:has(#tradeoff-0) figcaption").inner_text()


def test_a_table_that_continues_beyond_its_edge_has_a_shadow_there(shown: Open, run: RunRecord) -> None:
    tab = shown(html.render(run), width=420)
    attached = tab.evaluate("getComputedStyle(document.querySelector('#table .scroll')).backgroundAttachment")
    # Covers, which move with the content, lie on shadows, which do not.
    assert attached.split(", ")[:4] == ["local", "local", "scroll", "scroll"]
