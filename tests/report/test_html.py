import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.record.run import RunRecord
from harness.report import write_html
from harness.report.columns import COLUMNS
from harness.report.html import render

VOID = {"meta", "br", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """Reads a page, and insists that every element is closed where it must be."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.cells: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in {"td", "th"}:
            self.cells.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if {"td", "th"} & set(self.open):
            self.cells[-1] += data

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def test_every_column_is_there_with_its_unit(run: RunRecord) -> None:
    page = Page(render(run))
    headers = {" ".join(cell.split()) for cell in page.cells}
    for column in COLUMNS:
        assert (f"{column.title} [{column.unit}]" if column.unit else column.title) in headers


@pytest.mark.parametrize(
    "fact",
    [
        "20,047",
        "17 whole files and 77.8 MiB lost",
        "client1-0-fsync: fsync of 17 (generation 4): nothing is there",
        "synced-lost",
        "uml: one CPU a machine; races that need several CPUs do not show",
        "grace and lease are 10 s, not the default 90 s all rows",
        "loss , blamed on the disks",
        "≠ 1MiB",
        "last durable point, -2.95 s",
        "served again, +4.19 s",
        "operations acknowledged per 100 ms",
        "./raidproof demo",
        "./raidproof judge 20260504-123000-demo",
        "2.8.3-1",
        "machine killed, caches resolved by drop",
    ],
)
def test_what_a_reader_looks_for(run: RunRecord, fact: str) -> None:
    assert fact.replace(" ,", ",") in Page(render(run)).text.replace(" ,", ",")


def test_it_needs_nothing_from_elsewhere(run: RunRecord) -> None:
    text = render(run)
    assert not re.search(r"https?:|@import|<script|<link|url\((?!#)", text)
    for tag, attributes in Page(text).tags:
        for name in ("src", "href", "xlink:href", "srcset", "data"):
            link = attributes.get(name) or "#"
            assert link.startswith(("#", "./")), (tag, link)


def test_charts_are_named_for_those_who_do_not_see_them(run: RunRecord) -> None:
    text = render(run)
    drawn = [attributes for tag, attributes in Page(text).tags if tag == "svg" and attributes.get("role") == "img"]
    assert len(drawn) == 1 + len(run.cycles)
    for attributes in drawn:
        for identity in (attributes["aria-labelledby"] or "").split():
            assert text.count(f'id="{identity}"') == 1


def test_every_identity_is_there_once_and_every_anchor_leads_somewhere(run: RunRecord) -> None:
    tags = Page(render(run)).tags
    identities = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(identities) == len(set(identities))
    anchors = {(attributes.get("href") or "")[1:] for tag, attributes in tags if tag == "a"}
    assert {anchor for anchor in anchors if not anchor.startswith("/")} <= set(identities)


def test_light_and_dark(run: RunRecord) -> None:
    text = render(run)
    light, dark = re.findall(r":root \{(.*?)\}", text, re.DOTALL)
    defined = re.compile(r"--[a-z]+(?=:)")
    assert "prefers-color-scheme: dark" in text
    assert set(defined.findall(light)) == set(defined.findall(dark))


def test_unknown_is_a_dash_and_no_zero(broken_run: RunRecord) -> None:
    page = Page(render(broken_run))
    start = next(place for place, cell in enumerate(page.cells) if cell.startswith("a server that does not boot"))
    assert page.cells[start + 1 : start + 1 + len(COLUMNS)] == ["sync", "volatile", *["-"] * 10]
    assert "Not on the chart: 1 a server that does not boot (MB/s and seconds lost not known)" in page.text
    assert "None" not in page.text


def test_an_error_and_an_invalid_run_are_shown_as_such(broken_run: RunRecord, invalid_run: RunRecord) -> None:
    page = Page(render(broken_run))
    assert "! ERROR a server that does not boot: gave up waiting" in page.text
    assert "The rig failed: gave up waiting for server to answer" in page.text
    text = Page(render(invalid_run)).text
    assert "⊘ INVALID sync export, lying disks: control: had to lose acknowledged work" in text
    assert "control misbehaved" in text
    assert "does not count" in text


def test_a_run_without_anything_is_still_a_page(run: RunRecord) -> None:
    text = Page(render(RunRecord(run="x", started=run.started, command=[]))).text
    assert "INCONCLUSIVE" in text
    assert "No cycle has a timeline" in text


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20, deadline=None)
@given(st.text())
def test_whatever_a_record_says_is_text(run: RunRecord, text: str) -> None:
    evil = f"<script>alert(1)</script>{text}'\"><img src=x>\x1b"
    cycle = run.cycles[1]
    cycle.title = cycle.reason = cycle.rig_error = cycle.fault = cycle.cache_mode = run.run = run.reason = evil
    cycle.files = {evil: f"javascript:{evil}"}
    cycle.asked |= {evil: {evil: evil}}
    cycle.disks = {evil: {evil: evil}}
    cycle.checks = {evil: evil}
    run.topology = {evil: [{evil: evil}], "more": evil}
    run.command = [evil]
    page = render(run)
    assert not re.search(r"<script|<img|\x1b|href=\"\./javascript:", page)
    assert not {tag for tag, _ in Page(page).tags} & {"script", "img"}


def test_the_file_is_there_whole(run: RunRecord, tmp_path: Path) -> None:
    write_html(run, tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text() == render(run)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
