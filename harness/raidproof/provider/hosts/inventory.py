"""The inventory: existing machines, how to log in to them, which disks may be used, how to cut their power."""

import re
import tomllib
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from raidproof.core.errors import RequestError
from raidproof.core.layer import Spec
from raidproof.core.topology import LONGEST_NAME
from raidproof.core.units import Size
from raidproof.provider.hosts.power import PowerControl

BY_ID = "/dev/disk/by-id/"
OURS = "raidproof-"
"""Prefix of the links that raidproof makes."""

Name = Annotated[str, StringConstraints(pattern=rf"^[a-z][a-z0-9-]{{0,{LONGEST_NAME - 1}}}$")]
# Excludes what SSH would read as an option, a shell as two words, or a terminal as a command.
Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:\[\]][A-Za-z0-9_.:@%\[\]-]*$")]

_CHANGING = (
    (r"/dev/disk/by-path/", "names a slot, not a disk: whatever disk is put there next would be taken"),
    (r"/dev/disk/by-(uuid|label|partuuid|partlabel|diskseq)/", "names what is written on a disk, not the disk"),
    (r"/dev/(mapper/|dm-|md)", "is no disk but something made of disks"),
    (r"/dev/", "is a name that changes at boot: another disk may have it tomorrow"),
)


def why_unstable(path: str) -> str | None:
    """Return why this path does not identify a disk, or None if it does: only /dev/disk/by-id identifies one disk."""
    name = path.removeprefix(BY_ID)
    if name == path:
        for pattern, reason in _CHANGING:
            if re.match(pattern, path):
                return f"{path} {reason}"
        return f"{path} is no path in {BY_ID}"
    if not re.fullmatch(r"[A-Za-z0-9_.:+=@#-]+", name) or name in {".", ".."}:
        return f"{path} is no name that udev makes"
    if name.startswith(OURS):
        return f"{path} is a link that raidproof itself makes, so it does not identify the disk"
    if re.match(r"(dm|md|lvm)-", name):
        return f"{path} names something made of disks, or what is written on one"
    return None


class HostSpec(Spec):
    """One existing machine."""

    name: Name
    """Name of the machine in reports; its own host name does not change."""
    host: Word
    """Its address, or its alias in ~/.ssh/config, which is evaluated."""
    user: Word | None = None
    """User of the login; None: from ~/.ssh/config."""
    sudo: bool = False
    """Whether that user becomes root with sudo, without a password."""
    address: Word | None = None
    """Address of the server for clients, and of a client for the server; None: ``host``, resolved."""
    stop_nfs: bool = False
    """For the server: whether its own NFS server, if it runs one, may be stopped during a run."""


class MemberDisk(Spec):
    """One disk of the server that raidproof may use, destroying its content."""

    id: str
    """A path in /dev/disk/by-id; verified by the gate, which reports it together with all other objections."""
    size: Size | None = None
    """Required size in bytes; None: any."""


class Inventory(Spec):
    """The content of an inventory file."""

    server: HostSpec
    client: tuple[HostSpec, ...] = Field(min_length=1)
    disk: tuple[MemberDisk, ...] = Field(min_length=1)
    power: dict[str, PowerControl] = Field(default_factory=dict)
    """By machine. A machine without an entry can be measured, but not crashed."""

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        names = [machine.name for machine in self.machines]
        for what, values in (
            ("machine name", names),
            ("host", [one.host for one in self.machines]),
            ("disk", [disk.id for disk in self.disk]),
        ):
            if twice := next((value for value in values if values.count(value) > 1), None):
                raise RequestError(f"{what} used twice: {twice}")
        if strangers := sorted(set(self.power) - set(names)):
            raise RequestError(f"power of {', '.join(strangers)}, which is no machine of this inventory")
        return self

    @property
    def machines(self) -> tuple[HostSpec, ...]:
        """The server, then the clients."""
        return (self.server, *self.client)

    @property
    def disks(self) -> dict[str, MemberDisk]:
        """The disks by their names in scenarios: disk0, disk1, ... in the order of the file."""
        return {f"disk{number}": disk for number, disk in enumerate(self.disk)}


def parse_inventory(text: str, where: str = "inventory") -> Inventory:
    """Parse an inventory.

    Raises:
        RequestError: it is not TOML, or contains an impossible request.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RequestError(f"{where} is no TOML: {error}") from error
    try:
        return Inventory.model_validate(table)
    except RequestError as error:
        raise RequestError(f"{where}: {error}") from error


def load_inventory(path: Path) -> Inventory:
    """Read an inventory file. Raises as `parse_inventory`, also if the file does not exist."""
    try:
        return parse_inventory(path.read_text(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"no inventory at {path}: {error}") from error
