"""No volume: the file system is on the array itself."""

from typing import ClassVar, Literal

from raidproof.core.layer import Machine, Value
from raidproof.storage.member import Assembly
from raidproof.storage.volume.volume import Reading, VolumeSpec


class DirectVolume(VolumeSpec):
    """The array itself."""

    device: ClassVar[str | None] = None

    type: Literal["direct"] = "direct"

    def format_commands(self, below: str) -> list[list[str]]:  # noqa: ARG002
        """Return no command."""
        return []

    def assembly(self, below: str) -> tuple[Assembly, ...]:  # noqa: ARG002
        """Return nothing: there is no device."""
        return ()

    def close_commands(self, below: str) -> list[list[str]]:  # noqa: ARG002
        """Return no command."""
        return []

    def asked(self) -> dict[str, Value]:
        """Return nothing: there is no setting."""
        return {}

    def read(self, machine: Machine, below: str) -> Reading:  # noqa: ARG002
        """Return nothing: there is no device."""
        return Reading({}, {})
