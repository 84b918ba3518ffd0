"""The comparison on a terminal and as a page, from the stored records of a real A/B run."""

import io
import json
import re
from pathlib import Path

import pytest
from pydantic import ValidationError
from rich.console import Console

from raidproof.record.comparison import (
    BASE,
    NEW,
    Change,
    ComparisonRecord,
    Method,
    PairFinding,
    PromiseChange,
    RateChange,
    Version,
)
from raidproof.record.outcome import Outcome
from raidproof.record.results.store import RunStore
from raidproof.record.run import RunRecord
from raidproof.report import comparison as report
from raidproof.report.charts.drawing import script
from raidproof.report.charts.sides import loss_rows, ratio_rows, value_rows
from raidproof.report.comparison import show_comparison
from raidproof.report.html import render_comparison, write_comparison
from raidproof.verdict.change.comparison import compare
from tests.report.charts.unpacking import unpacked

DATA = Path(__file__).resolve().parents[1] / "data" / "run"


@pytest.fixture
def comparison() -> ComparisonRecord:
    base, new = (RunRecord.model_validate_json((DATA / f"ab-{side}.json").read_text()) for side in ("base", "new"))
    return compare(base, new, name="two-ab")


def shown(comparison: ComparisonRecord, width: int = 100) -> str:
    out = io.StringIO()
    show_comparison(comparison, Console(file=out, width=width, force_terminal=False), Path("results/two-ab/x.html"))
    return out.getvalue()


def test_the_table_has_both_sides_and_their_ratio(comparison: ComparisonRecord) -> None:
    said = shown(comparison)
    assert "kernel: base 6.1.176, new 6.12.101 (server, client1)" in said
    assert "effective value of filesystem.features differs: base nrext64=0, new nrext64=1 (all cells)" in said
    assert re.search(r"export=sync +23\.8 \(21\.3-26\.3\) +27\.8 \(22\.3-33\.2\) +2\+2 +1\.167 +not comparable", said)
    assert re.search(r"export=async +9,602 of 9,602 +PASS +2,897 of 2,897 +PASS", said)
    assert "comparison: INCONCLUSIVE: 2 cells: 2 not comparable" in said
    assert "report: results/two-ab/x.html" in said


def test_no_figure_is_lost_on_a_narrow_terminal(comparison: ComparisonRecord) -> None:
    said = shown(comparison, width=60)
    assert max(len(line) for line in said.splitlines() if line.startswith("\u2500")) <= 60
    for figure in ("5,670", "4,770", "0.842"):
        assert figure in said


def test_a_name_cannot_steer_the_terminal_or_the_page(comparison: ComparisonRecord) -> None:
    comparison.pairs[0].name = "level=5\x1b[2J<script>"
    assert "\x1b" not in shown(comparison)
    page = render_comparison(comparison)
    assert "\x1b" not in page
    assert "<script>" not in page.partition('<script type="application/gzip"')[0]


def test_the_page_needs_nothing_else(comparison: ComparisonRecord) -> None:
    page = render_comparison(comparison)
    assert not re.search(r"https?://|<script[^>]+src|<link|@import", page.replace(script(), ""))
    assert '<a href="../two-base/report.html">' in page
    assert "6.12.101" in page
    assert "the other is idle" in page
    assert "nrext64=1" in page


def test_the_charts_have_the_values_of_the_record(comparison: ComparisonRecord) -> None:
    drawn = unpacked(render_comparison(comparison))["data"]
    for name in (BASE, NEW):
        values = [value for pair in comparison.pairs for value in getattr(pair, name).values]
        assert [row["value"] for row in drawn["values"] if row["side"] == name] == pytest.approx(values)
    assert [(row["side"], row["lost"]) for row in drawn["losses"]] == [
        (name, getattr(cut, name).lost) for cut in comparison.cuts for name in (BASE, NEW)
    ]


def test_a_side_without_a_figure_has_no_bar(comparison: ComparisonRecord) -> None:
    pair = comparison.pairs[0]
    pair.new.median, pair.new.values, pair.ratio, pair.finding = None, [], None, PairFinding.ONE_SIDED
    pair.why = "new: ERROR, no answer"
    assert {row["side"] for row in value_rows(comparison.pairs[:1], 1)} == {BASE}
    assert "no answer" in shown(comparison)
    assert "no answer" in render_comparison(comparison)


