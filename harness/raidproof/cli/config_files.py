"""The files of defaults: where they are, and the values that they give to options."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from raidproof.core.errors import RequestError

if TYPE_CHECKING:
    from raidproof.cli.defaults import Read

PROJECT = "raidproof.toml"
"""Name of a project's file of defaults."""

VARIABLE = "RAIDPROOF_CONFIG"
"""Environment variable with the path of the only file of defaults."""


def files() -> Iterator[Path]:
    """Yield the existing files of defaults, the project's before the user's.

    The project's file is in the current directory or, in a git repository, in the nearest parent up to the top of the
    work tree. The user's file is ``$XDG_CONFIG_HOME/raidproof/config.toml``. The environment variable
    RAIDPROOF_CONFIG names another file, which is then the only one; if the variable is empty, no file is read.

    Raises:
        RequestError: RAIDPROOF_CONFIG names a file that does not exist.
    """
    if (only := os.environ.get(VARIABLE)) is not None:
        if only and not Path(only).is_file():
            raise RequestError(f"{VARIABLE} names {only!r}, which is no file")
        yield from [Path(only)] if only else []
        return
    yield from (folder / PROJECT for folder in _project(Path.cwd()) if (folder / PROJECT).is_file())
    own = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "raidproof" / "config.toml"
    if own.is_file():
        yield own


def _project(here: Path) -> list[Path]:
    folders = [here, *here.parents]
    top = next((number for number, folder in enumerate(folders) if (folder / ".git").exists()), 0)
    nearest = next((folder for folder in folders[: top + 1] if (folder / PROJECT).is_file()), None)
    return [nearest] if nearest is not None else []


def configured() -> "list[Read]":
    """Return the files of defaults with their content.

    Raises:
        RequestError: a file cannot be read, or has an unknown key or an invalid value.
    """
    found = list(files())
    if not found:
        return []
    # Imported only if needed: the import takes longer than most commands.
    from raidproof.cli.defaults import Read, read  # noqa: PLC0415

    return [Read(path, read(path)) for path in found]


def use_defaults(asked: typer.Context) -> None:
    """Set the defaults of all commands' options to those of the files, if a file exists.

    Raises:
        RequestError: a file cannot be read, or has an unknown key or an invalid value.
    """
    if not (found := configured()):
        return
    from raidproof.cli.defaults import options_of  # noqa: PLC0415

    values = options_of(found)
    commands = getattr(asked.command, "commands", {})
    asked.default_map = {name: _of(command, values) for name, command in commands.items()}


def _of(command: Any, values: dict[str, Any]) -> dict[str, Any]:
    options = {one.name for one in command.params if one.param_type_name == "option"}
    return {name: value for name, value in values.items() if name in options}


def default_of(option: str) -> Any:
    """Return the value that the files of defaults set for an option; None without a value, or if a file is invalid."""
    try:
        found = configured()
    except RequestError:
        return None
    if not found:
        return None
    from raidproof.cli.defaults import options_of  # noqa: PLC0415

    return options_of(found).get(option)


def split(asked: typer.Context) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of the command line with the built-in defaults, and the options that a file sets."""
    sources = {name: asked.get_parameter_source(name) for name in asked.params}
    by_file = {name for name, source in sources.items() if source is not None and source.name == "DEFAULT_MAP"}
    given = {name: value for name, value in asked.params.items() if name not in by_file}
    return given, {name: asked.params[name] for name in by_file}
