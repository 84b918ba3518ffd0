"""How often a change is recommended: seldom if all configurations are equally fast, nearly always if one is faster."""

import math
import random
from collections.abc import Mapping

import pytest

from raidproof.run.advise.advisor import FINAL_ROUNDS
from tests.verdict.searched import BEST, CURRENT, Measured

EQUAL: Mapping[str, float] = dict.fromkeys(
    (CURRENT, BEST, "chunk=64KiB wsize=64KiB export=sync", "chunk=512KiB wsize=1MiB export=sync"), 100.0
)
SEARCH_ROUNDS = 3


def share_with_change(speeds: Mapping[str, float], noise: float, rounds: int, searches: int) -> float:
    """Return the share of simulated searches that recommend a change.

    ``noise``: standard deviation of the logarithm of a repetition's speed. ``rounds``: those of the last comparison.
    """
    source, changed = random.Random(28), 0
    measured = Measured()
    for name in speeds:
        measured.measure(name)
        measured.cut(name)

    def drawn(number: int) -> dict[str, list[float]]:
        return {
            name: [speed * math.exp(source.gauss(0, noise)) for _ in range(number)] for name, speed in speeds.items()
        }

    for _ in range(searches):
        for cell in measured.run.cells:
            cell.repeats.clear()
        measured.add(drawn(SEARCH_ROUNDS))
        measured.compare(drawn(rounds))
        chosen = measured.judge().chosen
        assert chosen is not None
        changed += bool(chosen.changes)
    return changed / searches


@pytest.mark.parametrize("rounds", [2, FINAL_ROUNDS])
def test_a_change_is_seldom_recommended_if_all_configurations_are_equally_fast(rounds: int) -> None:
    assert share_with_change(EQUAL, 0.10, rounds, 250) <= 0.05


def test_a_configuration_that_is_clearly_faster_is_recommended_in_spite_of_the_noise() -> None:
    assert share_with_change({**EQUAL, BEST: 130.0}, 0.10, FINAL_ROUNDS, 100) >= 0.9
