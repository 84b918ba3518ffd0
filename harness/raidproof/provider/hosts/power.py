"""The power of an existing machine: its switches (IPMI, Redfish, a command, sysrq), cut, restored, checked."""

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
"""RMCP+ port of a BMC (IPMI 2.0, 13.1.2)."""
Argv = Annotated[tuple[str, ...], Field(min_length=1)]
REMEDY = ".venv/bin/python -m pip install --editable '.[hosts]'"
# Exceptions that the library raises if a BMC answers in an unexpected way.
_STUMBLES = (struct.error, LookupError, TypeError, ValueError)
CONNECT_S, READ_S = 5.0, 30.0
"""Seconds that a BMC gets to accept a connection, and to answer."""
T = TypeVar("T")
COMMAND_DEADLINE_S = 60.0
RESET_S = 2.0
"""Seconds to watch a connection that a reset should have silenced: a machine that resets closes no connection."""
OFF_DEADLINE_S = 60.0
"""Seconds; a BMC answers once it has accepted a request, but switching the board off takes seconds more."""
ASK_S = 0.5
"""Seconds between two requests to a BMC, which is slow and easily overloaded."""
STATE_VALID_S = 5.0


class NoPower:
    """Stands for a missing power control: such a machine can be measured, but not crashed."""

    consoles: tuple[Path, ...] = ()
    poweroff = ("false",)
    raid6 = True

    def __init__(self, name: str) -> None:
        self._name = name

    def _refuse(self) -> RequirementMissing:
        return RequirementMissing(
            f"the inventory names no power control for {self._name}",
            remedy=f"add [power.{self._name}] to it: ipmi, redfish, command or sysrq",
        )

    def on(self) -> None:
        """Refuse: there is no power control."""
        raise self._refuse()

    def cut(self, policy: CutPolicy, seed: int) -> Cut:
        """Refuse: there is no power control."""
        del policy, seed
        raise self._refuse()

    def wait_off(self, deadline: Deadline) -> None:
        """Refuse: the machine could not be switched on again."""
        del deadline
        raise self._refuse()

    def require_on(self) -> None:
        """Do nothing: the power state is unknown, and assumed to be on."""


