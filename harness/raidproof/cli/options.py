"""Options and arguments that several commands share."""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from raidproof.cli.completion import stored_runs
from raidproof.run.options import OPTIONS

HELP = {option.name: option.help for option in OPTIONS}
"""Help texts of the options about machines, by option name."""
Kernel = Annotated[str | None, typer.Option(help=HELP["kernel"])]
Modules = Annotated[str | None, typer.Option(help=HELP["modules"])]
Image = Annotated[str | None, typer.Option(help=HELP["image"])]
Package = Annotated[list[str] | None, typer.Option(metavar="DEB", help=HELP["package"])]
PLATFORM = {
    "provider": Annotated[str | None, typer.Option(help=HELP["provider"])],
    "inventory": Annotated[Path | None, typer.Option(help=HELP["inventory"])],
    "kernel": Kernel,
    "modules": Modules,
    "image": Image,
    "package": Package,
    "server": Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help=HELP["server"])],
    "clients": Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help=HELP["clients"])],
}
"""Options of every command that starts machines; ``platform_asked`` reads them."""
PlanFile = Annotated[Path, typer.Argument(help="a plan file, for example scenarios/plans/tiny.toml")]
StoredRun = Annotated[
    str, typer.Argument(help="name or directory of a stored run; latest, or latest:PLAN", autocompletion=stored_runs)
]
Select = Annotated[
    str | None, typer.Option("-k", help="Select cells by an expression, for example 'level=5 and not wsize=8KiB'.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Describe the run, and do not start it.")]
Seed = Annotated[int | None, typer.Option(help="Seed of the order of the cells and of all random choices.")]
Repeats = Annotated[int | None, typer.Option(help="Repetitions of each cell.")]
Margin = Annotated[
    float,
    typer.Option(
        metavar="PERCENT", help="A cell whose ratio is surely within this margin is the same.", min=0, max=50
    ),
]
Results = Annotated[Path, typer.Option(help="Directory of stored runs.")]
Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="CLUSTER",
        help="Cluster of machines: local:N, the address of a scheduler (tls://...), or a TOML file.",
    ),
]
Keep = Annotated[bool, typer.Option("--keep", help="Keep the last lab running, for `raidproof shell`.")]
Json = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON on standard output, and all text on standard error.")
]
"""`raidproof.cli.output.emit` prints the result of a command with this option."""
Base = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="Software of the base side: kernel=..., image=..., PACKAGE=...deb; server.kernel=...: server only.",
    ),
]
New = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help="Software of the new side, in the form of --base.")
]


def with_platform(*, before: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds the options of ``PLATFORM`` to a command, before the option named ``before``."""

    def added_to(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def called(**options: Any) -> None:
            command(**{name: value for name, value in options.items() if name not in PLATFORM})

        own = list(signature(command).parameters.values())
        place = [one.name for one in own].index(before)
        added = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind) for name, kind in PLATFORM.items()
        ]
        named = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in own]
        both = [*named[:place], *added, *named[place:]]
        called.__signature__ = signature(command).replace(parameters=both)  # type: ignore[attr-defined]
        return called

    return added_to
