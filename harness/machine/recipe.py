"""The declarations in ``vms/``: which kernels and images there are and what they are made from."""

import tomllib
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from harness.errors import RequestError

VMS = Path(__file__).resolve().parents[2] / "vms"

R = TypeVar("R", bound="Recipe")


class Recipe(BaseModel):
    """Something declared in a TOML file; an unknown key in it is a mistake."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def read(path: Path, model: type[R]) -> R:
    """Read a declaration.

    Raises:
        RequestError: the file is not what it should be; says where.
    """
    try:
        return model.model_validate(tomllib.loads(path.read_text()))
    except (tomllib.TOMLDecodeError, OSError) as error:
        raise RequestError(f"{path}: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise RequestError(f"{path}: {where}: {first['msg']}") from error
