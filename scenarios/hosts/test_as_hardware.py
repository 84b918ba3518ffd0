"""The demo on machines that raidproof did not make: a lab of another run serves as the hardware."""

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.campaign import Campaign
from harness.fixtures import MEMBERS
from harness.lab import EnclosedLab
from harness.record import RunRecord, RunStore
from harness.verdict.outcome import Outcome
from harness.waiting import Deadline, wait_until
from scenarios.hosts.hardware import Hardware
from scenarios.hosts.test_left_as_found import census, differences

AT_WORK = "clients at work"
WORK_DEADLINE_S = 120.0
ARTEFACTS = (*(f"by-id/raidproof-{serial}" for serial in MEMBERS), "/.etab.lock")


@pytest.fixture
def hardware(campaign: Campaign) -> Iterator[Hardware]:
    """The machines of a lab that nothing else uses, their disks adopted."""
    campaign.discard_lab()
    lab = campaign.lab
    if not isinstance(lab, EnclosedLab) or os.geteuid() != 0:
        pytest.skip("needs root, and machines that this run has made")
    with tempfile.TemporaryDirectory(prefix="hw-") as folder:
        made = Hardware(lab, Path(folder))
        with made.powered():
            made.adopt()
            yield made
    campaign.discard_lab()


def run_of(results: Path) -> RunRecord:
    (run,) = results.iterdir()
    return RunStore(run).load()


def test_the_demo_says_what_it_cannot_prove(hardware: Hardware) -> None:
    results = hardware.home / "results"
    before = census(hardware.lab.clients[0])
    ended = hardware.raidproof("demo", f"--inventory={hardware.inventory}", f"--results={results}")
    record = run_of(results)
    rows = {cycle.name: cycle for cycle in record.cycles}
    assert rows["sync"].outcome is Outcome.PASS, ended.stdout + ended.stderr
    assert rows["async"].outcome is Outcome.PASS, ended.stdout + ended.stderr
    assert rows["async"].on_server is not None
    assert rows["async"].on_server.lost_total > 0
    assert rows["lying-disks"].outcome is Outcome.SKIP
    assert "cannot be made lying" in rows["lying-disks"].reason
    assert record.environment is not None
    assert any(line.startswith("hosts:") for line in record.environment.cannot_prove)
    assert differences(before, census(hardware.lab.clients[0])) == {}


def test_a_killed_run_is_put_back_by_one_command(hardware: Hardware) -> None:
    results = hardware.home / "results"
    machines = [hardware.lab.server, *hardware.lab.clients]
    before = {machine.name: census(machine) for machine in machines}
    words = hardware.command(("demo", f"--inventory={hardware.inventory}", f"--results={results}"))
    log = hardware.home / "killed.log"
    with log.open("w") as said:
        process = subprocess.Popen(words, stdout=said, stderr=said, start_new_session=True)
    try:
        wait_until(lambda: AT_WORK in log.read_text(), Deadline.after(WORK_DEADLINE_S), "the run to be under way")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    refused = hardware.raidproof("demo", f"--inventory={hardware.inventory}", f"--results={results}")
    assert "hosts restore" in refused.stderr + refused.stdout
    restored = hardware.raidproof("hosts", "restore", str(hardware.inventory))
    assert restored.returncode == 0, restored.stderr
    after = {machine.name: census(machine) for machine in machines}
    found = {name: differences(before[name], after[name]) for name in before}
    # The lab's own links, which no hardware has, and the lock of the `exportfs -v` that looked.
    found["server"] = {path: seen for path, seen in found["server"].items() if not path.endswith(ARTEFACTS)}
    assert not any(found.values()), json.dumps(found, indent=1)
    assert "nothing to put back" in hardware.raidproof("hosts", "restore", str(hardware.inventory)).stdout
