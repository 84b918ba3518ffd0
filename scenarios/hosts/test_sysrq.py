"""The weakest switch: the kernel resets the machine when one byte arrives."""

from raidproof.core.waiting import Deadline, now_ns, wait_until
from raidproof.disk.cache import CutPolicy
from raidproof.machine.machine import Machine
from raidproof.provider.hosts.power import HostPower, SysrqSwitch
from raidproof.run.campaign import Campaign


def test_a_reset_loses_what_only_the_kernel_had(campaign: Campaign) -> None:
    client = campaign.lab.clients[0]
    booted = boots(client)
    power = HostPower(client.name, SysrqSwitch(client.start_command), lambda: False)
    power.prepare()
    client.put("never flushed", "/root/unsynced")
    begun = now_ns()
    cut = power.cut(CutPolicy.DROP, 0)
    assert begun <= cut.at_ns
    # The machine comes back by itself. In this lab it complains of its network, whose tap it holds already: nobody is
    # to judge that, so it is the campaign's lab that is asked for, not the fixture.
    wait_until(lambda: boots(client) > booted, Deadline.after(60), "a second boot")
    client.crash()
    client.start()
    assert not client.run(["test", "-s", "/root/unsynced"]).ok


def boots(machine: Machine) -> int:
    return machine.console.read_text(errors="replace").count("Linux version")
