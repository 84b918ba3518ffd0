"""`raidproof package`: Debian packages of nfs-utils and mdadm that are built from source."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="package",
    help="Build packages of nfs-utils or mdadm from source.",
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
)


@app.callback()
def commands() -> None:
    """Keep `build` a command of its own: typer merges a single command with its group."""


@app.command()
def build(
    tree: Annotated[Path, typer.Argument(help="a source tree of nfs-utils or mdadm, with or without debian/")],
) -> None:
    """Build packages from a source tree, and print the options with which an image has them."""
    from raidproof.core.log import progress  # noqa: PLC0415
    from raidproof.image import package  # noqa: PLC0415

    with progress("preparing the build"):
        files = package.build(tree)
    print(" ".join(f"--package={file}" for file in files))  # noqa: T201
