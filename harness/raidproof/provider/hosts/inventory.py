"""The inventory file of provider ``hosts``: machines, their logins, the disks to use, and their power controls."""

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
"""The folder of links that identify disks (udev(7))."""
OURS = "raidproof-"
"""Prefix of the names of the links that raidproof creates in `BY_ID`."""

Name = Annotated[str, StringConstraints(pattern=rf"^[a-z][a-z0-9-]{{0,{LONGEST_NAME - 1}}}$")]
"""The name of a machine in a scenario and in reports."""
# Excludes options of ssh, words that a shell would split, and control characters of a terminal.
Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:\[\]][A-Za-z0-9_.:@%\[\]-]*$")]

_CHANGING = (
    (
        r"/dev/disk/by-path/",
        "names a slot of the machine, not a disk: an exchange of disks changes the disk behind it",
    ),
    (r"/dev/disk/by-(uuid|label|partuuid|partlabel|diskseq)/", "names the content of a disk, not the disk"),
    (r"/dev/(mapper/|dm-|md)", "is not a disk, but a device made of disks"),
    (r"/dev/", "is a kernel name: after the next boot it may be the name of another disk"),
)
"""Patterns of paths that do not identify a disk, each with the reason as a predicate for messages."""


def why_unstable(path: str) -> str | None:
    """Return why a path does not identify one disk for ever; None if it does, as paths in /dev/disk/by-id do."""
    name = path.removeprefix(BY_ID)
    if name == path:
        for pattern, reason in _CHANGING:
            if re.match(pattern, path):
                return f"{path} {reason}"
        return f"{path} is not a path in {BY_ID}"
    if not re.fullmatch(r"[A-Za-z0-9_.:+=@#-]+", name) or name in {".", ".."}:
        return f"{path} contains characters that udev does not use in names of links"
    if name.startswith(OURS):
        return f"{path} is a link that raidproof creates, so it does not identify the disk"
    if re.match(r"(dm|md|lvm)-", name):
        return f"{path} names a device made of disks, or the content of a disk"
    return None


class HostSpec(Spec):
    """One existing machine of an inventory, and how to log in to it."""

    name: Name
    """Name of the machine in scenarios and reports; raidproof does not change the machine's host name."""
    host: Word
    """The machine's host name or address, or its alias in ~/.ssh/config."""
    user: Word | None = None
    """The user to log in as; None: the user of ~/.ssh/config."""
    sudo: bool = False
    """Whether ``user`` runs commands as root by sudo, without a password."""
    address: Word | None = None
    """The address by which the other machines of the lab reach this machine; None: the address of ``host``."""
    stop_nfs: bool = False
    """Only for the server: whether raidproof may stop the machine's own NFS server during a run."""


class MemberDisk(Spec):
    """One disk of the server, which raidproof may use and whose content raidproof may destroy."""

    id: str
    """The disk's path in /dev/disk/by-id. The gate checks the path, together with the disk's other properties."""
    size: Size | None = None
    """The size in bytes that the disk must have; None: any size."""


class Inventory(Spec):
    """The content of an inventory file."""

    server: HostSpec
    client: tuple[HostSpec, ...] = Field(min_length=1)
    disk: tuple[MemberDisk, ...] = Field(min_length=1)
    """The disks of the server that raidproof may use: disk0, disk1, ... in this order."""
    power: dict[str, PowerControl] = Field(default_factory=dict)
    """The power controls, by machine name. A machine without an entry can be measured, but not crashed."""

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
        if unknown := sorted(set(self.power) - set(names)):
            raise RequestError(
                f"[power.{unknown[0]}]: no machine has this name; the inventory's machines are {', '.join(names)}"
            )
        return self

    @property
    def machines(self) -> tuple[HostSpec, ...]:
        """The machines of the inventory: the server, then the clients."""
        return (self.server, *self.client)

    @property
    def disks(self) -> dict[str, MemberDisk]:
        """The disks of the inventory by their names in scenarios: disk0, disk1, ... in the order of the file."""
        return {f"disk{number}": disk for number, disk in enumerate(self.disk)}


def parse_inventory(text: str, where: str = "inventory") -> Inventory:
    """Return the inventory in a TOML text; ``where`` is the name of its file, for messages.

    Raises:
        RequestError: the text is not TOML, or a key or value is invalid.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RequestError(f"{where} is not TOML: {error}") from error
    try:
        return Inventory.model_validate(table)
    except RequestError as error:
        raise RequestError(f"{where}: {error}") from error


def load_inventory(path: Path) -> Inventory:
    """Return the inventory in a file.

    Raises:
        RequestError: the file cannot be read, is not TOML, or contains an invalid key or value.
    """
    try:
        return parse_inventory(path.read_text(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"the inventory {path} cannot be read: {error}") from error
