"""`raidproof version`: the versions of raidproof, its records and its plugins."""

import platform
from typing import TYPE_CHECKING, Annotated

import typer

from raidproof import __version__
from raidproof.cli.output import emit

if TYPE_CHECKING:
    from raidproof.core.versions import Versions


def versions() -> "Versions":
    """Return the versions of this installation."""
    from importlib.metadata import distributions  # noqa: PLC0415

    from raidproof.cli.reference.schema import published  # noqa: PLC0415
    from raidproof.core.versions import Versions  # noqa: PLC0415

    plugins = [
        one for one in distributions() if any(point.group.startswith("raidproof.") for point in one.entry_points)
    ]
    return Versions(
        raidproof=__version__,
        python=platform.python_version(),
        schemas={name: int(one.make(name, one.title)["version"]) for name, one in published().items()},
        plugins={one.name: one.version for one in plugins},
    )


def version(
    json: Annotated[
        bool, typer.Option("--json", help="Print also the versions of schemas and plugins, as JSON.")
    ] = False,
) -> None:
    """Print the version of raidproof."""
    if json:
        emit(versions(), as_json=True)
    else:
        print(f"raidproof {__version__}")  # noqa: T201
