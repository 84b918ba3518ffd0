"""The answer of `raidproof advise` on the terminal and as a page."""

import re

import pytest
from rich.console import Console

from raidproof.core.waiting import wall_clock
from raidproof.record.advice import (
    AdviceRecord,
    AdvisedLine,
    Configuration,
    Drop,
    Dropped,
    FreeAxisRecord,
    LeftOut,
    ModelRecord,
    Picked,
    PickedBy,
    RatioRecord,
    RungRecord,
)
from raidproof.record.outcome import Outcome
from raidproof.report.advice import (
    DESTROYS,
    describe,
    front_table,
    interval,
    line_groups,
    line_text,
    meaning,
    model,
    render,
    rung_table,
    show_advice,
)
from raidproof.storage.deployment import COMMAND, Line, Work

CURRENT, BEST = "chunk=512KiB wsize=64KiB", "chunk=64KiB wsize=1MiB"


def ratio(value: float, low: float | None = None, high: float | None = None, rounds: int = 4) -> RatioRecord:
    return RatioRecord(ratio=value, low=low, high=high, rounds=rounds)


def line(text: str, work: Work, machine: str = "server", place: str = COMMAND) -> AdvisedLine:
    return AdvisedLine(
        line=Line(machine=machine, place=place, text=text, work=work),
        run="a-run",
        cell=BEST,
        repetitions=7,
        cycle="cut-001",
    )


def a_record() -> AdviceRecord:
    return AdviceRecord(
        run="a-run",
        plan="here",
        digest="",
        command=["./raidproof", "advise", "here <b>.toml"],
        started=wall_clock(),
        ended=wall_clock(),
        budget_s=2400,
        spent_s=2300,
        seed=1,
        workload="fio",
        unit="write_mb_s",
        current=CURRENT,
        fixed={"level": "5"},
        axes=[
            FreeAxisRecord(name="chunk", values=["512KiB", "64KiB"], assumed=True, work=Work.ARRAY),
            FreeAxisRecord(name="wsize", values=["64KiB", "1MiB"], assumed=False, work=Work.REMOUNT, note="a remark"),
        ],
        candidates=4,
        expected=4,
        rungs=[
            RungRecord(
                round=1,
                picked=[Picked(name=CURRENT, by=PickedBy.CURRENT), Picked(name=BEST, by=PickedBy.CHANCE)],
                left=40,
            ),
            RungRecord(
                round=2,
                picked=[Picked(name=BEST, by=PickedBy.RESULTS)],
                dropped=[Dropped(name="x", why=Drop.SLOWER)],
                final=True,
                seconds=12.3,
            ),
        ],
        model=ModelRecord(expected=4, compared=3, correlation=0.5, compared_random=1),
        configurations=[
            Configuration(
                name=BEST, settings={"chunk": "64KiB", "wsize": "1MiB"}, changes={"chunk": "64KiB", "wsize": "1MiB"},
                median=100.0, repetitions=7, against_current=ratio(2.0, 1.9, 2.1), latency_ms=3.0, safety="SAFE",
                lost=0, acknowledged=1234, lost_s=0.0, cycle="cut-001", on_front=True,
            ),
            Configuration(
                name=CURRENT, settings={"chunk": "512KiB", "wsize": "64KiB"}, changes={}, median=50.0, repetitions=7,
                safety="LOSES DATA", lost=7, acknowledged=1000, cycle="cut-002", why_not="LOSES DATA: 7 of 1,000",
            ),
        ],
        recommended=BEST,
        left_out=[
            LeftOut(axis="chunk", value="64KiB", current="512KiB", cell="x", ratio=ratio(0.8, 0.7, 0.9)),
            LeftOut(axis="wsize", value="1MiB", current="64KiB", cell=""),
        ],
        lines=[
            line("mdadm --create /dev/md/YOUR-ARRAY", Work.ARRAY),
            line("mkfs.xfs /dev/md/YOUR-ARRAY", Work.FILESYSTEM),
            line("YOUR-SERVER:/x nfs wsize=1048576", Work.REMOUNT, "clients", "/etc/fstab"),
            line("/YOUR/EXPORT YOUR-CLIENTS(rw,sync)", Work.NONE, place="/etc/exports"),
        ],
        outcome=Outcome.PASS,
        reason="recommended: chunk=64KiB, wsize=1MiB",
    )  # fmt: skip


@pytest.fixture
def record() -> AdviceRecord:
    return a_record()


def shown(record: AdviceRecord) -> str:
    console = Console(width=200, record=True, quiet=True)
    console.quiet = False
    with console.capture() as captured:
        show_advice(record, console)
    return captured.get()