class _Control(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Account(_Control):
    """An account of a BMC. The password is not stored in the inventory, which people copy and commit."""

    user: str
    password_file: Path | None = None
    """A file whose first line is the password."""
    password_env: str | None = None
    """Name of the environment variable with the password."""

    @model_validator(mode="after")
    def _one_secret(self) -> Self:
        if (self.password_file is None) == (self.password_env is None):
            raise ValueError("give one of password_file and password_env")
        return self

    def password(self) -> str:
        """Return the password.

        Raises:
            RequestError: the environment variable is not set, or the password file cannot be read.
        """
        if self.password_env is not None:
            if (password := os.environ.get(self.password_env)) is None:
                raise RequestError(
                    f"the environment has no {self.password_env}, which is to be {self.user}'s password"
                )
            return password
        path = (self.password_file or Path()).expanduser()
        try:
            return path.read_text().partition("\n")[0]
        except (OSError, UnicodeDecodeError) as error:
            raise RequestError(f"{self.user}'s password cannot be read from {path}: {error}") from error


class IpmiControl(_Account):
    """A BMC with IPMI 2.0 over the network."""

    kind: Literal["ipmi"]
    address: str
    port: int = Field(default=IPMI_PORT, ge=1, le=65535)


class RedfishControl(_Account):
    """A BMC with Redfish."""

    kind: Literal["redfish"]
    url: str = Field(pattern=r"^https?://")
    system: str | None = None
    """Path of the system, as ``/redfish/v1/Systems/1``; may be None if the BMC has only one."""
    certificate: Path | Literal[False] | None = None
    """File of the authority that signed the BMC's certificate; None: this host's authorities; false: accept any."""


class CommandControl(_Control):
    """Commands on this host: for a PDU, a relay, a hypervisor."""

    kind: Literal["command"]
    off: Argv
    on: Argv
    state: Argv | None = None
    """Prints ``on`` or ``off`` as its last word; without it the power state is unknown."""
    cuts_disks: bool = True
    """Whether the disks lose their power, too: false if only the computer is connected to the switch."""


class SysrqControl(_Control):
    """No power switch: the kernel resets the machine at once on request."""

    kind: Literal["sysrq"]


PowerControl = Annotated[IpmiControl | RedfishControl | CommandControl | SysrqControl, Field(discriminator="kind")]
"""How to switch a machine's power, from the inventory."""


class IpmiSwitch:
    """A BMC with IPMI."""

    name = "ipmi"
    strength = "the BMC switches the mains of the board off (chassis power down)"
    cannot_prove: tuple[str, ...] = (
        "hosts: at a cut by the BMC the supply's capacitors feed the board for milliseconds, as at a mains failure",
        "hosts: disks in a shelf with a supply of its own keep their power at a cut by the BMC",
    )
    comes_back = False

    def __init__(self, control: IpmiControl) -> None:
        self._control = control
        self._ipmi = _library("pyghmi.ipmi.command", "IPMI")
        self._session: Any = None

    def prepare(self) -> None:
        """Log in, and let the library identify the BMC: otherwise that would take seconds at the cut."""

        def look(session: Any) -> dict[str, Any]:
            session.oem_init()
            said: dict[str, Any] = session.get_power()
            return said

        self._request(look)

    def off(self) -> None:
        """Power down, without waiting.

        Raises:
            RigError: the BMC does not answer, or refuses.
        """
        self._request(lambda session: session.set_power("off", wait=False))

    def on(self) -> None:
        """Power up. Raises as `off`."""
        self._request(lambda session: session.set_power("on", wait=False))

    def state(self) -> bool:
        """Return whether the board has power. Raises as `off`."""
        said = self._request(lambda session: session.get_power()).get("powerstate")
        if said not in {"on", "off"}:
            raise RigError(f"the BMC at {self._control.address} reports an unknown power state: {said!r}")
        return bool(said == "on")

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
        except (self._ipmi.exc.PyghmiException, OSError, *_STUMBLES) as error:
            self._session = None
            raise RigError(
                f"the BMC at {self._control.address} refuses a request or does not answer: {error}",
                remedy="address, user, password and privilege are the inventory's",
            ) from error
        return answer


def _library(module: str, protocol: str) -> ModuleType:
    """Return an optional library."""
    try:
        return import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        raise RequirementMissing(f"this Python has no {name}, which speaks {protocol}", remedy=REMEDY) from error


class RedfishSwitch:
    """A BMC with Redfish."""

    name = "redfish"
    strength = "the BMC switches the mains of the board off (ForceOff)"
    cannot_prove: tuple[str, ...] = IpmiSwitch.cannot_prove
    comes_back = False

    def __init__(self, control: RedfishControl) -> None:
        self._control = control
        self._sushy = _library("sushy", "Redfish")
        self._found: Any = None

    def prepare(self) -> None:
        """Log in, find the system, and check that it supports ForceOff.

        Raises:
            RigError: the BMC does not answer, or has no ForceOff: the other ways involve the operating system.
        """

        def allowed(system: Any) -> set[Any]:
            values: set[Any] = system.get_allowed_reset_system_values()
            return values

        if self._sushy.ResetType.FORCE_OFF not in self._ask(allowed):
            raise RigError(f"{self._control.url} offers no ForceOff, so it cannot take the power away at once")

    def off(self) -> None:
        """Force the system off, without waiting. Raises as `prepare`."""
        self._ask(lambda system: system.reset_system(self._sushy.ResetType.FORCE_OFF))

    def on(self) -> None:
        """Switch the system on. Raises as `prepare`."""
        if not self.state():
            self._ask(lambda system: system.reset_system(self._sushy.ResetType.ON))

    def state(self) -> bool:
        """Return whether the board has power; true also during a transition. Raises as `prepare`."""

        def power(system: Any) -> Any:
            system.refresh(force=True)
            return system.power_state

        said = self._ask(power)
        if said is None:
            raise RigError(f"{self._control.url} does not say whether the power is on")
        return bool(said != self._sushy.PowerState.OFF)

    def _ask(self, ask: Callable[[Any], T]) -> T:
        try:
            if self._found is None:
                self._found = self._system()
            return ask(self._found)
        except (self._sushy.exceptions.SushyError, OSError) as error:
            self._found = None
            raise RigError(
                f"{self._control.url} refuses a request or does not answer: {error}",
                remedy="url, user, password, system and certificate are the inventory's",
            ) from error

    def _system(self) -> Any:
        certificate = self._control.certificate
        service = self._sushy.Sushy(
            self._control.url,
            username=self._control.user,
            password=self._control.password(),
            verify=True if certificate is None else certificate and str(certificate.expanduser()),
            # A retry could hit a machine that is already on again.
            server_side_retries=0,
            connect_timeout=CONNECT_S,
            read_timeout=READ_S,
        )
        if self._control.system is None and len(members := service.get_system_collection().members_identities) != 1:
            raise RigError(f"{self._control.url} has {len(members)} systems: name one of them: {', '.join(members)}")
        return service.get_system(self._control.system)


class Switch(Protocol):
    """Switches a machine's power off and on."""

    name: str
    strength: str
    """The kind of cut, in one sentence."""
    cannot_prove: tuple[str, ...]
    """What a cut by this switch cannot prove; repeated in the report."""
    comes_back: bool
    """Whether the machine boots again by itself: then the power state is never off."""

    def prepare(self) -> None:
        """Do all that takes time, so that `off` is one request."""

    def off(self) -> None:
        """Switch the power off at once, without the operating system's participation."""

    def on(self) -> None:
        """Switch the power on; no effect on a machine that is on."""

    def state(self) -> bool | None:
        """Return whether the machine has power; None if unknown."""


class CommandSwitch:
    """A pair of commands on this host."""

    comes_back = False

    def __init__(self, control: CommandControl) -> None:
        self._control = control
        self.name = f"command: {control.off[0]}"
        self.strength = f"the power is taken by a command of the user's, {control.off[0]}"
        self.cannot_prove: tuple[str, ...] = (
            "hosts: whether the user's command cuts the power at once, without involving the operating system, is not "
            "verified",
            *(
                ()
                if control.cuts_disks
                else ("hosts: the disks keep their power at a cut: what is in their volatile caches survives",)
            ),
            *(() if control.state else ("hosts: no command reports whether the power is off",)),
        )

    def prepare(self) -> None:
        """Do nothing: there is nothing to prepare."""

    def off(self) -> None:
        """Run the command that switches the power off.

        Raises:
            CommandFailed: the command failed.
            RequirementMissing: there is no such program.
        """
        command.succeed(self._control.off, deadline_s=COMMAND_DEADLINE_S)

    def on(self) -> None:
        """Run the command that switches the power on. Raises as `off`."""
        command.succeed(self._control.on, deadline_s=COMMAND_DEADLINE_S)

    def state(self) -> bool | None:
        """Run the command that prints the power state.

        Raises:
            RigError: its output is neither on nor off.
        """
        if self._control.state is None:
            return None
        return parse_state(command.succeed(self._control.state, deadline_s=COMMAND_DEADLINE_S))


def parse_state(text: str) -> bool:
    """Parse the last word of text such as ``Chassis Power is off``.

    Raises:
        RigError: it is neither on nor off.
    """
    words = re.findall(r"[a-z]+", text.lower())
    if not words or words[-1] not in {"on", "off"}:
        raise RigError(f"the power's state should end in on or off: {text.strip()[-200:] or 'nothing'}")
    return bool(words[-1] == "on")


class SysrqSwitch:
    """The weakest switch: a write to /proc/sysrq-trigger resets the machine, and its firmware boots it again."""

    name = "sysrq-b"
    strength = "no power is taken: the kernel resets the machine without flushing anything of its own"
    cannot_prove: tuple[str, ...] = (
        "hosts: sysrq-b is a reset, not a power cut: the disks keep their power, so what is in their volatile caches "
        "survives, and only what the kernel still held is lost",
        "hosts: sysrq-b is carried out by the kernel under test, which must still be able to",
    )
    comes_back = True

    # dd opens the file when it starts, and writes when its input arrives: at the cut no program must be started.
    ARM = ("dd", "of=/proc/sysrq-trigger", "bs=1", "count=1", "conv=notrunc", "status=none")

    def __init__(self, start: Callable[[Sequence[str]], RemoteCommand]) -> None:
        """Take ``start``, which starts a command on the machine, as root."""
        self._start = start
        self._armed: RemoteCommand | None = None

    def prepare(self) -> None:
        """Start the program whose single write resets the machine, unless it runs already."""
        if self._armed is None or self._armed.ended:
            self._armed = self._start(self.ARM)

    def off(self) -> None:
        """Send the one byte. A changed boot_id shows whether the machine was reset.

        Raises:
            RigError: the program ended, so the machine still runs, whether or not it read the byte.
        """
        armed, self._armed = self._armed, None
        if armed is None or armed.ended:
            raise RigError("the program that is to reset the machine does not run")
        try:
            ended = armed.wait(Deadline.after(RESET_S), b"b")
        except RigError:
            return  # the connection broke, or became silent
        raise RigError(f"the machine still answers after sysrq-b: {ended.stderr.strip() or 'no output'}")

    def on(self) -> None:
        """Do nothing: the power was not cut, and the firmware boots the machine."""

    def state(self) -> bool | None:
        """Return None: the power state is unknown."""
        return None


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

    The disks themselves decide what they keep, so the only valid policy is ``drop``, the plain cut.
    """

    consoles: tuple[Path, ...] = ()
    raid6 = True

    def __init__(self, name: str, switch: Switch, answers: Callable[[], bool]) -> None:
        """Take ``answers``, which returns whether the machine's SSH port answers."""
        self._name = name
        self.switch = switch
        self._answers = answers
        self._asked: Deadline | None = None

    @property
    def poweroff(self) -> tuple[str, ...]:
        """Command for an orderly shutdown; a reboot for a machine that could not be switched on again."""
        return ("systemctl", "reboot") if self.switch.comes_back else ("systemctl", "poweroff")

    @property
    def cannot_prove(self) -> tuple[str, ...]:
        """What a cut by this switch cannot prove."""
        return self.switch.cannot_prove

    def on(self) -> None:
        """Switch on; no effect on a machine that is on."""
        self.switch.on()

    def prepare(self) -> None:
        """Do in advance what takes time, and check before the work begins that the switch works.

        Raises:
            RigError: it does not work.
        """
        self.switch.prepare()

    def cut(self, policy: CutPolicy, seed: int) -> Cut:
        """Cut the power.

        The cut is stamped before the request is sent. The true loss of power comes milliseconds to seconds later; what
        was acknowledged in between counts as not acknowledged, so that its loss is not counted as a failure.

        Raises:
            RequestError: a policy other than ``drop`` is requested.
            RigError: the switch does not work.
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
        """Return when the machine has stopped by itself: by its switch or, without state, when SSH falls silent.

        Raises:
            DeadlineExceeded: the machine is still up.
        """
        silent = self.switch.state() is None
        gone = (lambda: not self._answers()) if silent else (lambda: not self.switch.state())
        wait_until(gone, deadline, f"{self._name} to stop", ASK_S)

    def require_on(self) -> None:
        """Raise RigError if the switch reports that the machine has no power; query it at most every 5 s."""
        if self._asked is not None and not self._asked.passed:
            return
        if self.switch.state() is False:
            raise RigError(f"{self._name} has no power according to its {self.switch.name}")
        self._asked = Deadline.after(STATE_VALID_S)
