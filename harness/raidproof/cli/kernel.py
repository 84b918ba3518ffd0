"""`raidproof kernel`: kernels of User-mode Linux that are built from source."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="kernel",
    help="Build kernels from source.",
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
)


@app.callback()
def commands() -> None:
    """Keep `build` a command of its own: typer merges a single command with its group."""


@app.command()
def build(
    tree: Annotated[
        Path,
        typer.Argument(help="a git work tree, an unpacked source, a tar archive of it, or a suite: debian/trixie"),
    ],
    config: Annotated[
        Path | None,
        typer.Option(metavar="FRAGMENT", help="File with further options, such as CONFIG_PROVE_LOCKING=y."),
    ] = None,
) -> None:
    """Build a kernel of User-mode Linux from a source tree, and print its folder, for --kernel.

    The kernel has what a lab needs, and nothing else. A second build compiles only what has changed.
    """
    from raidproof.core.log import progress  # noqa: PLC0415
    from raidproof.image.kernel import source  # noqa: PLC0415

    with progress("preparing the build"):
        folder = source.build(tree, config)
    print(folder)  # noqa: T201
