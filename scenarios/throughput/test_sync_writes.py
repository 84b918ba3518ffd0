"""Small synchronous writes are as fast as the model expects: within 25 %, for every level and file system."""

from pathlib import Path

import pytest

from raidproof.plan.cell import PlannedCell, cells_of
from raidproof.pytest_plugin.fixtures import Measure

PLAN = Path(__file__).resolve().parents[1] / "plans" / "sync_writes.toml"
LEAST, MOST = 0.75, 1.25
"""Accepted share of the expected value."""


def must_be_as_expected(measure: Measure, cell: PlannedCell) -> None:
    """Assert that a cell's median is between `LEAST` and `MOST` times its expected value.

    Raises:
        ProductError: the median is smaller.
        Inconclusive: the rig limited the measured value.
        AssertionError: the median is larger, or the places of files and log were not read back.
    """
    record = measure(cell).must_reach(LEAST).record
    assert record.ratio is not None
    assert record.ratio <= MOST
    assert record.expected is not None
    assert record.expected["placement"]["files"]
    assert record.expected["placement"]["log"]


@pytest.mark.parametrize("cell", cells_of(PLAN, k="level=5 and filesystem=ext4 and workload=random"), ids=str)
def test_a_small_synchronous_write_takes_the_expected_time(measure: Measure, cell: PlannedCell) -> None:
    must_be_as_expected(measure, cell)


@pytest.mark.exhaustive
@pytest.mark.parametrize("cell", cells_of(PLAN), ids=str)
def test_small_synchronous_writes_take_the_expected_time(measure: Measure, cell: PlannedCell) -> None:
    must_be_as_expected(measure, cell)
