"""After a run on existing machines was killed, `raidproof hosts restore` restores the machines.

The machines of another lab serve as the existing machines.
"""

import json
import os
import signal
import subprocess

from raidproof.core.waiting import Deadline, wait_until
from raidproof.pytest_plugin.fixtures import MEMBERS
from scenarios.hosts.hardware import Hardware
from scenarios.hosts.test_left_as_found import census, differences

AT_WORK = "clients at work"
WORK_DEADLINE_S = 600.0
ARTEFACTS = (*(f"by-id/raidproof-{serial}" for serial in MEMBERS), "/.etab.lock")


def test_one_command_restores_the_machines_of_a_killed_run(hardware: Hardware) -> None:
    results = hardware.home / "results"
    machines = [hardware.lab.server, *hardware.lab.clients]
    before = {machine.name: census(machine) for machine in machines}
    words = hardware.command(("demo", f"--inventory={hardware.inventory}", f"--results={results}"))
    log = hardware.home / "killed.log"
    with log.open("w") as said:
        process = subprocess.Popen(words, stdout=said, stderr=said, start_new_session=True)
    try:
        wait_until(
            lambda: AT_WORK in log.read_text(), Deadline.after(WORK_DEADLINE_S), f"the killed run to log {AT_WORK!r}"
        )
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    refused = hardware.raidproof("demo", f"--inventory={hardware.inventory}", f"--results={results}")
    assert "hosts restore" in refused.stderr + refused.stdout
    restored = hardware.raidproof("hosts", "restore", str(hardware.inventory))
    assert restored.returncode == 0, restored.stderr
    after = {machine.name: census(machine) for machine in machines}
    found = {name: differences(before[name], after[name]) for name in before}
    # Except links that only the lab makes, and the lock file of the `exportfs -v` that census() runs.
    found["server"] = {path: seen for path, seen in found["server"].items() if not path.endswith(ARTEFACTS)}
    assert not any(found.values()), json.dumps(found, indent=1)
    assert "nothing to restore" in hardware.raidproof("hosts", "restore", str(hardware.inventory)).stdout
    collected = [hardware.raidproof("gc").stdout for _ in range(2)]
    assert f"process {process.pid}, which created the lab, was killed" in collected[0]
    assert collected[1] == "found nothing to remove\n"
