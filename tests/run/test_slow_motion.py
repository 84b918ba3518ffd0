"""The slow-motion factor: found by a probe, recorded, and the same for all sides. Labs and repetitions are faked."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raidproof.cluster.plans import without_probe
from raidproof.core.errors import RequestError, RigError
from raidproof.core.topology import Platform, SoftwareSpec, Topology
from raidproof.monitor.bottleneck import Limit
from raidproof.plan.cell import Cell, Matrix, matrix_of
from raidproof.plan.plan import Plan, read_plan
from raidproof.record.cell import CellRecord, Repetition
from raidproof.record.results.store import RunStore
from raidproof.run.slow_motion import FACTORS, PROBE_S, TRIES, with_probed_factor, with_recorded_factor
from raidproof.verdict.slow_motion import MOST

HARDWARE_IOPS = 100.0
ENDED = "the probe ended before it found a factor at which no processor is the limit"
BASE, NEW = Platform(), Platform(server=SoftwareSpec(kernel="debian/sid"))


def plan(**hardware: Any) -> Matrix:
    document = {
        "hardware": {"disks": {"count": 3, "profile": "hdd-7200-sata", "size": "512MiB"}, **hardware},
        "axes": {"level": [1, 5]},
        "workload": {"tool": "fio", "rw": "randwrite", "runtime_s": 30},
    }
    return matrix_of(read_plan(document, source="here.toml", name="here"))


class Simulation:
    """A fake host: its processor can simulate at most so many requests per second, on each side."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, able: dict[str, float]) -> None:
        self.able = able
        self.probes: list[tuple[str, float]] = []
        self.cells: list[str] = []
        self.seconds: list[float] = []
        self.fails = False
        monkeypatch.setattr("raidproof.run.slow_motion.lab_of", self.lab)
        monkeypatch.setattr("raidproof.run.slow_motion.run_repetition", self.repeat)
        monkeypatch.setattr("raidproof.run.slow_motion.StackDeployer", self.deployer)

    @contextmanager
    def lab(self, topology: Topology, *, logs: Path) -> Iterator[Any]:
        assert logs.is_dir()
        self.probes.append((str(topology.server.software.kernel), topology.slow_motion))
        if self.fails:
            raise RigError("the lab does not boot")
        yield SimpleNamespace(topology=topology)

    def deployer(self, lab: Any) -> Any:
        return SimpleNamespace(lab=lab, teardown=lambda: None)

    def repeat(
        self, deployer: Any, _plan: Plan, cell: Cell, record: CellRecord, repeat: Repetition, directory: Path
    ) -> None:
        assert directory.is_dir()
        topology = deployer.lab.topology
        self.cells.append(cell.name)
        self.seconds.append(cast("Any", cell.workload).runtime_s)
        able = self.able[str(topology.server.software.kernel)] * topology.slow_motion
        record.unit, record.expected = "write_iops", {"value": HARDWARE_IOPS}
        repeat.value = min(able, HARDWARE_IOPS)
        repeat.limit = Limit.HOST_CPU if able < HARDWARE_IOPS else Limit.DISKS


@pytest.mark.parametrize(("able", "factor"), [(1000.0, 1), (60.0, 3), (20.0, 8), (1.0, 192)])
def test_the_factor_is_that_at_which_no_processor_limits(
    monkeypatch: pytest.MonkeyPatch, able: float, factor: int
) -> None:
    host = Simulation(monkeypatch, {str(BASE.server.kernel): able})
    found = with_probed_factor(plan(), [BASE])
    assert found.plan.hardware.slow_motion == factor
    assert found.plan.hardware.topology().slow_motion == factor
    assert able * factor >= HARDWARE_IOPS
    # The last factor is verified in a lab that has it.
    assert [one for _, one in host.probes] == ([1] if factor == 1 else [1, factor])
    assert {*host.seconds} == {PROBE_S}


