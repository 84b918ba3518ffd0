from io import StringIO
from typing import Any

from rich.console import Console

from raidproof.plan.forecast import describe
from tests.plan.conftest import Make


def told(make: Make, **other: Any) -> str:
    matrix = make({"level": [5, 6, 1], "chunk": ["16KiB", "64KiB"], "wsize": ["32KiB", "1MiB"]}, **other)
    console = Console(width=120, file=StringIO(), record=True)
    console.print(describe(matrix))
    return console.export_text()


def test_the_description_has_all_relevant_facts(make: Make) -> None:
    text = told(
        make,
        hardware={"disks": {"count": 3}, "network": {"rate": "1Gbit"}},
        fixed={"export": "async"},
        run={"cut": "power", "repeats": 2},
    )
    assert "hardware: 3 x disk without latency, 1GiB each, placement spread; network 1Gbit; 1 client" in text
    assert "fixed: export=async" in text
    assert "NFS lease 10 s, grace period 10 s (the kernel's default: 90 s)" in text
    assert "cells: 6 of 12 combinations; repetitions of each: 2; seed 1" in text
    assert "first resync: skipped (assume_clean); power cut: once for each configuration, after two controls" in text
    assert "chunk is left out where level is 1" in text
    assert text.count("impossible: RAID6 needs at least 4 members, not 3") == 1
    assert "  level=6 chunk=16KiB wsize=32KiB" in text
    assert "  and 1 more combinations" in text
    assert "expected: 12 repetitions, about" in text
    assert "needs 1.5 GiB of memory" in text


def test_the_description_omits_what_does_not_apply(make: Make) -> None:
    text = told(make)
    assert "impossible" not in text
    assert "fixed" not in text
    assert "power cut: none" in text


def test_a_table_of_cells_has_more_than_their_numbers(make: Make) -> None:
    console = Console(width=120, file=StringIO(), record=True)
    console.print(describe(make({}), in_full=True))
    assert not any(line.lstrip().startswith("#") for line in console.export_text().splitlines())
    assert any(line.lstrip().startswith("#") and " level " in line for line in told(make).splitlines())
