"""The sets of files of existing servers in tests/data/servers, and the command line that imports one."""

import tomllib
from pathlib import Path
from typing import Any

SERVERS = Path(__file__).parents[1] / "data" / "servers"
NAMES = sorted(path.name for path in SERVERS.iterdir() if path.is_dir())
OPTIONS = {
    "exports": "--exports",
    "mdadm.txt": "--mdadm",
    "mdstat": "--mdstat",
    "lsblk.json": "--lsblk",
    "fstab": "--fstab",
    "xfs_info.txt": "--xfs-info",
    "dumpe2fs.txt": "--dumpe2fs",
    "nfs.conf": "--nfs-conf",
    "sysfs.txt": "--sysfs",
    "client-fstab": "--client-fstab",
}
"""The option of ``raidproof import`` for each file of a set."""


def expectation(name: str) -> dict[str, Any]:
    """Return the expected result of the import of a set."""
    return tomllib.loads((SERVERS / name / "expected.toml").read_text())


def arguments(name: str) -> list[str]:
    """Return the command line that imports a set."""
    files = [
        word
        for file, option in OPTIONS.items()
        if (SERVERS / name / file).exists()
        for word in (option, str(SERVERS / name / file))
    ]
    return ["import", *files, *expectation(name).get("options", [])]
