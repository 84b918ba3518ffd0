"""The switches of machines that exist: what each can do, and what a cut by it does not prove."""

import re
from collections.abc import Callable, Sequence
from typing import Protocol

from raidproof.core import command
from raidproof.core.errors import RigError
from raidproof.core.waiting import Deadline
from raidproof.machine.remote_command import RemoteCommand
from raidproof.provider.hosts.control import CommandControl

COMMAND_DEADLINE_S = 60.0
RESET_S = 2.0
"""How long a connection is watched that a reset has made silent: no machine says good-bye in one."""


class Switch(Protocol):
    """What takes a machine's power and gives it back."""

    name: str
    strength: str
    """What a cut by it is, in one sentence."""
    cannot_prove: tuple[str, ...]
    """What a cut by it leaves open; the report repeats it."""
    comes_back: bool
    """Whether the machine comes up again by itself: then it is never seen off."""

    def prepare(self) -> None:
        """Do all that takes time, so that `off` is one request."""

    def off(self) -> None:
        """Take the power away at once. The operating system is not asked."""

    def on(self) -> None:
        """Give it back; nothing happens to a machine that is on."""

    def state(self) -> bool | None:
        """Whether the machine has power; None if nobody can tell."""


class CommandSwitch:
    """A pair of commands on this host."""

    comes_back = False

    def __init__(self, control: CommandControl) -> None:
        self._control = control
        self.name = f"command: {control.off[0]}"
        self.strength = f"the power is taken by a command of the user's, {control.off[0]}"
        self.cannot_prove: tuple[str, ...] = (
            "hosts: that the user's command takes the power at once, without asking the operating system, is the "
            "user's word",
            *(
                ()
                if control.cuts_disks
                else ("hosts: the disks keep their power at a cut: what is in their volatile caches survives",)
            ),
            *(() if control.state else ("hosts: no command tells whether the power is off",)),
        )

    def prepare(self) -> None:
        """There is nothing to prepare."""

    def off(self) -> None:
        """Run the command that takes the power.

        Raises:
            CommandFailed: it failed.
            RequirementMissing: there is no such program.
        """
        command.succeed(self._control.off, deadline_s=COMMAND_DEADLINE_S)

    def on(self) -> None:
        """Run the command that gives it. Raises as `off`."""
        command.succeed(self._control.on, deadline_s=COMMAND_DEADLINE_S)

    def state(self) -> bool | None:
        """Ask the command that tells.

        Raises:
            RigError: it says neither on nor off.
        """
        if self._control.state is None:
            return None
        return parse_state(command.succeed(self._control.state, deadline_s=COMMAND_DEADLINE_S))


def parse_state(text: str) -> bool:
    """Read the last word of ``Chassis Power is off``.

    Raises:
        RigError: it is neither on nor off.
    """
    words = re.findall(r"[a-z]+", text.lower())
    if not words or words[-1] not in {"on", "off"}:
        raise RigError(f"the power's state should end in on or off: {text.strip()[-200:] or 'nothing'}")
    return bool(words[-1] == "on")


class SysrqSwitch:
    """The weakest: a write to /proc/sysrq-trigger resets the machine, and its firmware boots it again."""

    name = "sysrq-b"
    strength = "no power is taken: the kernel resets the machine without flushing anything of its own"
    cannot_prove: tuple[str, ...] = (
        "hosts: sysrq-b is a reset, not a power cut: the disks keep their power, so what is in their volatile caches "
        "survives, and only what the kernel still held is lost",
        "hosts: sysrq-b is carried out by the kernel under test, which must still be able to",
    )
    comes_back = True

    # dd opens the file when it starts and writes when its input arrives: at the cut nothing is started any more.
    ARM = ("dd", "of=/proc/sysrq-trigger", "bs=1", "count=1", "conv=notrunc", "status=none")

    def __init__(self, start: Callable[[Sequence[str]], RemoteCommand]) -> None:
        """``start`` starts a command on the machine, as root."""
        self._start = start
        self._armed: RemoteCommand | None = None

    def prepare(self) -> None:
        """Start the program whose one write is the reset, unless it runs already."""
        if self._armed is None or self._armed.ended:
            self._armed = self._start(self.ARM)

    def off(self) -> None:
        """Send the one byte. Whether the machine was reset, its changed boot_id says.

        Raises:
            RigError: the program ended, so the machine has read the byte, or could not, and still runs.
        """
        armed, self._armed = self._armed, None
        if armed is None or armed.ended:
            raise RigError("the program that is to reset the machine does not run")
        try:
            ended = armed.wait(Deadline.after(RESET_S), b"b")
        except RigError:
            return  # the connection broke, or fell silent
        raise RigError(f"the machine still answers after sysrq-b: {ended.stderr.strip() or 'it said nothing'}")

    def on(self) -> None:
        """Nobody gives power that was not taken: the firmware boots the machine."""

    def state(self) -> bool | None:
        """Nobody can tell."""
        return None
