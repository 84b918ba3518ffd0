"""The same file, unchanged, on each provider: the same verdicts; each report says what its provider cannot prove."""

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
from raidproof.run.campaign import Campaign
from raidproof.run.exploration import Options, explore_cycle, source_of
from scenarios.hosts.hardware import Hardware

pytestmark = pytest.mark.long

PROMISES = Path(__file__).with_name("promises.py")
DEADLINE_S = 900.0
STATES = 20
LIARS = {"disk0", "disk1", "disk2", "disk3"}
EXPECTED = {
    "sync-export-keeps-every-promise": Outcome.PASS,
    "async-export-loses-acknowledged-work": Outcome.PASS,
    "lying-disks-are-found-out": Outcome.PASS,
}


def run_of(command: Sequence[str], results: Path) -> RunStore:
    """Run the file to its end, and return its run."""
    log.step("  " + " ".join(command[-4:]))
    said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    runs = [*results.iterdir()] if results.exists() else []
    assert len(runs) == 1, said.stdout + said.stderr
    return RunStore(runs[0])


def outcomes(record: RunRecord) -> dict[str, Outcome]:
    return {cycle.name: cycle.outcome for cycle in record.cycles}


@pytest.mark.parametrize(
    "provider",
    [
        # All other scenarios are about this one.
        pytest.param("uml", marks=pytest.mark.exhaustive),
        "qemu",
        pytest.param("vagrant", marks=pytest.mark.exhaustive),
    ],
)
def test_every_provider(campaign: Campaign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provider: str) -> None:
    topology = server_and_clients(platform=Platform(provider=provider))
    # What it lacks here is a skip, with its reasons; and nothing else takes the processors meanwhile.
    provider_of(topology).prepare(topology)
    campaign.discard_lab()
    options = [f"--provider={provider}", f"--results={tmp_path / 'results'}", "-p", "no:cacheprovider"]
    store = run_of([sys.executable, "-m", "pytest", str(PROMISES), *options], tmp_path / "results")
    record = store.load()
    assert outcomes(record) == EXPECTED, record.reason
    assert record.environment is not None
    assert record.environment.provider == provider
    assert all(line.startswith(f"{provider}:") for line in record.environment.cannot_prove)
    if provider in SHOW:
        # Emulated machines take long to boot, and each that is explained boots one.
        monkeypatch.setattr("raidproof.crash.shrink.EXPLAINED", 1)
        crashes_are_shown(store)


def crashes_are_shown(store: RunStore) -> None:
    """Claim that of a run whose disks lied the crashes before the first lie are whole, and later ones are not."""
    explored, _ = explore_cycle(source_of(store, "lying-disks-are-found-out"), Options(Budget(STATES), checkers=1))
    assert explored.outcome is Outcome.PASS, explored.reason
    assert 0 < explored.broken < explored.judged == STATES
    assert explored.cold.checked
    assert not explored.cold.differing
    confirmed = [one for one in explored.failures if one.confirmed]
    assert confirmed
    # A crash shortly after the first lie is blamed on the disks that had lied by then.
    for one in confirmed:
        assert one.blame is not None
        assert one.blame.cause is Cause.LOST_FLUSHES, one
        assert {*one.blame.members} <= LIARS, one


@pytest.mark.exhaustive
def test_machines_that_exist(hardware: Hardware) -> None:
    results = hardware.home / "results"
    record = run_of(hardware.pytest(PROMISES, results), results).load()
    # What they cannot do is not called passed.
    assert outcomes(record) == EXPECTED | {"lying-disks-are-found-out": Outcome.SKIP}, record.reason
    assert record.environment is not None
    assert any("write log" in line for line in record.environment.cannot_prove)
    assert all(line.startswith("hosts:") for line in record.environment.cannot_prove)
