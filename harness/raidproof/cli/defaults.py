"""The defaults of options: files ``raidproof.toml`` of a project, and ``config.toml`` of a user."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from raidproof.core.errors import RequestError, nearest
from raidproof.core.toml import read_toml
from raidproof.core.topology import SoftwareSpec
from raidproof.plan.table import Table, reasons
from raidproof.run.options import RESULTS

DEFAULTS_SCHEMA = 1
PATHS = ("results", "inventory", "modules", "packages", "kernel", "image")
"""Keys whose values may be paths; in a file, a relative path begins at the folder of the file."""
NAMED = ("kernel", "image")
"""Keys whose values are names, unless they begin as a path or end with ``.deb``."""


def _known(table: Any) -> Any:
    unknown = [key for key in table if key not in SoftwareSpec.model_fields] if isinstance(table, dict) else []
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}; {nearest(unknown[0], SoftwareSpec.model_fields)}")
    return table


Software = Annotated[SoftwareSpec, BeforeValidator(_known)]
"""A pydantic field of the software of a machine, whose error names the key that resembles an unknown one."""


class Defaults(Table):
    """The content of a file of defaults. Every key is optional."""

    results: Path | None = None
    """Directory of stored runs (``--results``)."""
    provider: str | None = None
    """Provider of the machines: uml, qemu, vagrant, hosts, or auto."""
    inventory: Path | None = None
    """Inventory file of the machines of provider hosts."""
    kernel: str | None = None
    """Kernel of the machines, for example debian/sid, or the path of a .deb or bzImage."""
    modules: Path | None = None
    """Folder of modules for a kernel of one's own."""
    image: str | None = None
    """User space of the machines, for example debian/trixie, or the folder of a recipe."""
    packages: tuple[Path, ...] | None = None
    """Package files that replace the image's versions (``--package``)."""
    server: Software | None = None
    """Different software of the server."""
    clients: Software | None = None
    """Different software of the clients."""
    repeats: int | None = Field(default=None, ge=1, le=1000)
    """Repetitions of each cell of a plan that sets no number."""
    seed: int | None = None
    """Seed of all random choices; in a plan that sets no seed, also of the order of the cells."""
    states: int | None = Field(default=None, ge=1)
    """Crash states that an exploration checks."""
    minutes: float | None = Field(default=None, ge=0.1)
    """Time budget of an exploration in minutes."""
    checkers: int | None = Field(default=None, ge=1, le=64)
    """Machines of an exploration that check crash states in parallel."""


BUILT_IN = "built in"


class Setting(BaseModel):
    """One effective default."""

    model_config = ConfigDict(extra="forbid")

    key: str
    value: Any
    """The value; None if the command or the plan decides."""
    origin: str
    """The file that sets the value, or ``built in``."""


class Settings(BaseModel):
    """The effective defaults of options in the current directory."""

    model_config = ConfigDict(extra="forbid")

    schema_version: int = DEFAULTS_SCHEMA
    files: list[str]
    """The files of defaults that exist, the one with precedence first."""
    settings: list[Setting]


class Read(NamedTuple):
    """A file of defaults, and its content."""

    path: Path
    defaults: Defaults


def read(path: Path) -> Defaults:
    """Return the content of a file of defaults, with relative paths made absolute.

    Raises:
        RequestError: the file cannot be read, is not TOML, or has an unknown key or an invalid value.
    """
    document = read_toml(path)
    try:
        Defaults.model_validate(document)
        return Defaults.model_validate(_placed(document, path.absolute().parent))
    except ValidationError as error:
        raise RequestError(f"{path}: {reasons(error)}") from error


def _placed(table: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    return {key: _at(key, value, folder) for key, value in table.items()}


def _at(key: str, value: Any, folder: Path) -> Any:
    if isinstance(value, dict):
        return _placed(value, folder)
    if key not in PATHS or (key in NAMED and not _is_path(str(value))):
        return value
    each = [str(folder / Path(one).expanduser()) for one in (value if isinstance(value, list) else [value])]
    return each if isinstance(value, list) else each[0]


def _is_path(name: str) -> bool:
    return name.startswith((".", "/", "~")) or name.endswith(".deb")


def options_of(files: Sequence[Read]) -> dict[str, Any]:
    """Return the defaults as values of command line options, by the option's name in Python; the first file wins."""
    found = {key: value for key, (value, _) in merged(files).items()}
    values = {key: value for key, value in found.items() if key != "packages" and "." not in key}
    values |= {"package": [str(one) for one in found["packages"]]} if "packages" in found else {}
    for role in ("server", "clients"):
        if words := list(_words(role, found)):
            values[role] = words
    return {key: str(value) if isinstance(value, Path) else value for key, value in values.items()}


def _words(role: str, found: Mapping[str, Any]) -> Iterator[str]:
    for key in ("kernel", "modules", "image"):
        if (value := found.get(f"{role}.{key}")) is not None:
            yield f"{key}={value}"
    yield from (f"package={one}" for one in found.get(f"{role}.packages", ()))


def merged(files: Sequence[Read]) -> dict[str, tuple[Any, Path]]:
    """Return each default with the file that sets it, by key; ``server.kernel`` is a key of a table."""
    found: dict[str, tuple[Any, Path]] = {}
    for path, defaults in reversed(files):
        for key in defaults.model_fields_set:
            value = getattr(defaults, key)
            if isinstance(value, SoftwareSpec):
                found |= {f"{key}.{part}": (getattr(value, part), path) for part in value.model_fields_set}
            else:
                found[key] = value, path
    return found


def effective(files: Sequence[Read]) -> Settings:
    """Return every default with its origin."""
    found = merged(files)
    usual = {"results": str(RESULTS), "provider": "uml"}
    roles = [f"{role}.{part}" for role in ("server", "clients") for part in SoftwareSpec.model_fields]
    keys = [key for key in Defaults.model_fields if key not in {"server", "clients"}]
    return Settings(
        files=[str(path) for path, _ in files],
        settings=[
            Setting(key=key, value=found[key][0], origin=str(found[key][1]))
            if key in found
            else Setting(key=key, value=usual.get(key), origin=BUILT_IN)
            for key in [*keys, *(role for role in roles if role in found)]
        ],
    )
