"""`raidproof kernel` and `raidproof package`: kernels of User-mode Linux and Debian packages, built from source."""

from pathlib import Path
from typing import Annotated

import typer


def group(name: str, text: str) -> typer.Typer:
    """Return a group of commands that so far has one, `build`; ``text``: its help."""
    app = typer.Typer(name=name, help=text, add_completion=False, rich_markup_mode=None, no_args_is_help=True)

    @app.callback()
    def commands() -> None:
        """Keep `build` a command of its own: typer merges a single command with its group."""

    return app


kernel = group("kernel", "Build kernels from source.")
package = group("package", "Build packages of nfs-utils or mdadm from source.")


@kernel.command("build")
def build_kernel(
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


@package.command("build")
def build_package(
    tree: Annotated[Path, typer.Argument(help="a source tree of nfs-utils or mdadm, with or without debian/")],
) -> None:
    """Build packages from a source tree, and print the options with which an image has them."""
    from raidproof.core.log import progress  # noqa: PLC0415
    from raidproof.image.package import build  # noqa: PLC0415

    with progress("preparing the build"):
        files = build(tree)
    print(" ".join(f"--package={file}" for file in files))  # noqa: T201
