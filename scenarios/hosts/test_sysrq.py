"""The weakest power switch of existing machines, SysRq: the kernel itself resets the machine (/proc/sysrq-trigger)."""

from raidproof.core.waiting import Deadline, now_ns, wait_until
from raidproof.disk.cache import CutPolicy
from raidproof.machine.machine import Machine
from raidproof.provider.hosts.power import HostPower, SysrqSwitch
from raidproof.run.run import Run


def test_a_reset_loses_unflushed_data_of_the_kernel(current_run: Run) -> None:
    client = current_run.lab.clients[0]
    booted = boots(client)
    power = HostPower(client.name, SysrqSwitch(client.start_command), lambda: False)
    power.prepare()
    client.put("never flushed", "/root/unsynced")
    begun = now_ns()
    cut = power.cut(CutPolicy.DROP, 0)
    assert begun <= cut.at_ns
    # The machine boots again by itself. Its kernel then logs an error, because its tap interface is still in use. So
    # this test takes the lab from `current_run`: kernel logs are judged only after tests with the fixture `lab`.
    wait_until(
        lambda: boots(client) > booted, Deadline.after(60), f"a second boot of {client.name} in its console log"
    )
    client.crash()
    client.start()
    assert not client.run(["test", "-s", "/root/unsynced"]).ok


def boots(machine: Machine) -> int:
    """Return how often a kernel has begun to boot, by the console log of a machine."""
    return machine.console.read_text(errors="replace").count("Linux version")
