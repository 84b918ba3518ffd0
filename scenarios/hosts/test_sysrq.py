"""Power by SysRq, the weakest kind of power switch: the kernel resets the machine when one byte arrives."""

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
    # The machine boots again by itself. In this lab its kernel then logs an error, as its tap interface is still in
    # use. Kernel logs are judged with the fixture `lab` only, so this test takes the lab from `current_run`.
    wait_until(lambda: boots(client) > booted, Deadline.after(60), "a second boot")
    client.crash()
    client.start()
    assert not client.run(["test", "-s", "/root/unsynced"]).ok


def boots(machine: Machine) -> int:
    return machine.console.read_text(errors="replace").count("Linux version")
