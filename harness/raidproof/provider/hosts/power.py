"""The power controls of existing machines: IPMI, Redfish, a command of the user, or the kernel's sysrq."""

import os
import re
import struct
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, Protocol, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from raidproof.core import command
from raidproof.core.errors import RequestError, RequirementMissing, RigError
from raidproof.core.waiting import Deadline, now_ns, wait_until
from raidproof.disk.cache import CutPolicy
from raidproof.machine.agent import RemoteCommand
from raidproof.machine.machine import Cut

IPMI_PORT = 623
"""The RMCP+ port of a BMC (IPMI 2.0, 13.1.2)."""
Argv = Annotated[tuple[str, ...], Field(min_length=1)]
"""A command as a list of words: the program and its arguments."""
REMEDY = ".venv/bin/python -m pip install --editable '.[hosts]'"
"""The shell command that installs the libraries for IPMI and Redfish."""
# Exceptions that pyghmi raises on an unexpected answer of a BMC, besides its own.
_UNEXPECTED = (struct.error, LookupError, TypeError, ValueError)
CONNECT_S, READ_S = 5.0, 30.0
"""Seconds within which a BMC must accept a Redfish connection, and answer a request."""
T = TypeVar("T")
COMMAND_DEADLINE_S = 60.0
"""Time limit in seconds for a power command of the user."""
RESET_S = 2.0
"""Seconds without an answer after which a machine counts as reset by sysrq: a reset does not close the connection."""
OFF_DEADLINE_S = 60.0
"""Seconds within which a board must lose its power: a BMC answers a request before it has executed the request."""
ASK_S = 0.5
"""Seconds between two queries of the power state: a BMC is slow and easily overloaded."""
STATE_VALID_S = 5.0
"""Seconds for which a queried power state is used again."""


class NoPower:
    """Stands for the power control that a machine lacks: the machine can be measured, but not crashed."""

    consoles: tuple[Path, ...] = ()
    poweroff = ("false",)
    raid6 = True

    def __init__(self, name: str) -> None:
        self._name = name

    def _refuse(self) -> RequirementMissing:
        return RequirementMissing(
            f"the inventory has no power control for {self._name}",
            remedy=f"add [power.{self._name}] to the inventory, of kind ipmi, redfish, command or sysrq",
        )

    def on(self) -> None:
        """Refuse to switch the machine on, as there is no power control.

        Raises:
            RequirementMissing: always.
        """
        raise self._refuse()

    def cut(self, policy: CutPolicy, seed: int) -> Cut:
        """Refuse to cut the power, as there is no power control.

        Raises:
            RequirementMissing: always.
        """
        del policy, seed
        raise self._refuse()

    def wait_off(self, deadline: Deadline) -> None:
        """Refuse to let the machine power off: without power control it cannot be switched on again.

        Raises:
            RequirementMissing: always.
        """
        del deadline
        raise self._refuse()

    def require_on(self) -> None:
        """Do nothing: without power control the machine is assumed to have power."""


