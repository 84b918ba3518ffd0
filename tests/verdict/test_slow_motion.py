"""The remedy for cells that a processor of the simulation limited."""

from typing import Any

import pytest

from raidproof.verdict.cell import conclude_plan, judge_cells
from raidproof.verdict.slow_motion import NO_LATENCY
from tests.verdict.test_cell import cell, run

SIMULATED = {"slow_motion": 1.0, "disks": [{"serial": "disk0", "profile": "ssd-sata"}]}


@pytest.mark.parametrize(
    ("used", "expected", "said"),
    [
        # The simulation did 10 at most; the hardware would do 40: a quarter, of which a free share remains.
        (1.0, 40.0, "set slow_motion = 6 in the plan's table [hardware], or end other programs"),
        (2.0, 40.0, "set slow_motion = 11 in"),
        (1.0, 9.0, "set slow_motion = 2 in"),
        (1.0, None, "set slow_motion = 2 in"),
        (6.0, 10.0, "set slow_motion = 8 in"),
        (1.0, 40_000.0, "this host is too slow to simulate this hardware: use a faster one"),
    ],
)
def test_a_cell_that_the_simulation_limited_has_the_remedy_with_its_value(
    used: float, expected: float | None, said: str
) -> None:
    slow, fine = cell("slow", 10, 10), cell("fine", 10, 10)
    slow.expected = None if expected is None else {"value": expected}
    for repeat in slow.repeats:
        repeat.limit = "host cpu"
    record = run(slow, fine)
    record.topology = SIMULATED | {"slow_motion": used}
    judge_cells(record)
    assert slow.why_not is not None
    assert said in slow.why_not
    assert fine.why_not is None
    alone = run(slow)
    alone.topology = record.topology
    judge_cells(alone)
    assert said in conclude_plan(alone)[1]


def test_one_factor_is_for_all_cells() -> None:
    cells = [cell(name, 10, 10, expected={"value": value}) for name, value in (("a", 40.0), ("b", 80.0))]
    for one in cells:
        for repeat in one.repeats:
            repeat.limit = "engine"
    record = run(*cells)
    record.topology = SIMULATED
    judge_cells(record)
    assert all("slow_motion = 11" in (one.why_not or "") for one in cells)


@pytest.mark.parametrize(
    ("topology", "said"),
    [
        ({"slow_motion": 1.0, "disks": [{"serial": "disk0", "profile": None}]}, NO_LATENCY),
        ({"slow_motion": 1.0, "disks": [], "inventory": "inventory.toml"}, None),
        ({}, None),
    ],
)
def test_without_simulated_latency_slow_motion_is_no_remedy(topology: dict[str, Any], said: str | None) -> None:
    one = cell("a", 10, 10)
    for repeat in one.repeats:
        repeat.limit = "server cpu"
    record = run(one)
    record.topology = topology
    judge_cells(record)
    words = (one.why_not or "") + conclude_plan(record)[1]
    assert "slow_motion" not in words
    assert words.count(NO_LATENCY) == (2 if said else 0)
