"""The power of a machine through its BMC, by Redfish."""

from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

from raidproof.core.errors import RequirementMissing, RigError
from raidproof.provider.hosts.control import RedfishControl
from raidproof.provider.hosts.ipmi import REMEDY, IpmiSwitch

CONNECT_S, READ_S = 5.0, 30.0
"""What a BMC may take to accept a connection, and to answer."""

T = TypeVar("T")


class RedfishSwitch:
    """A BMC that speaks Redfish."""

    name = "redfish"
    strength = "the BMC switches the mains of the board off (ForceOff)"
    cannot_prove: tuple[str, ...] = IpmiSwitch.cannot_prove
    comes_back = False

    def __init__(self, control: RedfishControl) -> None:
        self._control = control
        self._sushy = _sushy()
        self._found: Any = None

    def prepare(self) -> None:
        """Log in, find the system, and make sure that it can be forced off.

        Raises:
            RigError: the BMC does not answer, or offers no ForceOff: the other ways ask the operating system.
        """

        def allowed(system: Any) -> set[Any]:
            values: set[Any] = system.get_allowed_reset_system_values()
            return values

        if self._sushy.ResetType.FORCE_OFF not in self._ask(allowed):
            raise RigError(f"{self._control.url} offers no ForceOff, so it cannot take the power away at once")

    def off(self) -> None:
        """Force it off, without waiting. Raises as `prepare`."""
        self._ask(lambda system: system.reset_system(self._sushy.ResetType.FORCE_OFF))

    def on(self) -> None:
        """Switch it on. Raises as `prepare`."""
        if not self.state():
            self._ask(lambda system: system.reset_system(self._sushy.ResetType.ON))

    def state(self) -> bool:
        """Ask whether the board has power: also while it is being switched on or off. Raises as `prepare`."""

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
                f"{self._control.url} does not do what it is asked: {error}",
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


def _sushy() -> ModuleType:
    try:
        import sushy  # noqa: PLC0415  optional
    except ImportError as error:
        raise RequirementMissing("this Python has no sushy, which speaks Redfish", remedy=REMEDY) from error
    module: ModuleType = sushy
    return module