def test_the_page_has_every_part_and_escapes_text(record: AdviceRecord) -> None:
    page = render(record)
    for text in (
        *(one.line.text for one in record.lines[:3]),
        "0 of 1,234",
        "2.00 (1.90-2.10, n=4)",
        "cut-001",
        "a remark",
    ):
        assert text in page
    assert "here &lt;b&gt;.toml" in page
    assert "Incomplete" not in page
    assert set(re.findall(r'href="#([\w-]+)"', page)) <= set(re.findall(r'id="([\w-]+)"', page))


def test_each_destructive_command_has_a_warning(record: AdviceRecord) -> None:
    assert render(record).count(DESTROYS) == 2
    said = list(line_text(record))
    for number, text in enumerate(said):
        if text.startswith(("mdadm", "mkfs")):
            assert said[number - 1] == f"# WARNING: {DESTROYS}"
    assert sum(text.startswith("# WARNING") for text in said) == 2


def test_lines_of_the_current_configuration_are_left_out(record: AdviceRecord) -> None:
    groups = line_groups(record)
    assert [(machine, place) for machine, place, _ in groups] == [("server", COMMAND), ("clients", "/etc/fstab")]
    # The array is made before its file system.
    assert [one.line.work for one in groups[0][2]] == [Work.ARRAY, Work.FILESYSTEM]
    assert "YOUR-CLIENTS" not in "".join(line_text(record))


def test_the_terminal_names_run_cell_and_repetitions(record: AdviceRecord) -> None:
    text = shown(record)
    assert "a-run" in text
    assert "7 repetitions" in text
    assert "2 of 4 candidates in 3 repetitions" in text
    assert "advice: PASS: recommended: chunk=64KiB, wsize=1MiB" in text
    assert "LOSES DATA" in text


def test_an_incomplete_search_without_an_answer_is_shown(record: AdviceRecord) -> None:
    empty = record.model_copy(
        update={
            "ended": None, "recommended": None, "configurations": [], "left_out": [], "lines": [], "model": None,
            "outcome": Outcome.INCONCLUSIVE, "reason": "no configuration was measured",
        }
    )  # fmt: skip
    assert "Incomplete" in render(empty)
    assert "No power was cut" in render(empty)
    assert "INCONCLUSIVE" in shown(empty)


def test_without_changes_no_lines_are_shown(record: AdviceRecord) -> None:
    record.recommended = CURRENT
    record.lines, record.left_out = [], []
    assert "mdadm" not in shown(record)
    assert 'id="changes"' not in render(record)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (None, "not measured"),
        (ratio(0.8), "too few rounds"),
        (ratio(0.8, 0.7, 0.9), "slower without it, by 10% to 30%"),
        (ratio(1.2, 1.1, 1.3), "faster without it, by 10% to 30%"),
        (ratio(0.9, 0.7, 1.1), "no effect is shown"),
    ],
)
def test_what_a_ratio_without_a_change_means(found: RatioRecord | None, text: str) -> None:
    assert text in meaning(LeftOut(axis="chunk", value="64KiB", current="512KiB", cell="x", ratio=found))


def test_an_interval_is_written_with_its_rounds() -> None:
    assert interval(ratio(1.5, 1.25, 1.75)) == "1.50 (1.25-1.75, n=4)"
    assert interval(ratio(1.5, rounds=1)) == "1.50 (no interval, n=1)"
    assert interval(None) == "-"


def test_latency_is_a_column_only_if_it_was_measured(record: AdviceRecord) -> None:
    assert "p99" in [one.title for one in front_table(record).fields]
    for one in record.configurations:
        one.latency_ms = None
    assert "p99" not in [one.title for one in front_table(record).fields]


def test_rounds_say_why(record: AdviceRecord) -> None:
    table = rung_table(record)
    rows = [[one.cell(row).text for one in table.fields] for row in table.rows]
    assert rows[0] == ["1", "2", "40", "current: 1, chance: 1", "", "0"]
    assert rows[1] == ["2", "1", "-", "last comparison; results: 1", "slower: 1", "12.3"]


def test_the_model_is_judged_in_words(record: AdviceRecord) -> None:
    (text,) = model(record)
    assert "0.50 over 3 configurations" in text
    assert "not defined over the 1" in text
    record.model = None
    assert "No formula" in next(model(record))


def test_what_is_varied_is_said_before_the_search(record: AdviceRecord) -> None:
    said = list(describe(record.axes, record.fixed, ["threads"], 4))
    assert said[0] == "current configuration: level=5 chunk=512KiB (assumed) wsize=64KiB"
    assert "not varied" in said[-1]
    assert "threads" in said[-1]
