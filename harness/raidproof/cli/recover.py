"""`raidproof recover`: let a machine recover a crash state from a file, and judge the result."""

from pathlib import Path
from typing import Annotated

import typer

from raidproof.cli.options import Json
from raidproof.cli.output import emit, say
from raidproof.core.errors import Status
from raidproof.core.scratch import scratch_folder


def recover(
    file: Annotated[Path, typer.Argument(help="a crash state that `raidproof explore RUN --state ID --export` wrote")],
    kernel: Annotated[
        str | None, typer.Option(help="Kernel of the machine: debian/sid, or a path; default: that of the recording.")
    ] = None,
    modules: Annotated[
        str | None, typer.Option(help="Folder of modules that replace those of the kernel (provider uml).")
    ] = None,
    json: Json = False,
) -> None:
    """Let a machine recover a crash state from a file, and judge the result.

    The machine assembles the array, mounts the file system, and reads the ledger. Exit status: that of the verdict.
    """
    from raidproof.core.log import progress  # noqa: PLC0415
    from raidproof.core.topology import SoftwareSpec  # noqa: PLC0415
    from raidproof.provider.registry import prepare  # noqa: PLC0415
    from raidproof.run.crash_file import opened  # noqa: PLC0415
    from raidproof.run.crash_file import recover as recovered_on  # noqa: PLC0415
    from raidproof.run.doctor import require_host  # noqa: PLC0415

    software = SoftwareSpec(kernel=kernel, modules=modules)
    with opened(file) as found, scratch_folder("recover") as logs:
        require_host()
        with progress("preparing kernel and image"):
            prepare(found.topology(software))
            record = recovered_on(found, software, logs)
    lines = [
        f"crash state {record.state} of {record.cycle}, written by {record.recorded_on or 'an unknown kernel'}, "
        f"recovered by {record.kernel}",
        f"{record.outcome.value}: {record.reason}" + (f"; blamed on {record.blame}" if record.blame else ""),
        *(f"  {example}" for example in record.examples),
    ]
    emit(record, json, lambda console: say(console, lines))
    raise typer.Exit(Status[record.outcome.name])
