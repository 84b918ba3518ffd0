"""`raidproof config`: the effective defaults of options."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from raidproof.cli.config_files import PROJECT, configured
from raidproof.cli.options import Json
from raidproof.cli.output import emit, say

if TYPE_CHECKING:
    from raidproof.cli.defaults import Settings


def config(json: Json = False) -> None:
    """Print the effective defaults of options, each with the file that sets it."""
    from raidproof.cli.defaults import effective  # noqa: PLC0415

    settings = effective(configured())
    emit(settings, json, lambda console: say(console, lines(settings)))


def lines(settings: "Settings") -> Iterator[str]:
    """Yield lines of text about the effective defaults."""
    width = max(len(one.key) for one in settings.settings)
    for one in settings.settings:
        listed = ", ".join(map(str, one.value)) if isinstance(one.value, tuple | list) else str(one.value)
        yield f"{one.key:<{width}}  {'-' if one.value is None else listed}  ({one.origin})"
    if not settings.files:
        yield f"no file of defaults; raidproof reads {PROJECT} in the current directory, and the user's config.toml"
