"""The superblock of a file system: the output of xfs_info or of dumpe2fs -h, of old and new versions."""

from collections.abc import Callable

from raidproof.core.errors import RequestError, RigError
from raidproof.existing.given import Given
from raidproof.storage.filesystem import ext4, xfs
from raidproof.storage.filesystem.state import Superblock


def parse_xfs_info(file: Given) -> Superblock:
    """Return the settings in the output of xfs_info.

    Raises:
        RequestError: the output is truncated or malformed.
    """
    return _parsed(file, xfs.parse_info, "xfs_info /srv/data")


def parse_dumpe2fs(file: Given) -> Superblock:
    """Return the settings in the output of ``dumpe2fs -h``.

    Raises:
        RequestError: the output is truncated or malformed.
    """
    return _parsed(file, ext4.parse_info, "dumpe2fs -h /dev/md0")


def _parsed(file: Given, parse: Callable[[str], Superblock], command: str) -> Superblock:
    for _ in file.lines():  # refuses long lines
        pass
    try:
        return parse(file.text)
    except RigError as error:
        what = str(error).partition(" not found in ")[0]
        raise RequestError(f"{file.name}: {what} not found", remedy=f"give the output of: {command}") from error
    except ValueError as error:  # a number with thousands of digits
        raise RequestError(f"{file.name}: a number is malformed", remedy=f"give the output of: {command}") from error
