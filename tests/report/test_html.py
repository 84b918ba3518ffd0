import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raidproof.record.observation import Files, Observations, RepliesSeen
from raidproof.record.run import FaultRecord, RunRecord
from raidproof.record.sensitivity import Defect, Sensitivity
from raidproof.report import html
from raidproof.report.charts.drawing import script
from raidproof.report.columns import columns
from raidproof.report.html import render, write_html
from raidproof.report.terminal import happening
from tests.report.charts.unpacking import unpacked

VOID = {"meta", "br", "link", "img", "input", "hr"}


def without_library(text: str) -> str:
    """Return a page without the charting library, which is not ours."""
    return text.replace(script(), "")


def without_scripts(text: str) -> str:
    """Return a page without the three scripts at its end."""
    page, data, rest = text.rpartition('<script type="application/gzip" id="figures">')
    assert data
    assert rest.count("</script>") == 3
    return page + rest.rpartition("</script>")[2]


class Page(HTMLParser):
    """Reads a page, and insists that every element is closed where it must be."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.cells: list[str] = []
        self.feed(without_library(text))
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
    def charts(self) -> list[dict[str, str | None]]:
        return [attributes for _, attributes in self.tags if attributes.get("class") == "chart"]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def test_every_column_is_there_with_its_unit(run: RunRecord) -> None:
    page = Page(render(run))
    headers = {" ".join(cell.split()) for cell in page.cells}
    for column in columns():
        assert (f"{column.title} [{column.unit}]" if column.unit else column.title) in headers


@pytest.mark.parametrize(
    "fact",
    [
        "20,047",
        "17 whole files and 77.8 MiB lost",
        "client1-0-fsync: fsync of 17 (generation 4): the block is missing",
        "synced-lost",
        "uml: one CPU a machine; races that need several CPUs do not show",
        "grace and lease are 10 s, not the default 90 s all rows",
        "loss , blamed on the disks",
        "≠ 1MiB",
        "that were acknowledged until 2.95 s before the fault survived; first acknowledgement 4.19 s after the fault",
        "Valid yes : all 2 controls gave the expected result",
        "Recommended none, because crash tests are not ranked; a plan ranks configurations",
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
    assert not re.search(r"https?:|@import|<script[^>]+src|<link|url\((?!#)", without_library(text))
    for tag, attributes in Page(text).tags:
        for name in ("src", "href", "xlink:href", "srcset", "data"):
            link = attributes.get(name) or "#"
            assert link.startswith(("#", "./")), (tag, link)


def test_charts_are_named_for_those_who_do_not_see_them(run: RunRecord) -> None:
    page = Page(render(run))
    # One of speed against loss, and a timeline of each crash test.
    assert len(page.charts) == 1 + len(run.cycles)
    assert all((chart["aria-label"] or "").count(": ") for chart in page.charts)
    assert render(run).count("<summary>Values of this chart</summary>") == len(page.charts)


def test_every_identity_is_there_once_and_every_anchor_leads_somewhere(run: RunRecord) -> None:
    tags = Page(render(run)).tags
    identities = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(identities) == len(set(identities))
    anchors = {(attributes.get("href") or "")[1:] for tag, attributes in tags if tag == "a"}
    assert {anchor for anchor in anchors if not anchor.startswith("/")} <= set(identities)


def test_no_two_headings_are_the_same(run: RunRecord, plan_run: RunRecord) -> None:
    for record in (run, plan_run):
        page = without_scripts(render(record)).replace("\n", " ")
        outer = re.sub(r"<details.*?</details>", "", re.sub(r"<figure.*?</figure>", "", page))
        headings = re.findall(r"<h[123][^>]*>(.*?)</h[123]>", outer)
        assert len(headings) == len(set(headings))


def test_a_crash_test_says_what_it_could_have_shown(run: RunRecord) -> None:
    assert "could have shown</h3>" not in render(run)
    run.cycles[0].sensitivity = [
        Sensitivity(defect=Defect.FLUSH, instances=1963, in_some_state=16, in_this_cut=3),
        Sensitivity(defect=Defect.FUA, instances=0, in_some_state=0),
    ]
    text = render(run)
    row = re.search(r"<th scope=.row.>a missing flush of all members</th>(.*?)</tr>", text)
    assert row is not None
    assert re.findall(r">([\d,]+)</td>", row[1]) == ["1,963", "16", "3"]
    assert Defect.FUA.value not in text


def test_crash_states_that_could_not_be_checked_are_named(run: RunRecord) -> None:
    assert "No crash state was checked" not in render(run)
    run.cycles[0].no_states = "provider hosts: crash states need the disk engine"
    assert "No crash state was checked after this crash test: provider hosts: crash states need" in render(run)


def test_light_and_dark(run: RunRecord) -> None:
    text = render(run)
    light, dark, _printed = re.findall(r":root \{(.*?)\}", text, re.DOTALL)
    defined = re.compile(r"--[a-z-]+(?=:)")
    assert "prefers-color-scheme: dark" in text
    assert set(defined.findall(light)) == set(defined.findall(dark))


def test_unknown_is_a_dash_and_no_zero(broken_run: RunRecord) -> None:
    page = Page(render(broken_run))
    start = next(place for place, cell in enumerate(page.cells) if cell.startswith("a server that does not boot"))
    figures = page.cells[start + 3 : start + 3 + len(columns())]
    assert figures == ["sync", "volatile", *["-"] * 14]
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


def test_green_is_never_the_pass_of_what_loses_data(run: RunRecord) -> None:
    text = render(run)
    badges = re.compile(r'class="outcome (\w+)"')
    assert badges.findall(text.split("</header>")[0]) == ["plain", "SAFE", "LOSES_DATA"]
    rows = text.split("<tbody>")[1].split("</tbody>")[0].split("<tr>")[1:]
    assert [badges.findall(row) for row in rows] == [
        *[["PASS", "SAFE"], ["plain", "LOSES_DATA"], ["plain", "LOSES_DATA"], ["PASS", "NOT_SHOWN"]]
    ]
    for cycle in run.cycles:
        cycle.verdicts = []
    run.cycles = run.cycles[1:3]
    assert "PASS" not in badges.findall(render(run))


def test_what_makes_one_row_different_is_said_of_it(run: RunRecord) -> None:
    assert "Only in this row" not in Page(render(run)).text
    run.cycles[1].effective["caveats"] = [*run.cycles[1].effective["caveats"], "dirty_expire is 1 s, not 30 s"]
    assert Page(render(run)).text.count("Only in this row: dirty_expire is 1 s, not 30 s.") == 1


def test_a_row_says_whether_it_is_safe_and_how_much_it_lost(run: RunRecord, plan_run: RunRecord) -> None:
    lost = "✗ LOSES DATA 20,047 of 20,183 acknowledged operations lost, the earliest 2.9 s before the fault"
    assert lost in Page(render(run)).text
    ranking = render(plan_run).split('<section id="cells"')[0].split('<section id="ranking"')[1]
    assert lost in " ".join(re.sub(r"<[^>]+>", " ", ranking).split())
    assert "all 1,518 acknowledged operations survived" in ranking


def test_a_run_without_anything_is_still_a_page(run: RunRecord) -> None:
    text = Page(render(RunRecord(run="x", started=run.started, command=[]))).text
    assert "INCONCLUSIVE" in text
    assert "The record contains no configuration" in text


def test_a_plan_begins_with_its_ranking_and_leaves_out_what_is_empty(
    plan_run: RunRecord, uncut_run: RunRecord
) -> None:
    def sections(record: RunRecord) -> list[str]:
        return [str(attributes["id"]) for tag, attributes in Page(render(record)).tags if tag == "section"]

    always = ["configuration", "environment", "limits", "repeat"]
    assert sections(plan_run) == ["ranking", "cells", "table", "verdicts", *always]
    assert sections(uncut_run) == ["ranking", "cells", *always]


@pytest.mark.parametrize(
    "fact",
    [
        "a power cut tested the promises of 2 of 11 cells",
        "building, preparing and checking took 36% of the repetitions' wall time (130 s of 205 s were timed)",
        "the power cut lost 20,047 of 20,183 acknowledged operations",
        "the workload measures a cache: 512 MiB fit into the server's 768 MiB of memory",
        "the median is 65% of the value expected of the hardware",
        "no steady state",
        "RAID5 reads 0.9 blocks for each block written: wsize 32 KiB never fills a 192 KiB stripe",
        "(members - 1) x media rate, at most the network",
        "RAID6 needs at least 4 members: 3 are there 2: level=6 chunk=16KiB export=sync",
        "the rig failed: gave up waiting for server to answer",
        "skipped: blank members agree",
        "members.disk3.busy 0.850 0.850 0.850",
        "The plan, scenarios/plans/raid_chunk.toml, with seed 4711 and 3 rounds: # Which level and chunk",
        "round 2: level=1 chunk=64KiB export=sync",
        "grace and lease are 10 s, not the default 90 s all cells",
        "working set 512 MiB",
        "≠ 1MiB",
    ],
)
def test_what_a_reader_of_a_plan_looks_for(plan_run: RunRecord, fact: str) -> None:
    assert fact in Page(render(plan_run)).text


def test_no_promise_was_tested_where_no_power_was_cut(uncut_run: RunRecord) -> None:
    text = Page(render(uncut_run)).text
    assert "no promise was tested, because the plan has no power cut" in text
    assert "lost at the cut" not in text


def test_a_plan_page_holds_together(plan_run: RunRecord) -> None:
    tags = Page(render(plan_run)).tags
    identities = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(identities) == len(set(identities))
    anchors = {(attributes.get("href") or "")[1:] for tag, attributes in tags if tag == "a"}
    assert {anchor for anchor in anchors if not anchor.startswith("/")} <= set(identities)


def test_a_large_page_keeps_details_until_they_are_opened(
    plan_run: RunRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = render(plan_run)
    monkeypatch.setattr(html, "MOST_INLINE", 2)
    packed = render(plan_run)
    details = "RAID5 reads 0.9 blocks for each block written"
    begin = '<details id="cell-'
    assert details in whole.partition(begin)[2]
    assert "members.disk3.busy" not in packed
    parts = unpacked(packed)["parts"]
    assert set(parts) == {f"cell-{n}" for n in range(1, 12)} | {
        f"cycle-{n}" for n in range(1, 1 + len(plan_run.cycles))
    }
    assert "members.disk3.busy" in parts["cell-1"]


def test_a_plan_of_which_nothing_was_visited_is_still_a_page(plan_run: RunRecord) -> None:
    plan_run.cells, plan_run.cycles = [], []
    assert "No cell was measured." in Page(render(plan_run)).text


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=4, deadline=None)
@given(st.text())
def test_whatever_a_cell_says_is_text(plan_run: RunRecord, text: str) -> None:
    evil = f"<script>alert(1)</script>{text}'\"><img src=x>\x1b"
    cell, plan = plan_run.cells[0], plan_run.plan
    assert plan is not None
    cell.name = cell.cause = cell.why_not = cell.flag = cell.limit = cell.reason = plan.text = plan.path = evil
    cell.settings, cell.expected = {evil: evil}, {evil: evil}
    cell.repeats[0].derived, cell.repeats[0].files = {evil: evil}, {evil: f"javascript:{evil}"}
    plan.impossible, plan.order = [(evil, evil)], [(1, evil)]
    page = without_scripts(render(plan_run))
    assert not re.search(r"<script|<img|\x1b|href=\"\./javascript:", page)
    assert not {tag for tag, _ in Page(page).tags} & {"script", "img"}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=8, deadline=None)
@given(st.text())
def test_whatever_a_record_says_is_text(run: RunRecord, text: str) -> None:
    evil = f"<script>alert(1)</script>{text}'\"><img src=x>\x1b"
    cycle = run.cycles[1]
    cycle.title = cycle.reason = cycle.rig_error = cycle.fault = cycle.cache_mode = run.run = run.reason = evil
    cycle.files = Files(consoles={evil: f"javascript:{evil}"})
    cycle.asked |= {evil: {evil: evil}}
    cycle.disks = {evil: {evil: evil}}
    cycle.observed = Observations(export=[evil], calls={evil: {evil: 1}}, replies=RepliesSeen(why_not=evil))
    cycle.during = [FaultRecord(fault=evil, target=evil, proof=evil, lasted=evil)]
    run.topology = {evil: [{evil: evil}], "more": evil}
    run.command = [evil]
    page = without_scripts(render(run))
    assert not re.search(r"<script|<img|\x1b|href=\"\./javascript:", page)
    assert not {tag for tag, _ in Page(page).tags} & {"script", "img"}


def test_what_was_wrong_all_the_while_is_told(run: RunRecord) -> None:
    run.cycles[0].during = [
        FaultRecord(fault="degraded", target="disk1", proof="1 member missing", lasted="5 events behind")
    ]
    page = render(run)
    assert "degraded (disk1): 1 member missing, 5 events behind" in page
    assert "; during degraded (disk1)" in page


def test_the_other_faults_are_told_with_their_times(run: RunRecord) -> None:
    cycle, main_ns = run.cycles[0], 10**10
    cycle.fault_begun_ns, cycle.resumed_ns = main_ns, 2 * main_ns

    def fault(name: str, begun_s: float, **fields: object) -> FaultRecord:
        begun_ns = main_ns + int(begun_s * 1e9)
        one = {"fault": name, "target": "t", "proof": "so", "begun_ns": begun_ns}
        return FaultRecord.model_validate(one | fields)

    cycle.during = [
        fault("network-cut", -3, resumed_ns=main_ns - 10**9),
        fault("member-fails", -1.5, healed_ns=main_ns + 5 * 10**9),
        fault("cut-in-recovery", 2, after_stage="assemble"),
        fault("power-cut", 12),
    ]
    assert happening(cycle).partition("; ")[2] == (
        "after network-cut (t); during member-fails (t); interrupted after the stage assemble by cut-in-recovery (t); "
        "then power-cut (t)"
    )
    assert "member-fails (t), -1.50 s: so; cut-in-recovery (t), +2.00 s: so" in render(run)


def test_the_file_is_there_whole(run: RunRecord, tmp_path: Path) -> None:
    write_html(run, tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text() == render(run)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
