"""What the disks themselves say of the array that they belong to: read from their metadata, online or not."""

import re
from collections.abc import Iterable, Mapping

from raidproof.core.layer import State, found_in
from raidproof.storage.array.spec import disk_path

# An array that was put together by md itself takes a member that is one event behind as current: of a superblock
# update that the cut fell into, some members have the new one (super_1_validate in drivers/md/md.c).
EVENT_MARGIN = 1
_WHOLE = re.compile(r"^ *Checksum : .*correct$", re.MULTILINE)


class Identity(State):
    """The metadata of one member (version 1.2)."""

    array_uuid: str
    created: str
    """In the words of mdadm."""
    device_uuid: str
    role: str
    """``Active device 2``, ``spare``, ``Journal``."""
    events: int
    state: str
    """``clean`` or ``active``: whether a write may have been under way."""
    recovery_offset: int | None = None
    """Sectors up to which it has been rebuilt; None for one that needs no rebuild."""
    reshape_position: int | None = None
    """KiB of the array that have their new shape; None if it is not being reshaped."""

    @property
    def slot(self) -> int | None:
        """Its place among the members, or None for a spare or a journal."""
        word, _, number = self.role.rpartition(" ")
        return int(number) if word == "Active device" else None


def examine_command(paths: Iterable[str]) -> list[str]:
    """Read the metadata of members."""
    return ["mdadm", "--examine", *paths]


def parse_examine(text: str) -> dict[str, Identity]:
    """Read ``mdadm --examine`` of several devices, by their paths; one without whole metadata is left out.

    Raises:
        RigError: a line is missing, or the output was cut off.
    """
    parts = re.split(r"^(/\S+):\n", text, flags=re.MULTILINE)[1:]
    found = zip(parts[::2], parts[1::2], strict=True)
    return {path: _identity(part, path) for path, part in found if _WHOLE.search(part)}


def serial_of(path: str) -> str:
    """Return the serial of a member disk; of a leg of a nested array, its own path."""
    return path.removeprefix(disk_path(""))


def stale(members: Mapping[str, Identity]) -> dict[str, int]:
    """Return the members whose metadata lags behind that of their array, and by how many events."""
    newest: dict[str, int] = {}
    for one in members.values():
        newest[one.array_uuid] = max(one.events, newest.get(one.array_uuid, 0))
    behind = {serial: newest[one.array_uuid] - one.events for serial, one in members.items()}
    return {serial: events for serial, events in behind.items() if events > EVENT_MARGIN}


def _identity(text: str, path: str) -> Identity:
    def word(name: str) -> str:
        return found_in(rf"^ *{name} : (.+?) *$", text, f"{name} of {path}")

    def sectors(name: str) -> int | None:
        match = re.search(rf"^ *{name} : (\d+)", text, re.MULTILINE)
        return int(match[1]) if match else None

    return Identity(
        array_uuid=word("Array UUID"),
        created=word("Creation Time"),
        device_uuid=word("Device UUID"),
        role=word("Device Role"),
        events=int(word("Events")),
        state=word("State"),
        recovery_offset=sectors("Recovery Offset"),
        reshape_position=sectors("Reshape pos'n"),
    )
