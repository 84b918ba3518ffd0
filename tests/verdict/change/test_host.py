"""Stored runs on a host whose speed drifts: simulated comparisons and histories, with fixed seeds."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from raidproof.record.cell import CellRecord, Repetition
from raidproof.record.comparison import PairFinding
from raidproof.record.outcome import Outcome
from raidproof.verdict.change.change_point import find_changes
from raidproof.verdict.change.difference import Rules, judge_pairs
from raidproof.verdict.change.history import histories
from raidproof.verdict.change.host import NO_REFERENCE, OTHER_VERSION, account_for_host
from raidproof.verdict.change.matching import compare_stored
from tests.stored_runs import SYNC, reference, run_with

DRIFT, MEMORY = 0.05, 0.9
"""Standard deviation of the host's speed, and its autocorrelation from one repetition to the next."""
CALLED = {PairFinding.FASTER, PairFinding.SLOWER}
RULES = Rules(paired=False)
TIMES = 300
FAST, SLOW = (100, 101, 102, 99, 98), (80, 81, 79, 82, 78)


def host_speeds(generator: np.random.Generator, steps: int, memory: float) -> NDArray[np.float64]:
    """Return the speed of a host at each step: the exponential of a first-order autoregressive series."""
    drift = [generator.normal(0, DRIFT)]
    for noise in generator.normal(0, DRIFT * math.sqrt(1 - memory**2), steps - 1):
        drift.append(memory * drift[-1] + noise)
    speeds: NDArray[np.float64] = np.exp(np.array(drift))
    return speeds


class Host:
    """A host that drifts: each repetition has a reference measurement one step before its value."""

    def __init__(self, seed: int, *, share: float = 1.0, noise: float = 0.01, reference_noise: float = 0.02) -> None:
        """``share``: how much of the host's drift is in the values, as an exponent."""
        self.generator = np.random.default_rng(seed)
        self.share, self.noise, self.reference_noise = share, noise, reference_noise

    def repetitions(self, count: int, levels: Sequence[float]) -> list[Repetition]:
        """Return consecutive repetitions; ``levels``: the speed of the cell in each of them."""
        speeds = host_speeds(self.generator, 2 * count, math.sqrt(MEMORY))
        values = speeds[1::2] ** self.share * np.exp(self.generator.normal(0, self.noise, count)) * levels
        references = speeds[::2] * np.exp(self.generator.normal(0, self.reference_noise, count))
        return [
            Repetition(round=number, value=float(value), reference=reference(float(host)), limit="disks")
            for number, (value, host) in enumerate(zip(values, references, strict=True), start=1)
        ]

    def pairs(self, repeats: int, ratio: float) -> tuple[CellRecord, CellRecord]:
        """Return a cell on both sides, base measured first."""
        made = self.repetitions(2 * repeats, [100.0] * repeats + [100.0 * ratio] * repeats)
        return cell(made[:repeats]), cell(made[repeats:])


def cell(repeats: Sequence[Repetition], unit: str = "write_mb_s") -> CellRecord:
    made = CellRecord(name="c", settings={}, workload={}, unit=unit, asked={}, repeats=list(repeats))
    made.limit = "disks"
    return made


def shares(host: Host, *, ratio: float = 1.0, repeats: int = 6) -> tuple[float, float]:
    """Return the shares of comparisons that call a difference: by the values alone, and by both tests."""
    alone = both = 0
    for _ in range(TIMES):
        cells = [host.pairs(repeats, ratio)]
        found = judge_pairs(cells, RULES)
        alone += found[0].finding in CALLED
        both += account_for_host(found, cells, RULES)[0].finding in CALLED
    return alone / TIMES, both / TIMES


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_drift_of_the_host_is_called_a_change_in_at_most_5_percent_of_comparisons(share: float) -> None:
    alone, both = shares(Host(7, share=share))
    assert both <= 0.05
    # Without the reference, most calls are wrong as soon as the values contain the drift: the bound means something.
    assert share == 0.0 or alone > 0.2


def test_a_change_is_called_however_much_of_the_drift_is_in_the_values() -> None:
    assert [shares(Host(7, share=share), ratio=0.7)[1] > 0.8 for share in (0.0, 1.0)] == [True, True]


