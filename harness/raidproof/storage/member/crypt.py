"""Encryption of each member by LUKS2 (dm-crypt), with cryptsetup(8)."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from raidproof.core.layer import Machine, found_in, require_effective
from raidproof.storage.member.member import PREFIX, MemberLayer, disk_path

KEY_FILE = "/run/raidproof/member-key"
KEY = "a key of a test machine, whose disks hold no secret"
CIPHER = "aes-xts-plain64"
ITERATIONS = 1000
"""Iterations of the key derivation (PBKDF2), the least that cryptsetup accepts: each check opens all members."""


class Crypt(MemberLayer):
    """LUKS2 with AES in XTS mode."""

    opaque: ClassVar[str | None] = "the members are encrypted"
    keeps_content: ClassVar[bool] = False
    damage: ClassVar[str] = r"device-mapper: crypt: .*(?:error|failed)"
    packages: ClassVar[tuple[str, ...]] = ("cryptsetup-bin",)
    parameters: ClassVar[tuple[tuple[str, str], ...]] = ((KEY_FILE, KEY),)

    type: Literal["crypt"] = "crypt"

    def caveats(self) -> tuple[str, ...]:
        """Return the sentence about the fast key derivation, which affects only the time of the opening."""
        return (f"the key derivation of LUKS has {ITERATIONS} iterations, so that members open fast",)

    def format_command(self, serial: str) -> list[str]:
        """Return the command that formats a disk."""
        return [
            "cryptsetup",
            "luksFormat",
            "--batch-mode",
            "--type=luks2",
            f"--cipher={CIPHER}",
            "--pbkdf=pbkdf2",
            f"--pbkdf-force-iterations={ITERATIONS}",
            f"--key-file={KEY_FILE}",
            disk_path(serial),
        ]

    def open_command(self, serial: str, *, first: bool = False) -> list[str]:  # noqa: ARG002
        """Return the command that opens a disk."""
        return ["cryptsetup", "open", "--type=luks2", f"--key-file={KEY_FILE}", disk_path(serial), f"{PREFIX}{serial}"]

    def close_command(self, serial: str) -> list[str]:
        """Return the command that closes a disk."""
        return ["cryptsetup", "close", f"{PREFIX}{serial}"]

    def require_effective(self, machine: Machine, serials: Sequence[str]) -> None:
        """Verify the cipher of each member.

        Raises:
            NotEffective: an effective value differs from the requested one.
        """
        for serial in serials:
            table = machine.succeed(["dmsetup", "table", f"{PREFIX}{serial}"])
            found = found_in(r"^\d+ \d+ crypt (\S+) ", table, f"the cipher in {table!r}")
            require_effective(self.path(serial), {"cipher": CIPHER}, {"cipher": found})
