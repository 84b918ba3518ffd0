"""The declarations in ``vms/``: which kernels and images there are and what they are made from."""

import tomllib
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from raidproof.core.errors import RequestError

VMS = Path(__file__).resolve().parents[1] / "vms"

R = TypeVar("R", bound="Recipe")


class Recipe(BaseModel):
    """Something declared in a TOML file; an unknown key in it is a mistake."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def read(path: Path, model: type[R]) -> R:
    """Read a declaration.

    Raises:
        RequestError: the file is not what it should be; says where.
    """
    return validated(path, tables(path), model)


def tables(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        RequestError: it cannot be read, or is no TOML.
    """
    try:
        return tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise RequestError(f"{path}: {error}") from error


def validated(path: Path, declared: dict[str, Any], model: type[R]) -> R:
    """Return what was declared in a file, checked.

    Raises:
        RequestError: it is not what it should be; says where.
    """
    try:
        return model.model_validate(declared)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise RequestError(": ".join([str(path), *([where] if where else []), first["msg"]])) from error