def test_the_noise_of_the_reference_widens_the_interval() -> None:
    widths = []
    for noise in (0.001, 0.2):
        cells = [Host(3, reference_noise=noise).pairs(6, 1.0)]
        change = account_for_host(judge_pairs(cells, RULES), cells, RULES)[0].change
        assert change is not None
        assert change.low is not None
        assert change.high is not None
        widths.append(change.high / change.low)
    assert widths[1] > 1.5 * widths[0]


def constant(values: Sequence[float], host: float = 1.0, version: int = 1, unit: str = "write_mb_s") -> CellRecord:
    return cell(
        [
            Repetition(round=number, value=value, limit="disks", reference=reference(host, version))
            for number, value in enumerate(values, start=1)
        ],
        unit,
    )


def finding(base: CellRecord, new: CellRecord) -> PairFinding:
    cells = [(base, new)]
    return account_for_host(judge_pairs(cells, RULES), cells, RULES)[0].finding


def test_a_slower_host_explains_a_slower_cell_of_either_unit() -> None:
    assert finding(constant(FAST), constant(SLOW, host=0.8)) is PairFinding.UNDECIDED
    assert finding(constant(FAST), constant(SLOW)) is PairFinding.SLOWER
    durations = constant(SLOW, unit="latency_ms"), constant(FAST, host=0.8, unit="latency_ms")
    assert finding(*durations) is PairFinding.UNDECIDED
    assert finding(durations[0], constant(FAST, unit="latency_ms")) is PairFinding.SLOWER


def test_a_slower_host_is_no_excuse_for_a_cell_that_is_even_slower() -> None:
    assert finding(constant(FAST), constant([value / 2 for value in SLOW], host=0.8)) is PairFinding.SLOWER


def test_equal_values_on_another_host_are_not_the_same() -> None:
    assert finding(constant(FAST * 2), constant(FAST * 2)) is PairFinding.SAME
    assert finding(constant(FAST * 2), constant(FAST * 2, host=1.3)) is PairFinding.UNDECIDED


def test_without_a_reference_measurement_nothing_is_decided() -> None:
    for base, new in ((FAST, SLOW), (FAST * 2, FAST * 2), (SLOW, FAST)):
        found = compare_stored(run_with(base), run_with(new, kernel="6.19.3", hosts=None), name="x")
        assert found.outcome is Outcome.INCONCLUSIVE
        assert {pair.finding for pair in found.pairs} == {PairFinding.UNDECIDED}
        assert {pair.why for pair in found.pairs} == {NO_REFERENCE}


def test_reference_measurements_of_other_versions_are_not_compared() -> None:
    cells = [(constant(FAST), constant(SLOW, version=2))]
    [pair] = account_for_host(judge_pairs(cells, RULES), cells, RULES)
    assert (pair.finding, pair.why) == (PairFinding.UNDECIDED, OTHER_VERSION)
    assert not pair.not_slower(0.03)


def history_shares(runs: int, share: float, level: Sequence[float], times: int = 60) -> tuple[float, float]:
    """Return the shares of histories with a change of level: by the medians alone, and as `histories` judges."""
    alone = both = 0
    for seed in range(times):
        repeats = Host(seed, share=share).repetitions(runs, level)
        stored = []
        for day, one in enumerate(repeats):
            run = run_with([one.value or 0.0], day=day)
            for mine in run.cells:
                mine.repeats[0].reference = one.reference
            stored.append(run)
        [history] = histories(stored, SYNC)
        alone += bool(find_changes([one.value or 0.0 for one in repeats]))
        both += bool(history.changes)
    return alone / times, both / times


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_drift_of_the_host_is_called_a_change_in_at_most_5_percent_of_histories(share: float) -> None:
    alone, both = history_shares(20, share, [100.0] * 20)
    assert both <= 0.05
    assert alone > 0.2


def test_a_history_shows_a_step_although_the_host_drifts() -> None:
    assert history_shares(20, 1.0, [100.0] * 10 + [70.0] * 10, times=20)[1] > 0.8


def test_runs_without_a_reference_measurement_show_no_change() -> None:
    levels = [FAST] * 10 + [SLOW] * 10
    [history] = histories([run_with(one, day=day) for day, one in enumerate(levels)], SYNC)
    assert len(history.changes) == 1
    [history] = histories([run_with(one, day=day, hosts=None) for day, one in enumerate(levels)], SYNC)
    assert (history.changes, history.tested) == ([], [])
