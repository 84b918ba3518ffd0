"""The power of a machine through its BMC, by IPMI 2.0."""

import struct
from types import ModuleType
from typing import Any

from raidproof.core.errors import RequirementMissing, RigError
from raidproof.provider.hosts.control import IpmiControl

REMEDY = ".venv/bin/python -m pip install --editable '.[hosts]'"

# What the library lets through when a BMC answers otherwise than it expects.
_STUMBLES = (struct.error, LookupError, TypeError, ValueError)


class IpmiSwitch:
    """A BMC that speaks IPMI."""

    name = "ipmi"
    strength = "the BMC switches the mains of the board off (chassis power down)"
    cannot_prove: tuple[str, ...] = (
        "hosts: at a cut by the BMC the supply's capacitors feed the board for milliseconds, as at a mains failure",
        "hosts: disks in a shelf with a supply of its own keep their power at a cut by the BMC",
    )
    comes_back = False

    def __init__(self, control: IpmiControl) -> None:
        self._control = control
        self._ipmi = _pyghmi()
        self._session: Any = None

    def prepare(self) -> None:
        """Log in, and let the library find out what BMC it is: else it does so, in seconds, when the power is cut."""

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
        """Ask whether the board has power. Raises as `off`."""
        said = self._request(lambda session: session.get_power()).get("powerstate")
        if said not in {"on", "off"}:
            raise RigError(f"the BMC at {self._control.address} says of its power: {said!r}")
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
                f"the BMC at {self._control.address} does not do what it is asked: {error}",
                remedy="address, user, password and privilege are the inventory's",
            ) from error
        return answer


def _pyghmi() -> ModuleType:
    try:
        from pyghmi.ipmi import command  # noqa: PLC0415  optional
    except ImportError as error:
        raise RequirementMissing("this Python has no pyghmi, which speaks IPMI", remedy=REMEDY) from error
    module: ModuleType = command
    return module
