"""No layer: the array has the disks themselves as members."""

from typing import ClassVar, Literal

from raidproof.storage.member.member import MemberLayer


class DiskLayer(MemberLayer):
    """The disk itself."""

    direct: ClassVar[bool] = True

    type: Literal["disk"] = "disk"

    def format_command(self, serial: str) -> list[str]:  # noqa: ARG002
        """Return no command."""
        return []

    def open_command(self, serial: str, *, first: bool = False) -> list[str]:  # noqa: ARG002
        """Return no command."""
        return []

    def close_command(self, serial: str) -> list[str]:  # noqa: ARG002
        """Return no command."""
        return []
