"""The Markdown of a summary, parsed by a parser of GitHub's tables."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from raidproof.record.cell import Explored
from raidproof.record.comparison import Change, ComparisonRecord
from raidproof.record.outcome import Outcome
from raidproof.record.run import RunRecord
from raidproof.report.results.summary import MARKS, OTHER, escaped, pair_row, summary_of_comparison, summary_of_run
from raidproof.verdict.change.comparison import compare

DATA = Path(__file__).resolve().parents[2] / "data" / "run"


@pytest.fixture
def comparison() -> ComparisonRecord:
    base, new = (RunRecord.model_validate_json((DATA / f"ab-{side}.json").read_text()) for side in ("base", "new"))
    return compare(base, new, name="two-ab")


def tables(text: str) -> list[list[list[str]]]:
    """Return the rows of each table; each row is a list of texts."""
    found: list[list[list[str]]] = []
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    for token in tokens:
        if token.type == "table_open":
            found.append([])
        elif token.type == "tr_open":
            found[-1].append([])
        elif token.type == "inline" and found and token.level > 3:
            found[-1][-1].append("".join(child.content for child in token.children or []))
    return found


def test_the_demos_summary(run: RunRecord) -> None:
    said = summary_of_run(run)
    assert said.startswith(f"### {MARKS[Outcome.PASS]} raidproof: {run.run}: PASS\n")
    assert "* SAFE: sync export, honest disks\n* LOSES DATA: async export, honest disks\n" in said
    (table,) = tables(said)
    assert table[0] == ["crash test", "fault", "acknowledged", "lost", "work lost [s]", "safety", "verdict"]
    assert [row[0] for row in table[1:]] == [one.title for one in run.cycles]
    assert table[2][2:] == ["20,183", "20,047", "2.95", "LOSES DATA", "PASS"]
    assert table[3][-1] == "PASS (control behaved)"


def test_a_plans_summary_has_rank_expected_value_and_loss(plan_run: RunRecord) -> None:
    first, *_ = tables(summary_of_run(plan_run))
    head, *rows = first
    assert head[:2] == ["rank", "cell"]
    assert head[5:] == ["expected", "% of expected", "lost", "safety", "verdict"]
    ranked = [cell for cell in plan_run.cells if cell.rank == 1]
    assert ["1", ranked[0].name] == rows[0][:2]
    assert {row[1] for row in rows} <= {cell.name for cell in plan_run.cells}
    assert all(len(row) == len(head) for row in rows)


def test_columns_without_any_value_are_left_out(plan_run: RunRecord) -> None:
    for cell in plan_run.cells:
        cell.expected = cell.lost = None
    for table in tables(summary_of_run(plan_run))[:1]:
        assert {"expected", "% of expected", "lost"}.isdisjoint(table[0])
        assert {len(row) for row in table} == {len(table[0])}


def test_what_failed_is_named(run: RunRecord) -> None:
    run.outcome = run.cycles[0].outcome = Outcome.FAIL
    run.reason = run.cycles[0].reason = "3 operations lost"
    said = summary_of_run(run)
    assert said.startswith(f"### {MARKS[Outcome.FAIL]}")
    assert "\n3 operations lost\n" in said
    assert "* sync export, honest disks: FAIL: 3 operations lost\n" in said


def test_nothing_counts_in_an_invalid_run(invalid_run: RunRecord) -> None:
    said = summary_of_run(invalid_run)
    assert said.startswith(f"### {OTHER}")
    assert "no PASS of this run counts" in said
    assert "SAFE: " not in said


def test_a_comparisons_summary(comparison: ComparisonRecord) -> None:
    said = summary_of_comparison(comparison)
    assert f"raidproof: two-ab: {comparison.outcome.value}" in said
    *cells, versions, cuts = tables(said)
    assert [row[0] for table in cells for row in table[1:]] == [pair.name for pair in comparison.pairs]
    assert versions[1][:3] == ["kernel", "6.1.176", "6.12.101"]
    assert cuts[0] == ["configuration", "base: lost", "verdict", "new: lost", "verdict"]
    assert len(cuts) == 1 + len(comparison.cuts)


def test_the_interval_of_a_ratio_is_there_once(comparison: ComparisonRecord) -> None:
    change = Change(ratio=1.02, low=0.99, high=1.05, p=0.4, corrected=0.4, blocks=[5], least=None)
    assert pair_row(comparison.pairs[0].model_copy(update={"change": change}))[3] == "1.020 (0.990-1.050)"


def test_a_run_without_any_part(run: RunRecord) -> None:
    empty = RunRecord(run="x", started=run.started, command=[], outcome=Outcome.ERROR, reason="no lab booted")
    assert summary_of_run(empty) == f"### {OTHER} raidproof: x: ERROR\n\nno lab booted\n"


@given(st.text(max_size=40))
def test_text_stays_text(text: str) -> None:
    shown = MarkdownIt("commonmark").enable("table").enable("strikethrough").render(f"x {escaped(text)} x")
    assert shown.count("<") == 2  # one paragraph, and nothing in it
    assert shown.startswith("<p>x")


@given(st.text(max_size=40))
def test_text_stays_in_its_column(text: str) -> None:
    (table,) = tables(f"| a | b |\n| --- | --- |\n| {escaped(text)} | b |\n")
    assert [len(row) for row in table] == [2, 2]
    assert table[1][1] == "b"


def test_names_of_settings_are_not_escaped() -> None:
    assert escaped("stripe_cache_size=256 wsize=8KiB") == "stripe_cache_size=256 wsize=8KiB"
    assert escaped("_x_ <b> | a*b") == "\\_x\\_ \\<b\\> \\| a\\*b"


def test_a_broken_crash_state_is_in_the_summary(run: RunRecord) -> None:
    fields = {"file": "explore-a.json", "judged": 300, "reason": "so"}
    run.cycles[0].explored = [Explored(broken=0, outcome=Outcome.PASS, **fields)]
    assert tables(summary_of_run(run))[0][1][-2:] == ["SAFE; 300 crash states, none broken", "PASS"]
    run.cycles[0].explored = [Explored(broken=5, outcome=Outcome.FAIL, **fields)]
    said = summary_of_run(run)
    assert tables(said)[0][1][-2:] == ["LOSES DATA", "FAIL"]
    assert "* SAFE" not in said
    assert "sync export, honest disks, crash states: FAIL: so" in said
