"""Volumes that are devices of device-mapper: commands of dmsetup(8), and the state that it prints."""

import re
from abc import abstractmethod
from typing import ClassVar

from raidproof.core.errors import RigError
from raidproof.core.layer import Machine, Value
from raidproof.guest.assembled import DEVICE_MAPPER, SECTORS
from raidproof.storage.member import MAPPER, Assembly
from raidproof.storage.volume.volume import Reading, VolumeSpec

NAME = "raidproof_volume"
"""Name of the volume in device-mapper. It differs from all members' devices, whose names begin with ``raidproof-``."""
PATH = f"{MAPPER}{NAME}"
"""Path of the volume's device."""
NO_UDEV = "--verifyudev"
"""The option by which dmsetup makes and removes a device's node itself if udev does not."""
_BELOW = re.compile(r"\(([^()]+)\)")


class MappedVolume(VolumeSpec):
    """A volume that is a device of device-mapper, by default with the name `NAME`."""

    device: ClassVar[str | None] = PATH
    name: ClassVar[str] = NAME
    """The name of the device in device-mapper."""

    @abstractmethod
    def found(self, table: str) -> dict[str, Value]:
        """Return the effective settings, from the output of ``dmsetup table``.

        Raises:
            RigError: the line is truncated, or of another target.
        """

    def counters(self, status: str) -> dict[str, int]:  # noqa: ARG002
        """Return the counters in the output of ``dmsetup status``.

        Raises:
            RigError: the line is truncated, or of another target.
        """
        return {}

    def read(self, machine: Machine, below: str) -> Reading:  # noqa: ARG002
        """Read settings and counters with dmsetup."""
        table, status = (machine.succeed(["dmsetup", what, self.name]) for what in ("table", "status"))
        inputs = parse_deps(machine.succeed(["dmsetup", "deps", "-o", "blkdevname", self.name]))
        return Reading({**self.found(table), "inputs": inputs}, self.counters(status))


def create_line(path: str, table: str, of: str = "") -> Assembly:
    """Return how dmsetup(8) makes the device ``path`` with one target.

    ``table``: the target and its arguments, after the begin and the length; ``of``: the path of the device that has as
    many sectors as the new one; if it is empty, ``table`` begins with the begin and the length.
    """
    name = path.removeprefix(MAPPER)
    line = f"0 {SECTORS} {table}" if of else table
    return Assembly(path, ("dmsetup", "create", NO_UDEV, name, "--table", line), DEVICE_MAPPER, name, of)


def remove_command(path: str) -> list[str]:
    """Return the command that removes a device of device-mapper."""
    return ["dmsetup", "remove", NO_UDEV, path.removeprefix(MAPPER)]


def parse_deps(text: str) -> tuple[str, ...]:
    """Return the kernel's names, sorted, in ``dmsetup deps -o blkdevname``: ``2 dependencies  : (vde) (md0)``.

    Raises:
        RigError: the line is truncated.
    """
    number, names = text.split(" ", 1)[0].strip(), _BELOW.findall(text)
    if not number.isdecimal() or int(number) != len(names):
        raise RigError(f"dmsetup deps {NAME}: expected a number and as many names, found {text.strip()!r}")
    return tuple(sorted(names))
