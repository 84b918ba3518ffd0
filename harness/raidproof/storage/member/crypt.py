"""Encryption of each member by LUKS2 (dm-crypt), with cryptsetup(8)."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from raidproof.core.layer import Machine
from raidproof.storage import luks
from raidproof.storage.member.member import PREFIX, MemberLayer, disk_path


class Crypt(MemberLayer):
    """LUKS2 with AES in XTS mode."""

    opaque: ClassVar[str | None] = "the members are encrypted"
    encrypts: ClassVar[bool] = True
    keeps_content: ClassVar[bool] = False
    damage: ClassVar[str] = r"device-mapper: crypt: .*(?:error|failed|INTEGRITY AEAD ERROR)"
    packages: ClassVar[tuple[str, ...]] = ("cryptsetup-bin",)
    parameters: ClassVar[tuple[tuple[str, str], ...]] = ((luks.KEY_FILE, luks.KEY),)

    type: Literal["crypt"] = "crypt"

    def caveats(self) -> tuple[str, ...]:
        """Return the sentence about the fast key derivation, which affects only the time of the opening."""
        return (f"the key derivation of LUKS has {luks.ITERATIONS} iterations, so that members open fast",)

    def format_command(self, serial: str) -> list[str]:
        """Return the command that formats a disk."""
        return luks.format_command(disk_path(serial))

    def open_command(self, serial: str, *, first: bool = False) -> list[str]:  # noqa: ARG002
        """Return the command that opens a disk."""
        return luks.open_command(disk_path(serial), f"{PREFIX}{serial}")

    def close_command(self, serial: str) -> list[str]:
        """Return the command that closes a disk."""
        return luks.close_command(f"{PREFIX}{serial}")

    def require_effective(self, machine: Machine, serials: Sequence[str]) -> None:
        """Verify the cipher of each member.

        Raises:
            NotEffective: an effective value differs from the requested one.
        """
        for serial in serials:
            luks.require_opened(machine, self.path(serial), f"{PREFIX}{serial}")
