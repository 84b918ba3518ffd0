"""The power of a machine that exists: cut by its switch, given back, waited for."""

from collections.abc import Callable, Sequence
from pathlib import Path

from raidproof.core.errors import RequestError, RigError
from raidproof.core.waiting import Deadline, now_ns, wait_until
from raidproof.disk.cache import CutPolicy
from raidproof.machine.power import Cut
from raidproof.machine.remote_command import RemoteCommand
from raidproof.provider.hosts.control import CommandControl, IpmiControl, PowerControl, RedfishControl
from raidproof.provider.hosts.ipmi import IpmiSwitch
from raidproof.provider.hosts.redfish import RedfishSwitch
from raidproof.provider.hosts.switch import CommandSwitch, Switch, SysrqSwitch

OFF_DEADLINE_S = 60.0
"""A BMC answers when it has understood; until the board is off it takes seconds."""
ASK_S = 0.5
"""Between two questions to a BMC, which is slow and easily overrun."""
STATE_VALID_S = 5.0


def switch_of(control: PowerControl, start: Callable[[Sequence[str]], RemoteCommand]) -> Switch:
    """Return the switch that an inventory names; ``start`` starts a command on the machine, as root.

    Raises:
        RequirementMissing: its library is not installed.
    """
    match control:
        case IpmiControl():
            return IpmiSwitch(control)
        case RedfishControl():
            return RedfishSwitch(control)
        case CommandControl():
            return CommandSwitch(control)
        case _:
            return SysrqSwitch(start)


class HostPower:
    """The power of one machine.

    What its disks keep is theirs to decide, so of the policies only ``drop``, the plain cut, can be asked for.
    """

    consoles: tuple[Path, ...] = ()

    def __init__(self, name: str, switch: Switch, answers: Callable[[], bool]) -> None:
        """``answers`` tells whether anybody listens where the machine's SSH server does."""
        self._name = name
        self.switch = switch
        self._answers = answers
        self._asked: Deadline | None = None

    @property
    def poweroff(self) -> tuple[str, ...]:
        """Stops the machine in good order; one that nobody could switch on again is rebooted instead."""
        return ("systemctl", "reboot") if self.switch.comes_back else ("systemctl", "poweroff")

    @property
    def cannot_prove(self) -> tuple[str, ...]:
        """What a cut by this switch leaves open."""
        return self.switch.cannot_prove

    def on(self) -> None:
        """Begin to boot, or leave alone what is on."""
        self.switch.on()

    def prepare(self) -> None:
        """Do beforehand what takes time, and find out before the work begins that the switch obeys.

        Raises:
            RigError: it does not.
        """
        self.switch.prepare()

    def cut(self, policy: CutPolicy, seed: int) -> Cut:
        """Take the power away.

        The cut's instant is that of the request, before it is sent: what was acknowledged between it and the true loss
        of power, some milliseconds to seconds later, counts as not acknowledged, so nobody is accused of its loss.

        Raises:
            RequestError: another policy than ``drop`` was asked.
            RigError: the switch does not obey.
        """
        if policy is not CutPolicy.DROP:
            raise RequestError(
                f"{self._name}: what a real disk's cache keeps at a cut cannot be chosen: {policy.value}",
                remedy="policies other than drop need the disk engine: uml, qemu, vagrant",
            )
        self.switch.prepare()
        at_ns = now_ns()
        self.switch.off()
        deadline = Deadline.after(OFF_DEADLINE_S)
        if self.switch.state() is not None:
            wait_until(lambda: not self.switch.state(), deadline, f"{self._name} to lose its power", ASK_S)
        elif not self.switch.comes_back:
            wait_until(lambda: not self._answers(), deadline, f"{self._name} to fall silent", ASK_S)
        self._asked = None
        return Cut(at_ns, policy, seed)

    def wait_off(self, deadline: Deadline) -> None:
        """Return when it has stopped by itself: by its switch's word or, where that has none, when it falls silent.

        Raises:
            DeadlineExceeded: it is still up.
        """
        silent = self.switch.state() is None
        gone = (lambda: not self._answers()) if silent else (lambda: not self.switch.state())
        wait_until(gone, deadline, f"{self._name} to stop", ASK_S)

    def require_on(self) -> None:
        """Raise RigError if the switch says that it has no power. It is asked every 5 s at most."""
        if self._asked is not None and not self._asked.passed:
            return
        if self.switch.state() is False:
            raise RigError(f"{self._name} has no power, says its {self.switch.name}")
        self._asked = Deadline.after(STATE_VALID_S)
