"""The output of commands: text or JSON on standard output; with JSON, all text on standard error."""

import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def screen(as_json: bool) -> "Console":
    """Return the console for the texts of a command: standard output, or standard error if the command prints JSON."""
    from raidproof.core.terminal import Terminal  # noqa: PLC0415

    return Terminal(stderr=as_json)


def say(console: "Console", lines: Iterable[str]) -> None:
    """Print lines unchanged on a console."""
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def emit(record: object, as_json: bool, show: Callable[["Console"], object] | None = None) -> None:
    """Print the result of a command; ``show`` prints the result as text on the console that it gets.

    The text appears on standard output, or, if the command prints JSON, on standard error, followed by the JSON of the
    record on standard output. ``record``: a pydantic model, a dataclass, or a list of these.
    """
    if show is not None:
        show(screen(as_json))
    if as_json:
        from pydantic_core import to_json  # noqa: PLC0415

        # Escaped to ASCII, so that each locale can print the text; pydantic writes NaN and infinity as null.
        print(json.dumps(json.loads(to_json(record, inf_nan_mode="null")), indent=1), flush=True)  # noqa: T201
