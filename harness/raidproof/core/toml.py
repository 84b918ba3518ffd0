"""Reading of TOML files that users write."""

import tomllib
from pathlib import Path
from typing import Any

from raidproof.core.errors import RequestError


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file, without validation of its keys.

    Raises:
        RequestError: the file cannot be read, or is not TOML in UTF-8.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:  # not TOML, or not UTF-8
        raise RequestError(f"{path} is not a valid TOML file: {error}") from error
