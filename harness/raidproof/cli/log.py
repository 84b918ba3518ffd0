"""`raidproof export-log`: what one disk of a recorded run was asked, for the tools of others."""

import errno
from pathlib import Path
from typing import Annotated

import typer

from raidproof.core.errors import RequestError


def export_log(
    run: Annotated[str, typer.Argument(help="name or directory of a stored run")],
    disk: Annotated[str, typer.Argument(help="which disk, by its serial: disk0, disk1, ...")],
    file: Annotated[Path, typer.Argument(help="where to write it; must not be there yet")],
    cycle: Annotated[str | None, typer.Option(help="Which cycle of it; needed if the run has several.")] = None,
    results: Annotated[Path, typer.Option(help="Where runs are kept.")] = Path("results"),
) -> None:
    """Write what a disk was asked, up to its power's end, in the format of the kernel's dm-log-writes target."""
    from raidproof.disk.logwrites import export_dm_log_writes  # noqa: PLC0415
    from raidproof.disk.writelog import LogError, WriteLog  # noqa: PLC0415
    from raidproof.record import RunStore  # noqa: PLC0415
    from raidproof.run.source import LOG, choose_cycle  # noqa: PLC0415

    if file.exists():
        raise RequestError(f"{file} is there already", remedy="give another name, or remove it")
    store = RunStore.find(run, results)
    chosen = choose_cycle(store.load(), store.path, cycle)
    # What is broken off leaves nothing that could be taken for a whole log.
    partial = file.with_name(f"{file.name}.partial")
    try:
        entries = export_dm_log_writes(WriteLog(store.path / chosen.files[LOG]), disk, partial)
        partial.rename(file)
    except LogError as error:
        raise RequestError(f"{chosen.name}: {error}") from error
    except OSError as error:
        remedy = "free some space" if error.errno == errno.ENOSPC else "give a name in a folder that can be written"
        raise RequestError(f"cannot write {file}: {error.strerror}", remedy=remedy) from error
    finally:
        partial.unlink(missing_ok=True)
    print(f"{chosen.name}, {disk}: {entries:,} entries in {file}")  # noqa: T201
