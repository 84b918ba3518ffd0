"""The scenarios of `promises.py` give the same verdicts on each provider.

Each report lists what its provider cannot prove.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from raidproof.core import log
from raidproof.core.blame import Cause
from raidproof.core.topology import Platform, server_and_clients
from raidproof.crash.checker import SHOW
from raidproof.crash.exploration import Budget
from raidproof.provider.registry import provider_of
from raidproof.record import RunRecord, RunStore
from raidproof.record.outcome import Outcome
from raidproof.run.crash_states import Options
from raidproof.run.exploration import explore_cycle
from raidproof.run.run import Run
from raidproof.run.source import source_of
from scenarios.hosts.hardware import Hardware

PROMISES = Path(__file__).with_name("promises.py")
DEADLINE_S = 900.0
STATES = 8
LIARS = {"disk0", "disk1", "disk2", "disk3"}
EXPECTED = {
    "sync-export-keeps-every-promise": Outcome.PASS,
    "async-export-loses-acknowledged-work": Outcome.PASS,
    "lying-disks-are-found": Outcome.PASS,
}


def run_of(command: Sequence[str], results: Path) -> RunStore:
    """Run `promises.py` by a pytest command; return the one run that it stores in ``results``."""
    log.step("  " + " ".join(command[-4:]))
    said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    runs = [*results.iterdir()] if results.exists() else []
    assert len(runs) == 1, said.stdout + said.stderr
    return RunStore(runs[0])


def outcomes(record: RunRecord) -> dict[str, Outcome]:
    """Return the outcome of each crash test of a run, by name."""
    return {cycle.name: cycle.outcome for cycle in record.cycles}


@pytest.mark.parametrize(
    ("provider", "crash_states"),
    [
        # All other scenarios cover provider `uml`.
        pytest.param("uml", True, id="uml", marks=pytest.mark.exhaustive),
        pytest.param("qemu", False, id="qemu"),
        pytest.param("qemu", True, id="qemu-crash-states", marks=pytest.mark.exhaustive),
        pytest.param("vagrant", False, id="vagrant", marks=pytest.mark.exhaustive),
    ],
)
def test_every_provider(current_run: Run, tmp_path: Path, provider: str, *, crash_states: bool) -> None:
    topology = server_and_clients(platform=Platform(provider=provider))
    # prepare() skips the test if this host lacks a requirement of the provider.
    provider_of(topology).prepare(topology)
    current_run.discard_lab()
    options = [f"--provider={provider}", f"--results={tmp_path / 'results'}", "-p", "no:cacheprovider"]
    store = run_of([sys.executable, "-m", "pytest", str(PROMISES), *options], tmp_path / "results")
    record = store.load()
    assert outcomes(record) == EXPECTED, record.reason
    assert record.environment is not None
    assert record.environment.provider == provider
    assert all(line.startswith(f"{provider}:") for line in record.environment.cannot_prove)
    assert crash_states <= (provider in SHOW)
    if crash_states:
        crashes_are_shown(store)


def crashes_are_shown(store: RunStore) -> None:
    """Assert that an exploration of a run with lying disks finds failures, and blames only lying disks for them."""
    # Emulated machines boot slowly, and the explanation of each failure boots one.
    options = Options(Budget(STATES), checkers=1, explained=1)
    explored, _ = explore_cycle(source_of(store, "lying-disks-are-found"), options)
    assert explored.outcome is Outcome.PASS, explored.reason
    assert 0 < explored.broken < explored.judged == STATES
    assert explored.cold.checked
    assert not explored.cold.differing
    confirmed = [one for one in explored.failures if one.confirmed]
    assert confirmed
    # A crash state is blamed on the disks that had lied before its cut: shortly after the first lie not on all.
    for one in confirmed:
        assert one.blame is not None
        assert one.blame.cause is Cause.LOST_FLUSHES, one
        assert {*one.blame.members} <= LIARS, one


@pytest.mark.exhaustive
def test_machines_that_exist(hardware: Hardware) -> None:
    results = hardware.home / "results"
    record = run_of(hardware.pytest(PROMISES, results), results).load()
    # Real disks cannot lie on request: this scenario must be skipped, not pass.
    assert outcomes(record) == EXPECTED | {"lying-disks-are-found": Outcome.SKIP}, record.reason
    assert record.environment is not None
    assert any("write log" in line for line in record.environment.cannot_prove)
    assert all(line.startswith("hosts:") for line in record.environment.cannot_prove)
