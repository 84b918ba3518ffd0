"""The table of a self-test."""

from io import StringIO
from pathlib import Path

from rich.console import Console

from raidproof.core.waiting import wall_clock
from raidproof.record.outcome import Outcome
from raidproof.record.selftest import SelftestAnswer, SelftestRecord, SelftestRow
from raidproof.report.selftest import show_selftest


def test_each_defect_has_a_row_with_its_answer_and_a_line_with_the_reason() -> None:
    rows = [
        SelftestRow(
            defect=defect,
            says="disk1 drops flushes",
            cycle="c",
            outcome=Outcome.PASS,
            reason="all 12 acknowledged operations survived",
            states=1200,
            seconds=5.25,
            answer=answer,
        )
        for defect, answer in ((None, SelftestAnswer.PASSED), ("dropped-flushes", SelftestAnswer.MISSED))
    ]
    record = SelftestRecord(
        run="run", started=wall_clock(), command=["raidproof"], rows=rows, outcome=Outcome.FAIL, reason="one is missed"
    )
    stream = StringIO()
    show_selftest(record, Path("selftest.json"), Console(file=stream, width=120))
    lines = [" ".join(one.split()) for one in stream.getvalue().splitlines()]
    assert "none passed disk1 drops flushes 1,200 5.2" in lines
    assert "dropped-flushes missed disk1 drops flushes 1,200 5.2" in lines
    assert "dropped-flushes: PASS: all 12 acknowledged operations survived" in lines
    assert lines[-2:] == ["FAIL: one is missed", "stored: selftest.json"]
