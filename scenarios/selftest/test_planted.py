"""The harness finds each planted defect, and reports its kind and place; without the defect it reports no failure."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from raidproof.core.units import MIB
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.record import CrashTestRecord
from raidproof.record.outcome import Outcome
from raidproof.run.crash_test import CrashTestSpec
from raidproof.run.run import Run
from scenarios.selftest.defects import LEDGER, Places
from scenarios.selftest.plants import EXPERIMENTS, PLANTS, TWINS, Plant

LEVEL = "4"
"""RAID4, because all its parity is on the last member."""
LEDGER_SECONDS = 0.7
DISK_SIZE = 184 * MIB
"""Bytes of each disk. XFS fits into three of these disks, and a check of the array is quick."""


class Cycles:
    """Runs crash tests, each once, in a separate run, so that expected failures do not fail the shared run."""

    def __init__(self, current_run: Run) -> None:
        self.current_run = current_run
        self.planted = cache(self._planted)
        self.twin = cache(self._twin)

    def _planted(self, name: str) -> tuple[CrashTestRecord, Places]:
        """Execute an experiment of `EXPERIMENTS`; return its record and the places of its defects."""
        experiment, places = EXPERIMENTS[name], Places()
        with pytest.MonkeyPatch.context() as patch:
            experiment.patch(patch)
            try:
                return self._run(name, experiment.changes(places)), places
            except BaseException:
                # A defect could not be planted: the state of the lab is unknown.
                self.current_run.discard_lab()
                raise

    def _twin(self, name: str) -> CrashTestRecord:
        """Execute a crash test of `TWINS`, which has no planted defect; return its record."""
        return self._run(f"twin-{name}", TWINS[name])

    def _run(self, name: str, changes: dict[str, Any]) -> CrashTestRecord:
        spec = {"name": name, "title": name, "stack": stack_of(LEVEL), "ledger": LEDGER}
        return self.current_run.cycle(CrashTestSpec(**{"ledger_seconds": LEDGER_SECONDS, **spec, **changes}))


@pytest.fixture(scope="module")
def cycles(current_run: Run) -> Iterator[Cycles]:
    """Yield the crash tests of a separate run with small disks; the shared lab is ended before."""
    disks = tuple(disk.model_copy(update={"size": DISK_SIZE}) for disk in current_run.topology.disks)
    topology = current_run.topology.model_copy(update={"disks": disks})
    current_run.discard_lab()
    with Run("planted", current_run.store.path, topology) as own:
        yield Cycles(own)


def all_said(record: CrashTestRecord) -> str:
    """Return all verdicts of a record as text, for the message of a failed assertion."""
    examples = [line for seen in (record.on_server, record.on_client) if seen for line in seen.examples]
    verdicts = [f"{one.outcome} {one.checker}: {one.reason}; {one.blame}" for one in record.verdicts]
    return "\n".join([f"{record.outcome}: {record.reason}", *verdicts, *examples])


@pytest.mark.plants
@pytest.mark.parametrize("plant", PLANTS, ids=str)
def test_a_planted_defect_is_found(plant: Plant, cycles: Cycles) -> None:
    record, places = cycles.planted(plant.experiment)
    assert record.outcome is Outcome.FAIL, all_said(record)
    found = [
        one
        for one in record.verdicts
        if one.outcome is Outcome.FAIL and re.match(plant.checker, one.checker) and plant.says in one.reason
    ]
    assert found, all_said(record)
    assert str(found[0].blame).startswith(plant.blame), all_said(record)
    seen = [line for evidence in (record.on_server, record.on_client) if evidence for line in evidence.examples]
    place = plant.place or places[plant.name]
    assert any(place in line for line in (found[0].reason, str(found[0].blame), *seen)), f"{place}\n{all_said(record)}"


@pytest.mark.parametrize("name", sorted({one.twin for one in EXPERIMENTS.values()}))
def test_in_the_clean_twin_nothing_is_found(name: str, cycles: Cycles) -> None:
    record = cycles.twin(name)
    assert record.outcome is Outcome.PASS, all_said(record)
    assert {one.outcome for one in record.verdicts} == {Outcome.PASS}, all_said(record)