def test_equal_sides_are_probed_once_and_the_greater_factor_holds_for_both(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Simulation(monkeypatch, {str(BASE.server.kernel): 60.0, str(NEW.server.kernel): 20.0})
    assert with_probed_factor(plan(), [BASE, NEW]).plan.hardware.slow_motion == 8
    assert with_probed_factor(plan(), [NEW, BASE]).plan.hardware.slow_motion == 8
    host.probes.clear()
    assert with_probed_factor(plan(), [BASE, BASE]).plan.hardware.slow_motion == 3
    assert [one for _, one in host.probes] == [1, 3]


def test_a_probe_ends_although_no_factor_suffices(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("raidproof.run.slow_motion.say", said.append)
    host = Simulation(monkeypatch, {str(BASE.server.kernel): 1e-9})
    assert with_probed_factor(plan(), [BASE]).plan.hardware.slow_motion == MOST == FACTORS[-1]
    assert len(host.probes) <= TRIES
    assert said == [f"slow motion: factor 1000; {ENDED}"]


def test_a_probe_without_an_expected_speed_ends_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("raidproof.run.slow_motion.say", said.append)
    host = Simulation(monkeypatch, {str(BASE.server.kernel): 1.0})

    def unknown(*arguments: Any) -> None:
        host.repeat(*arguments)
        arguments[3].expected = None

    monkeypatch.setattr("raidproof.run.slow_motion.run_repetition", unknown)
    assert with_probed_factor(plan(), [BASE]).plan.hardware.slow_motion == 4
    assert [one for _, one in host.probes] == [1, 2, 3]
    assert said == [f"slow motion: factor 4; {ENDED}"]


@pytest.mark.parametrize("hardware", [{"slow_motion": 2}, {"disks": {"count": 3, "size": "512MiB"}}])
def test_a_factor_of_the_plan_and_disks_without_latency_need_no_probe(
    monkeypatch: pytest.MonkeyPatch, hardware: dict[str, Any]
) -> None:
    host = Simulation(monkeypatch, {})
    assert with_probed_factor(plan(**hardware), [BASE]).plan.hardware.slow_motion == hardware.get("slow_motion", 1)
    assert host.probes == []


def test_a_probe_that_fails_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("raidproof.run.slow_motion.say", said.append)
    Simulation(monkeypatch, {}).fails = True
    assert with_probed_factor(plan(), [BASE]).plan.hardware.slow_motion == 1
    assert said == ["the probe for slow motion failed, and the factor is 1: the lab does not boot"]


def test_a_cell_that_is_faster_than_its_hardware_needs_no_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Simulation(monkeypatch, {str(BASE.server.kernel): 60.0})

    def cached(*arguments: Any) -> None:
        host.repeat(*arguments)
        arguments[3].expected = {"value": 10.0}

    monkeypatch.setattr("raidproof.run.slow_motion.run_repetition", cached)
    assert with_probed_factor(plan(), [BASE]).plan.hardware.slow_motion == 1


def test_a_resumed_run_keeps_its_factor_and_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    Simulation(monkeypatch, {str(BASE.server.kernel): 20.0})
    first = with_probed_factor(plan(), [BASE])
    topology = first.plan.hardware.topology(BASE).model_dump(mode="json")
    stored = cast("RunStore", SimpleNamespace(load=lambda: SimpleNamespace(topology=topology)))
    assert with_recorded_factor(plan(), stored).digest == first.digest
    assert with_recorded_factor(plan(slow_motion=3), stored).plan.hardware.slow_motion == 3


def test_on_a_cluster_the_default_is_1_and_a_requested_probe_is_refused() -> None:
    assert without_probe(plan()).plan.hardware.slow_motion == 1
    assert without_probe(plan(slow_motion=4)).plan.hardware.slow_motion == 4
    with pytest.raises(RequestError, match=r'slow_motion = "auto" is not possible with --cluster'):
        without_probe(plan(slow_motion="auto"))
