"""`raidproof findings`: list the findings, run their reproducers on kernels, and write the document about them."""

from pathlib import Path
from typing import Annotated

import typer

from raidproof.cli.options import Json, Results
from raidproof.cli.output import emit
from raidproof.core.errors import ProductError, RequestError, Status
from raidproof.run.options import RESULTS

DOCUMENT = "docs/findings.md"
app = typer.Typer(
    name="findings",
    help="List the findings about kernels and other software, and test which kernels are affected.",
    add_completion=False,
    rich_markup_mode=None,
    invoke_without_command=True,
)
Ids = Annotated[list[str] | None, typer.Argument(help="names of findings (default: all)")]


def folder() -> Path:
    """Return the folder of the findings.

    Raises:
        RequestError: raidproof runs from an installed package, which has no findings.
    """
    from raidproof.run.named import folder_of_findings  # noqa: PLC0415

    found = folder_of_findings()
    if found is None:
        raise RequestError("findings are not part of an installed raidproof", remedy="run ./raidproof in a clone")
    return found


@app.callback()
def default(asked: typer.Context) -> None:
    """List the findings, if no command is given."""
    if asked.invoked_subcommand is None:
        list_findings()


@app.command("list")
def list_findings(ids: Ids = None, json: Json = False) -> None:
    """List findings: in which releases each was measured, and whether it has a reproducer."""

    from raidproof.record.finding import load_findings  # noqa: PLC0415
    from raidproof.report.findings import show_list  # noqa: PLC0415

    found = load_findings(folder(), ids or ())
    emit(found, json, lambda console: show_list(found, console))


@app.command("run")
def run_reproducers(
    ids: Ids = None,
    kernel: Annotated[
        list[str] | None, typer.Option(help="Kernel of the machines: debian/sid, or a path; may be repeated.")
    ] = None,
    patched: Annotated[
        bool, typer.Option("--patched", help="Give the server a module with the patch of the finding.")
    ] = False,
    provider: Annotated[str | None, typer.Option(help="Provider of the machines.")] = None,
    results: Results = RESULTS,
    json: Json = False,
) -> None:
    """Run reproducers on kernels, and print a matrix of findings by kernel.

    Exit status: 1 if a kernel is affected, else 5 if an answer is undecided, else 0.
    """
    from raidproof.image.kernel import DEFAULT  # noqa: PLC0415
    from raidproof.record.finding import load_findings  # noqa: PLC0415
    from raidproof.report.findings import show_matrix  # noqa: PLC0415
    from raidproof.run.doctor import require_host  # noqa: PLC0415
    from raidproof.run.findings import run_findings  # noqa: PLC0415
    from raidproof.run.platform import platform_of, refuse_unknown  # noqa: PLC0415

    found = load_findings(folder(), ids or ())
    kernels = kernel or [DEFAULT]
    for one in kernels:
        refuse_unknown(platform_of({"kernel": one, "provider": provider}))
    require_host()
    words = [f"--provider={provider}"] if provider else []
    record, path = run_findings(found, kernels, folder().parent, results, words=words, patched=patched)
    emit(record, json, lambda console: show_matrix(record, path, console))
    raise typer.Exit(Status[record.outcome.name])


@app.command("docs")
def write_document(
    check: Annotated[bool, typer.Option("--check", help="Only check that the document is up to date.")] = False,
) -> None:
    """Write docs/findings.md from the files of the findings."""
    from raidproof.record.finding import load_findings  # noqa: PLC0415
    from raidproof.report.findings import document  # noqa: PLC0415

    text, path = document(load_findings(folder())), folder().parent / DOCUMENT
    if not check:
        path.write_text(text)
    elif path.read_text() != text:
        raise ProductError(f"{DOCUMENT} differs from the files in findings/", remedy="run ./raidproof findings docs")
