"""The result of an import, as a record: what ``raidproof import --json`` prints."""

from pydantic import BaseModel, ConfigDict

from raidproof.core.errors import RequestError
from raidproof.existing.appliance import appliance_of
from raidproof.existing.plan_text import plan_text, warnings_about
from raidproof.existing.reports import Reports
from raidproof.existing.server import ExistingServer, export_paths, server_of
from raidproof.plan.warnings import Warned

IMPORT_SCHEMA = 1


class ImportedExport(BaseModel):
    """One export: its plan, or the reason why there is none."""

    model_config = ConfigDict(extra="forbid")

    export: str
    """The exported directory."""
    plan: str | None = None
    """The plan as TOML; None: the export cannot be re-created."""
    file: str | None = None
    """The file with the plan; None: it was not written to a file."""
    refused: str | None = None
    """The reason why there is no plan, and what to do."""
    server: ExistingServer | None = None
    warnings: list[Warned] = []
    """Warnings about the server as it is."""


class Imported(BaseModel):
    """The result of an import."""

    model_config = ConfigDict(extra="forbid")

    schema_version: int = IMPORT_SCHEMA
    exports: list[ImportedExport]
    commands: list[str] = []
    """The commands that ran on the server, if it was read over SSH."""
    not_read: dict[str, str] = {}
    """The reason for each command without output."""


def imported(reports: Reports, export: str | None, *, several: bool, filesystem: str | None = None) -> Imported:
    """Return the plan of one export, or with ``several`` the plans of all writable exports.

    ``export``: the exported directory to import; None: all, or the only one. ``filesystem``: see `server_of`.

    Raises:
        RequestError: there are several exports and neither ``export`` nor ``several`` chooses; or the only export
            cannot be re-created.
    """
    paths = export_paths(reports) if export is None else (export,)
    if len(paths) > 1 and not several:
        raise RequestError(
            f"{len(paths)} exports are writable: {', '.join(paths)}",
            remedy="choose one with --export, or name a directory with --output for a plan of each",
        )
    found = [_imported(reports, path, filesystem) for path in paths or (None,)]
    if len(found) == 1 and (refused := found[0]) and isinstance(refused, RequestError):
        raise refused
    made = [
        ImportedExport(export=str(path), refused=str(one)) if isinstance(one, RequestError) else one
        for path, one in zip(paths or (None,), found, strict=True)
    ]
    return Imported(exports=made)


def _imported(reports: Reports, path: str | None, filesystem: str | None) -> ImportedExport | RequestError:
    try:
        server = server_of(reports, path, filesystem)
        text = plan_text(server)
    except RequestError as error:
        if (appliance := appliance_of(reports)) is None:
            return error
        named = f"{error.args[0]}; the files have the layout of {appliance.value} ({appliance.source})"
        return RequestError(named, remedy=error.remedy)
    return ImportedExport(export=server.export, plan=text, server=server, warnings=list(warnings_about(server)))