def test_losses_are_drawn_where_power_was_cut(comparison: ComparisonRecord) -> None:
    assert [row["lost"] for row in loss_rows(comparison)] == [0, 0, 9602, 2897]
    comparison.cuts = []
    assert loss_rows(comparison) == []
    assert 'id="cuts"' not in render_comparison(comparison)


def test_promises_newly_broken_and_shares_of_states_are_named(comparison: ComparisonRecord) -> None:
    cut = comparison.cuts[0]
    assert cut.base is not None
    assert cut.new is not None
    cut.promises = [PromiseChange(checker="promise", kind="fsync", base=Outcome.PASS, new=Outcome.FAIL)]
    cut.base.states = cut.new.states = 200
    cut.base.broken_states, cut.new.broken_states = 0, 12
    cut.rate = RateChange(p=0.0004, corrected=0.0004)
    for said in (shown(comparison, width=200), render_comparison(comparison)):
        assert "export=sync: promise (fsync): newly broken by new" in said
        assert "broken on base 0 of 200 crash states, on new 12 of 200 crash states: the shares differ" in said
    cut.promises, cut.rate = [], None
    assert report.cut_changes(comparison) == []


def test_a_ratio_has_its_interval_and_the_repetitions_that_would_decide_it(comparison: ComparisonRecord) -> None:
    pair = comparison.pairs[0]
    pair.finding, pair.more, pair.why = PairFinding.UNDECIDED, 1234, ""
    pair.change = Change(ratio=1.012, low=0.97, high=1.056, p=0.4, corrected=1.0, blocks=[10])
    said = shown(comparison, width=200)
    assert "1.012 (0.970-1.056)" in said
    assert "about 1,234 more repetitions of each side would decide it" in said
    row = ratio_rows(comparison)[0]
    assert (row["ratio"], row["low"], row["high"], row["finding"]) == (1.012, 0.97, 1.056, "undecided")
    pair.change = Change(ratio=1.012, low=None, high=None, p=0.4, corrected=1.0, blocks=[2])
    assert "1.012 (no interval)" in shown(comparison, width=200)


def test_a_record_of_version_1_is_read_and_says_how_it_was_made(comparison: ComparisonRecord) -> None:
    older = comparison.model_dump(mode="json", exclude={"method", "margin", "confidence", "looks"})
    older["schema_version"] = 1
    older["pairs"][0]["finding"], older["pairs"][1]["finding"] = "higher", "no difference shown"
    read = ComparisonRecord.model_validate_json(json.dumps(older))
    assert [pair.finding for pair in read.pairs] == [PairFinding.FASTER, PairFinding.UNDECIDED]
    assert (read.schema_version, read.method) == (2, Method.RANGES)
    assert "without a statistical test" in render_comparison(read)
    older["schema_version"] = 3
    with pytest.raises(ValidationError):
        ComparisonRecord.model_validate(older)


def test_machines_with_the_same_versions_share_a_line() -> None:
    versions = [
        Version(machine=machine, what=what, base="1", new=new)
        for machine, what, new in (("server", "zlib", "2"), ("server", "kernel", "2"), ("client1", "kernel", "2"))
    ]
    versions.append(Version(machine="server", what="attr", base="1", new=None))
    assert report.by_versions(versions) == [
        ("kernel", "1", "2", "server, client1"),
        ("zlib", "1", "2", "server"),
        ("attr", "1", "not installed", "server"),
    ]


def test_many_packages_are_counted(comparison: ComparisonRecord) -> None:
    comparison.versions += [Version(machine="server", what=f"lib{n}", base="1", new="2") for n in range(20)]
    said = shown(comparison)
    assert "the versions of 15 other packages differ; the HTML report lists them" in said
    assert "Packages that differ: 20" in render_comparison(comparison)


def test_an_a_a_run_says_so(comparison: ComparisonRecord) -> None:
    comparison.alike, comparison.versions = True, [Version(machine="server", what="kernel", base="6.1", new="6.1")]
    assert "kernel: 6.1 on both sides (server); no package differs" in shown(comparison)
    assert "A/A run" in render_comparison(comparison)


def test_record_and_page_are_stored(comparison: ComparisonRecord, tmp_path: Path) -> None:
    page = write_comparison(comparison, RunStore(tmp_path))
    assert page.read_text().lstrip().startswith("<!doctype html>")
    stored = ComparisonRecord.model_validate_json((tmp_path / "comparison.json").read_text())
    assert stored == comparison
