from collections.abc import Callable
from typing import Any

import pytest

from raidproof.plan.cell import Matrix, matrix_of
from raidproof.plan.plan import Plan, read_plan

Make = Callable[..., Matrix]


def plan_of(axes: dict[str, Any] | None = None, **other: Any) -> Plan:
    document = {"axes": axes or {}, "workload": [{"tool": "dd"}], **other}
    return read_plan(document, source="here.toml", name="here")


@pytest.fixture
def make() -> Make:
    def matrix(axes: dict[str, Any] | None = None, **other: Any) -> Matrix:
        return matrix_of(plan_of(axes, **other))

    return matrix


@pytest.fixture
def read() -> Callable[..., Plan]:
    return plan_of
