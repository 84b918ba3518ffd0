"""`raidproof cluster` and `raidproof worker`: the parts of a cluster of machines."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="cluster",
    help="Make certificates, and run a scheduler, for a cluster of machines.",
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
)
Certificates = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Folder of the certificates (default ~/.config/raidproof/cluster)."),
]


@app.command()
def certs(
    certificates: Certificates = None,
    days: Annotated[int, typer.Option(min=1, help="Days for which the certificates are valid.")] = 365,
) -> None:
    """Make the certificates of a cluster, and print their folder.

    Copy this folder to each machine. A program that can read it can execute any program on all workers.
    """
    from raidproof.cluster import certificates as made  # noqa: PLC0415

    folder = certificates or made.default_folder()
    made.create(folder, days)
    print(folder)  # noqa: T201


@app.command()
def scheduler(
    host: Annotated[str, typer.Option(help="Address on which the scheduler listens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on which the scheduler listens.")] = 8786,
    certificates: Certificates = None,
) -> None:
    """Run the scheduler of a cluster, until Ctrl-C.

    The scheduler uses TLS, unless it listens on loopback.
    """
    from raidproof.cluster.scheduler import run_scheduler  # noqa: PLC0415

    run_scheduler(host, port, certificates=certificates)


def worker(
    address: Annotated[str, typer.Argument(help="address of the scheduler: tls://scheduler:8786")],
    name: Annotated[str | None, typer.Option(help="Name of the worker (default: the name of the machine).")] = None,
    labs: Annotated[int | None, typer.Option(min=1, help="Labs at the same time (default: by cores).")] = None,
    checkers: Annotated[
        int | None, typer.Option(min=1, help="Checker machines at the same time (default: by cores).")
    ] = None,
    certificates: Certificates = None,
) -> None:
    """Make this machine a worker of a cluster, until Ctrl-C.

    The checks of `doctor` come first, then the default kernel and image are fetched and built.
    """
    from raidproof.cluster.slots import CHECKER, LAB, slots_of  # noqa: PLC0415
    from raidproof.cluster.spec import require_tls  # noqa: PLC0415
    from raidproof.cluster.worker import run_worker  # noqa: PLC0415
    from raidproof.core.log import progress  # noqa: PLC0415
    from raidproof.provider.registry import prepare  # noqa: PLC0415
    from raidproof.run.demo import demo_topology  # noqa: PLC0415
    from raidproof.run.doctor import require_host  # noqa: PLC0415

    require_tls(address, "raidproof worker")
    require_host()
    with progress("preparing kernel and image"):
        prepare(demo_topology())
    given = {LAB: labs, CHECKER: checkers}
    slots = slots_of() | {what: float(count) for what, count in given.items() if count is not None}
    run_worker(address, name=name, slots=slots, certificates=certificates)
