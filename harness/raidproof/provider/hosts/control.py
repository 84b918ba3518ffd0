"""What an inventory says about the power of a machine: which switch there is, and how it is reached."""

import os
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from raidproof.core.errors import RequestError

IPMI_PORT = 623
"""Where a BMC listens for RMCP+ (IPMI 2.0, 13.1.2)."""

Argv = Annotated[tuple[str, ...], Field(min_length=1)]


class _Control(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Account(_Control):
    """An account of a BMC. The password never stands in the inventory, which people copy and commit."""

    user: str
    password_file: Path | None = None
    """Its first line is the password."""
    password_env: str | None = None
    """Name of the environment variable that holds it."""

    @model_validator(mode="after")
    def _one_secret(self) -> Self:
        if (self.password_file is None) == (self.password_env is None):
            raise ValueError("give one of password_file and password_env")
        return self

    def password(self) -> str:
        """Return the password.

        Raises:
            RequestError: it is not where the inventory says.
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
    """A BMC that speaks IPMI 2.0 over the network."""

    kind: Literal["ipmi"]
    address: str
    port: int = Field(default=IPMI_PORT, ge=1, le=65535)


class RedfishControl(_Account):
    """A BMC that speaks Redfish."""

    kind: Literal["redfish"]
    url: str = Field(pattern=r"^https?://")
    system: str | None = None
    """Path of the system, as ``/redfish/v1/Systems/1``; None where the BMC has only one."""
    certificate: Path | Literal[False] | None = None
    """The authority that signed the BMC's certificate; None is this host's authorities, false accepts any."""


class CommandControl(_Control):
    """Commands on this host: of a PDU, of a relay, of a hypervisor."""

    kind: Literal["command"]
    off: Argv
    on: Argv
    state: Argv | None = None
    """Prints ``on`` or ``off`` as its last word; without it nobody can ask."""
    cuts_disks: bool = True
    """Whether the disks lose their power too: false where only the computer hangs on the switch."""


class SysrqControl(_Control):
    """No switch at all: the kernel resets the machine at once when it is told to."""

    kind: Literal["sysrq"]


PowerControl = Annotated[IpmiControl | RedfishControl | CommandControl | SysrqControl, Field(discriminator="kind")]
"""How a machine's power is taken and given, as an inventory says it."""
