"""Assertions about a measured cell: each passes, fails, or is INCONCLUSIVE."""

from pathlib import Path
from typing import Any

import pytest

from raidproof.core.errors import Inconclusive, ProductError, RequestError, RigError
from raidproof.pytest_plugin.fixtures import Measured
from raidproof.record.cell import CellRecord, Repetition
from raidproof.verdict.cell import judge_cell


def measured(name: str, *values: float, limit: str = "disks", unit: str = "write_mb_s", **changes: Any) -> Measured:
    repeats = [Repetition(round=number, value=value, limit=limit) for number, value in enumerate(values, start=1)]
    record = CellRecord(
        name=name, settings={}, workload={}, unit=unit, asked={}, **{"repeats": repeats, **changes}
    )  # fmt: skip
    judge_cell(record, None)
    return Measured(record, Path("results/run"))


def test_a_cell_that_was_measured() -> None:
    one = measured("a", 100)
    assert one.must_be_measured() is one


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"not_effective": "wsize: found 64 KiB"}, ProductError),
        ({"repeats": [Repetition(round=1, rig_error="no answer")]}, RigError),
        ({}, Inconclusive),
    ],
)
def test_a_cell_that_was_not(changes: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^a: .*see results/run"):
        measured("a", **changes).must_be_measured()


def test_a_share_of_what_was_expected() -> None:
    one = measured("a", 80, expected={"value": 100.0})
    one.must_reach(0.8)
    with pytest.raises(ProductError, match="80% of the expected value"):
        one.must_reach(0.9)
    with pytest.raises(Inconclusive, match="no formula gives the expected value"):
        measured("a", 80).must_reach(0.1)


@pytest.mark.parametrize("limit", ["host cpu", "engine"])
def test_a_value_limited_by_this_machine_is_inconclusive(limit: str) -> None:
    one = measured("a", 80, limit=limit, expected={"value": 100.0})
    with pytest.raises(Inconclusive, match=f"the rig \\({limit}\\) limited"):
        one.must_reach(0.1)
    with pytest.raises(Inconclusive, match=f"the rig \\({limit}\\) limited"):
        measured("b", 800).must_be_faster_than(one)


def test_faster_in_every_repetition() -> None:
    slow, fast = measured("slow", 10, 12), measured("fast", 20, 24)
    fast.must_be_faster_than(slow, by=0.5)
    with pytest.raises(Inconclusive, match="overlap"):
        fast.must_be_faster_than(slow, by=0.8)
    with pytest.raises(ProductError, match="10 to 12 write_mb_s, and fast 20 to 24"):
        slow.must_be_faster_than(fast)


def test_what_cannot_be_compared() -> None:
    with pytest.raises(RequestError, match="read_iops cannot be compared with write_mb_s"):
        measured("a", 9, unit="read_iops").must_be_faster_than(measured("b", 1))
