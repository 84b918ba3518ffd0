"""Encryption of the whole array by LUKS2 (dm-crypt), with cryptsetup(8)."""

from typing import ClassVar, Literal

from raidproof.core.layer import Value
from raidproof.guest.assembled import DEVICE_MAPPER
from raidproof.storage import luks
from raidproof.storage.member import Assembly
from raidproof.storage.volume.mapper import NAME, PATH, MappedVolume


class CryptVolume(MappedVolume):
    """LUKS2 with AES in XTS mode, and cryptsetup's default size of the header."""

    damage: ClassVar[str] = r"device-mapper: crypt: .*(?:error|failed)"
    packages: ClassVar[tuple[str, ...]] = ("cryptsetup-bin",)
    parameters: ClassVar[tuple[tuple[str, str], ...]] = ((luks.KEY_FILE, luks.KEY),)
    encrypts: ClassVar[bool] = True
    forcing: ClassVar[frozenset[str]] = luks.FORCING

    type: Literal["crypt"] = "crypt"

    @property
    def data_offset(self) -> int:
        """Bytes of the header."""
        return luks.DATA_OFFSET

    def caveats(self) -> tuple[str, ...]:
        """Return the sentence about the fast key derivation, which affects only the time of the opening."""
        return (f"the key derivation of LUKS has {luks.ITERATIONS} iterations, so that the volume opens fast",)

    def format_commands(self, below: str) -> list[list[str]]:
        """Return the command that writes the header onto the array."""
        return [luks.format_command(below)]

    def assembly(self, below: str) -> tuple[Assembly, ...]:
        """Return how the array is opened."""
        return (Assembly(PATH, tuple(luks.open_command(below, NAME)), DEVICE_MAPPER, NAME),)

    def close_commands(self, below: str) -> list[list[str]]:  # noqa: ARG002
        """Return the command that closes the array."""
        return [luks.close_command(NAME)]

    def asked(self) -> dict[str, Value]:
        """Return cipher and offset."""
        return dict(luks.requested())

    def found(self, table: str) -> dict[str, Value]:
        """Return the effective cipher and offset."""
        return dict(luks.parse_table(table))
