"""LUKS2 (dm-crypt) by cryptsetup(8): the commands for a disk or an array, and the effective state."""

from raidproof.core.layer import Machine, found_in, require_effective
from raidproof.core.units import MIB, SECTOR

KEY_FILE = "/run/raidproof/key"
KEY = "a key of a test machine, whose disks hold no secret"
CIPHER = "aes-xts-plain64"
ITERATIONS = 1000
"""Iterations of the key derivation (PBKDF2), the least that cryptsetup accepts: each check opens all devices."""
DATA_OFFSET = 16 * MIB
"""Bytes before the encrypted data: the size of the header that cryptsetup makes by default."""
FORCING = frozenset({"--batch-mode", "--pbkdf=pbkdf2", f"--pbkdf-force-iterations={ITERATIONS}"})
"""Words of the commands that only the harness needs."""


def format_command(path: str) -> list[str]:
    """Return the command that writes the LUKS header onto a device."""
    return [
        "cryptsetup",
        "luksFormat",
        "--batch-mode",
        "--type=luks2",
        f"--cipher={CIPHER}",
        "--pbkdf=pbkdf2",
        f"--pbkdf-force-iterations={ITERATIONS}",
        f"--offset={DATA_OFFSET // SECTOR}",
        f"--key-file={KEY_FILE}",
        path,
    ]


def open_command(path: str, name: str) -> list[str]:
    """Return the command that opens a device; ``name``: the name of the opened device in device-mapper."""
    return ["cryptsetup", "open", "--type=luks2", f"--key-file={KEY_FILE}", path, name]


def close_command(name: str) -> list[str]:
    """Return the command that closes a device."""
    return ["cryptsetup", "close", name]


def parse_table(table: str) -> dict[str, str | int]:
    """Parse cipher and offset in bytes in ``dmsetup table``: ``0 360448 crypt aes-xts-plain64 KEY 0 9:0 32768``.

    Raises:
        RigError: the line is truncated, or of another target.
    """
    what = f"of dm-crypt in {table!r}"
    cipher = found_in(r"^\d+ \d+ crypt (\S+) ", table, f"the cipher {what}")
    offset = found_in(r"^\d+ \d+ crypt \S+ \S+ \d+ \S+ (\d+)(?: .*)?$", table, f"the offset {what}")
    return {"cipher": cipher, "offset": int(offset) * SECTOR}


def requested() -> dict[str, str | int]:
    """Return the requested values of `parse_table`."""
    return {"cipher": CIPHER, "offset": DATA_OFFSET}


def require_opened(machine: Machine, path: str, name: str) -> None:
    """Verify the cipher and the offset of an opened device; ``path`` names it in the message.

    Raises:
        NotEffective: an effective value differs from the requested one.
    """
    table = machine.succeed(["dmsetup", "table", name])
    require_effective(path, dict(requested()), dict(parse_table(table)))
