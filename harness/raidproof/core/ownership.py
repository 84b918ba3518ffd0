"""How what raidproof has made on a disk is told from what others have made."""

from hashlib import sha256

HOMEHOST = "raidproof"
"""What our arrays are created with (mdadm --homehost): each member's superblock has it before the array's name."""
UUID_PREFIX = "72616964-7072-6f6f-66"
"""``raidproof`` in ASCII: how the UUID of a log or journal that lies on a disk of its own begins, if it is ours."""


def uuid_of(text: str) -> str:
    """Return a UUID of ours, always the same for a text."""
    digits = sha256(text.encode()).hexdigest()
    return f"{UUID_PREFIX}{digits[:2]}-{digits[2:14]}"
