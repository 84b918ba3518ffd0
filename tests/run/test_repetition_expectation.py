from typing import Any

import pytest

from raidproof.plan.cell import matrix_of
from raidproof.plan.plan import read_plan
from raidproof.run.repetition import expectation


def expected(unit: str, profile: str = "hdd-7200-sata", **work: Any) -> dict[str, Any] | None:
    document = {
        "hardware": {"disks": {"count": 4, "size": "1GiB", "profile": profile}},
        "fixed": {"level": 5},
        "workload": {"tool": "fio", **work},
    }
    matrix = matrix_of(read_plan(document, source="here.toml", name="here"))
    return expectation(matrix.plan.hardware.topology(), matrix.cells[0], unit)


def test_a_value_has_its_unit_and_its_formula() -> None:
    found = expected("read_mb_s", rw="read")
    assert found is not None
    assert found["value"] == found["mb_s"] > 0
    assert len(found) > 3


@pytest.mark.parametrize(
    ("unit", "changes"),
    [
        ("read_mb_s", {"rw": "read", "profile": "none"}),
        ("transactions_per_s", {"rw": "read"}),
        ("read_mb_s", {"rw": "read", "on": "disk0"}),
    ],
    ids=["no mechanics", "no formula", "a disk"],
)
def test_without_a_formula_no_value_is_expected(unit: str, changes: dict[str, Any]) -> None:
    assert expected(unit, **changes) is None