class _Control(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Account(_Control):
    """An account on a BMC. The inventory does not contain the password, as users copy and publish inventories."""

    user: str
    """The name of the account."""
    password_file: Path | None = None
    """The file whose first line is the password."""
    password_env: str | None = None
    """The name of the environment variable that contains the password."""

    @model_validator(mode="after")
    def _one_secret(self) -> Self:
        if (self.password_file is None) == (self.password_env is None):
            raise ValueError("give either password_file or password_env")
        return self

    def password(self) -> str:
        """Return the password of the account.

        Raises:
            RequestError: the environment variable is not set, or the password file cannot be read.
        """
        if self.password_env is not None:
            if (password := os.environ.get(self.password_env)) is None:
                raise RequestError(
                    f"the environment variable {self.password_env}, the password of BMC user {self.user}, is not set"
                )
            return password
        path = (self.password_file or Path()).expanduser()
        try:
            return path.read_text().partition("\n")[0]
        except (OSError, UnicodeDecodeError) as error:
            raise RequestError(f"the password of BMC user {self.user} cannot be read from {path}: {error}") from error


class IpmiControl(_Account):
    """The settings of a power control of kind ``ipmi``: a BMC with IPMI 2.0 over the network."""

    kind: Literal["ipmi"]
    address: str
    """The host name or address of the BMC."""
    port: int = Field(default=IPMI_PORT, ge=1, le=65535)


class RedfishControl(_Account):
    """The settings of a power control of kind ``redfish``: a BMC with Redfish."""

    kind: Literal["redfish"]
    url: str = Field(pattern=r"^https?://")
    """The URL of the BMC."""
    system: str | None = None
    """The path of the system, as ``/redfish/v1/Systems/1``; None: the only system of the BMC."""
    certificate: Path | Literal[False] | None = None
    """The file of the CA that signed the BMC's certificate; None: this host's CAs; false: accept any certificate."""


class CommandControl(_Control):
    """The settings of a power control of kind ``command``: commands on this host, for a PDU, relay or hypervisor."""

    kind: Literal["command"]
    off: Argv
    """The command that switches the power off."""
    on: Argv
    """The command that switches the power on."""
    state: Argv | None = None
    """The command that prints the power state, with the last word ``on`` or ``off``; None: the state is unknown."""
    cuts_disks: bool = True
    """Whether the commands cut the power of the disks too; false if only the computer is connected to the switch."""


class SysrqControl(_Control):
    """The settings of a power control of kind ``sysrq``: the kernel resets the machine; no power is switched."""

    kind: Literal["sysrq"]


PowerControl = Annotated[IpmiControl | RedfishControl | CommandControl | SysrqControl, Field(discriminator="kind")]
"""The settings of a machine's power control in the inventory."""


class IpmiSwitch:
    """Switches a machine's power by IPMI."""

    name = "ipmi"
    strength = "the BMC switches off the power of the board (chassis power down)"
    cannot_prove: tuple[str, ...] = (
        "hosts: after a cut by the BMC, the power supply's capacitors feed the board for milliseconds, as after a "
        "mains failure",
        "hosts: a cut by the BMC does not cut the power of disks in an enclosure with its own power supply",
    )
    comes_back = False

    def __init__(self, control: IpmiControl) -> None:
        self._control = control
        self._ipmi = _library("pyghmi.ipmi.command", "IPMI")
        self._session: Any = None

    def prepare(self) -> None:
        """Log in to the BMC, and let the library identify it, which takes seconds, before the cut.

        Raises:
            RigError: the BMC does not answer, or refuses a request.
        """

        def look(session: Any) -> dict[str, Any]:
            session.oem_init()
            state: dict[str, Any] = session.get_power()
            return state

        self._request(look)

    def off(self) -> None:
        """Request that the BMC switches the board off, without waiting for the loss of power.

        Raises:
            RigError: the BMC does not answer, or refuses the request.
        """
        self._request(lambda session: session.set_power("off", wait=False))

    def on(self) -> None:
        """Request that the BMC switches the board on.

        Raises:
            RigError: the BMC does not answer, or refuses the request.
        """
        self._request(lambda session: session.set_power("on", wait=False))

    def state(self) -> bool:
        """Return whether the board has power.

        Raises:
            RigError: the BMC does not answer, refuses a request, or reports neither on nor off.
        """
        state = self._request(lambda session: session.get_power()).get("powerstate")
        if state not in {"on", "off"}:
            raise RigError(f"the BMC at {self._control.address} reports power state {state!r}, not on or off")
        return bool(state == "on")

    def _request(self, ask: Any) -> dict[str, Any]:
        try:
            if self._session is None:
                self._session = self._ipmi.Command(
                    bmc=self._control.address,
                    userid=self._control.user,
                    password=self._control.password(),
                    port=self._control.port,
                    keepalive=False,
                )
            answer: dict[str, Any] = ask(self._session)
        except (self._ipmi.exc.PyghmiException, OSError, *_UNEXPECTED) as error:
            self._session = None
            raise RigError(
                f"the BMC at {self._control.address} refuses a request or does not answer: {error}",
                remedy="check address, user and password in the inventory, and the user's privilege on the BMC",
            ) from error
        return answer


def _library(module: str, protocol: str) -> ModuleType:
    """Return the optional Python library ``module``, which controls a BMC by ``protocol``.

    Raises:
        RequirementMissing: the library is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        raise RequirementMissing(
            f"power control by {protocol} needs the Python library {name}, which is not installed", remedy=REMEDY
        ) from error


class RedfishSwitch:
    """Switches a machine's power by Redfish."""

    name = "redfish"
    strength = "the BMC switches off the power of the board (ForceOff)"
    cannot_prove: tuple[str, ...] = IpmiSwitch.cannot_prove
    comes_back = False

    def __init__(self, control: RedfishControl) -> None:
        self._control = control
        self._sushy = _library("sushy", "Redfish")
        self._found: Any = None

    def prepare(self) -> None:
        """Log in to the BMC, find the system, and check that the system supports ForceOff.

        The other reset types of Redfish involve the operating system.

        Raises:
            RigError: the BMC does not answer, refuses a request, or does not support ForceOff.
        """

        def allowed(system: Any) -> set[Any]:
            values: set[Any] = system.get_allowed_reset_system_values()
            return values

        if self._sushy.ResetType.FORCE_OFF not in self._ask(allowed):
            raise RigError(
                f"the BMC at {self._control.url} does not offer reset type ForceOff: it cannot cut the power at once"
            )

    def off(self) -> None:
        """Request that the BMC switches the system off (ForceOff), without waiting for the loss of power.

        Raises:
            RigError: the BMC does not answer, or refuses the request.
        """
        self._ask(lambda system: system.reset_system(self._sushy.ResetType.FORCE_OFF))

    def on(self) -> None:
        """Request that the BMC switches the system on, if it is off.

        Raises:
            RigError: the BMC does not answer, refuses a request, or reports no power state.
        """
        if not self.state():
            self._ask(lambda system: system.reset_system(self._sushy.ResetType.ON))

    def state(self) -> bool:
        """Return whether the board has power; true also while the BMC switches the power on or off.

        Raises:
            RigError: the BMC does not answer, refuses a request, or reports no power state.
        """

        def power(system: Any) -> Any:
            system.refresh(force=True)
            return system.power_state

        state = self._ask(power)
        if state is None:
            raise RigError(f"the BMC at {self._control.url} reports no power state")
        return bool(state != self._sushy.PowerState.OFF)

    def _ask(self, ask: Callable[[Any], T]) -> T:
        try:
            if self._found is None:
                self._found = self._system()
            return ask(self._found)
        except (self._sushy.exceptions.SushyError, OSError) as error:
            self._found = None
            raise RigError(
                f"the BMC at {self._control.url} refuses a request or does not answer: {error}",
                remedy="check url, user, password, system and certificate in the inventory",
            ) from error

    def _system(self) -> Any:
        certificate = self._control.certificate
        service = self._sushy.Sushy(
            self._control.url,
            username=self._control.user,
            password=self._control.password(),
            verify=True if certificate is None else certificate and str(certificate.expanduser()),
            # No retries: a second ForceOff could reach a machine that is already on again.
            server_side_retries=0,
            connect_timeout=CONNECT_S,
            read_timeout=READ_S,
        )
        if self._control.system is None and len(members := service.get_system_collection().members_identities) != 1:
            raise RigError(
                f"the BMC at {self._control.url} has {len(members)} systems, not 1: {', '.join(members)}",
                remedy='name one of them in the inventory: system = "..."',
            )
        return service.get_system(self._control.system)


class Switch(Protocol):
    """The interface of a power control: it switches a machine's power off and on."""

    name: str
    """The name of the power control in messages and in the report."""
    strength: str
    """A sentence for the report: how the power is cut."""
    cannot_prove: tuple[str, ...]
    """What a cut by this power control cannot prove; the report lists these sentences."""
    comes_back: bool
    """Whether a cut machine boots again without `on`, as after a reset; its power state is then never off."""

    def prepare(self) -> None:
        """Do all steps that take time, such as the login to a BMC, so that `off` takes one request."""

    def off(self) -> None:
        """Switch the power off at once, without the participation of the operating system."""

    def on(self) -> None:
        """Switch the power on; do nothing if it is on."""

    def state(self) -> bool | None:
        """Return whether the machine has power; None if the state is unknown."""


class CommandSwitch:
    """Switches a machine's power by commands of the user, which run on this host."""

    comes_back = False

    def __init__(self, control: CommandControl) -> None:
        self._control = control
        self.name = f"command: {control.off[0]}"
        self.strength = f"a command of the user, {control.off[0]}, cuts the power"
        self.cannot_prove: tuple[str, ...] = (
            "hosts: raidproof cannot verify that the user's command cuts the power at once, without a shutdown",
            *(
                ()
                if control.cuts_disks
                else ("hosts: a cut does not cut the power of the disks, so data in their volatile caches survives",)
            ),
            *(() if control.state else ("hosts: no command reports the power state, so a cut cannot be verified",)),
        )

    def prepare(self) -> None:
        """Do nothing: a command needs no preparation."""

    def off(self) -> None:
        """Run the user's command that switches the power off.

        Raises:
            CommandFailed: the command failed.
            RequirementMissing: the program of the command does not exist.
        """
        command.succeed(self._control.off, deadline_s=COMMAND_DEADLINE_S)

    def on(self) -> None:
        """Run the user's command that switches the power on.

        Raises:
            CommandFailed: the command failed.
            RequirementMissing: the program of the command does not exist.
        """
        command.succeed(self._control.on, deadline_s=COMMAND_DEADLINE_S)

    def state(self) -> bool | None:
        """Return the power state that the user's command prints; None if the inventory has no such command.

        Raises:
            CommandFailed: the command failed.
            RigError: the output of the command does not end in on or off.
        """
        if self._control.state is None:
            return None
        return parse_state(command.succeed(self._control.state, deadline_s=COMMAND_DEADLINE_S))


def parse_state(text: str) -> bool:
    """Return the power state in the output of a user's command, such as ``Chassis Power is off``: true for on.

    Raises:
        RigError: the last word is neither on nor off.
    """
    words = re.findall(r"[a-z]+", text.lower())
    if not words or words[-1] not in {"on", "off"}:
        raise RigError(f"the last word printed by the inventory's command `state` is not on or off: {text[-200:]!r}")
    return bool(words[-1] == "on")


class SysrqSwitch:
    """Resets a machine by a write to /proc/sysrq-trigger, after which the firmware boots it; no power is switched."""

    name = "sysrq-b"
    strength = "the kernel resets the machine without flushing its caches; no power is cut"
    cannot_prove: tuple[str, ...] = (
        "hosts: sysrq-b is a reset, not a power cut: the disks keep their power, so data in their volatile caches "
        "survives, and only data in the machine's memory is lost",
        "hosts: the kernel under test executes sysrq-b itself, so a kernel that hangs cannot be reset",
    )
    comes_back = True

    # dd opens the file when it starts, and writes when its input arrives: no program need be started for the cut.
    ARM = ("dd", "of=/proc/sysrq-trigger", "bs=1", "count=1", "conv=notrunc", "status=none")

    def __init__(self, start: Callable[[Sequence[str]], RemoteCommand]) -> None:
        """Store ``start``, which starts a command on the machine as root."""
        self._start = start
        self._armed: RemoteCommand | None = None

    def prepare(self) -> None:
        """Start the program that waits for a byte and then resets the machine, unless this program is running."""
        if self._armed is None or self._armed.ended:
            self._armed = self._start(self.ARM)

    def off(self) -> None:
        """Reset the machine. The caller checks by the machine's boot_id that the reset has happened.

        Raises:
            RigError: the program that resets the machine is not running, or has ended normally, so it has not
                reset the machine.
        """
        armed, self._armed = self._armed, None
        if armed is None or armed.ended:
            raise RigError("sysrq-b: the program on the machine that writes to /proc/sysrq-trigger is not running")
        try:
            ended = armed.wait(Deadline.after(RESET_S), b"b")
        except RigError:
            return  # the connection has broken, or the machine has stopped to answer
        raise RigError(f"sysrq-b: the machine still answers after the reset: {ended.stderr.strip() or 'no output'}")

    def on(self) -> None:
        """Do nothing: a reset does not cut the power, and the firmware boots the machine."""

    def state(self) -> bool | None:
        """Return None: without a power switch the power state is unknown."""
        return None


def switch_of(control: PowerControl, start: Callable[[Sequence[str]], RemoteCommand]) -> Switch:
    """Return the power control with the settings ``control``; ``start`` starts a command on the machine as root.

    Raises:
        RequirementMissing: the library for IPMI or Redfish is not installed.
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
    """The power of one existing machine, cut and switched on by a power control of the inventory."""

    consoles: tuple[Path, ...] = ()
    raid6 = True

    def __init__(self, name: str, switch: Switch, answers: Callable[[], bool]) -> None:
        """Store the arguments; ``answers`` returns whether the machine's SSH server answers."""
        self._name = name
        self.switch = switch
        self._answers = answers
        self._asked: Deadline | None = None

    @property
    def poweroff(self) -> tuple[str, ...]:
        """The command for an orderly shutdown; a reboot if the power control cannot switch the machine on again."""
        return ("systemctl", "reboot") if self.switch.comes_back else ("systemctl", "poweroff")

    @property
    def cannot_prove(self) -> tuple[str, ...]:
        """What a cut by the machine's power control cannot prove."""
        return self.switch.cannot_prove

    def on(self) -> None:
        """Switch the machine on; do nothing if it is on."""
        self.switch.on()

    def prepare(self) -> None:
        """Prepare the power control, so that a cut takes one request; this also checks that the control works.

        Raises:
            RigError: the power control does not work.
        """
        self.switch.prepare()

    def cut(self, policy: CutPolicy, seed: int) -> Cut:
        """Cut the power, and wait until the machine has lost it.

        The returned time of the cut is the time before the request is sent to the power control. The machine loses
        its power milliseconds to seconds later. Operations acknowledged in between count as not acknowledged, so
        their loss is no failure.

        Raises:
            RequestError: a policy other than ``drop`` is requested; real disks themselves determine what they lose.
            RigError: the power control does not work.
            DeadlineExceeded: the machine has not lost its power.
        """
        if policy is not CutPolicy.DROP:
            raise RequestError(
                f"{self._name}: cut policy {policy.value}: what a real disk loses at a cut cannot be chosen",
                remedy="request policy drop, or use provider uml, qemu or vagrant, whose disks are simulated",
            )
        self.switch.prepare()
        at_ns = now_ns()
        self.switch.off()
        deadline = Deadline.after(OFF_DEADLINE_S)
        if self.switch.state() is not None:
            wait_until(lambda: not self.switch.state(), deadline, f"{self._name} to lose its power", ASK_S)
        elif not self.switch.comes_back:
            wait_until(lambda: not self._answers(), deadline, f"{self._name} to stop answering by SSH", ASK_S)
        self._asked = None
        return Cut(at_ns, policy, seed)

    def wait_off(self, deadline: Deadline) -> None:
        """Wait until the machine is off or, if the power state is unknown, until its SSH server does not answer.

        Raises:
            DeadlineExceeded: the machine has not stopped.
        """
        silent = self.switch.state() is None
        gone = (lambda: not self._answers()) if silent else (lambda: not self.switch.state())
        wait_until(gone, deadline, f"{self._name} to stop", ASK_S)

    def require_on(self) -> None:
        """Raise RigError if the power control, queried at most every 5 s, reports that the machine has no power."""
        if self._asked is not None and not self._asked.passed:
            return
        if self.switch.state() is False:
            raise RigError(f"{self._name} has no power, according to its power control ({self.switch.name})")
        self._asked = Deadline.after(STATE_VALID_S)
