"""`raidproof hosts`: commands for existing machines, outside of a run."""

import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="hosts",
    help="Permit the use of existing machines' disks; restore machines after a killed run.",
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
)
Inventory = Annotated[Path, typer.Argument(help="the inventory file; docs/hosts.md describes the format")]


@app.command()
def adopt(
    inventory: Inventory,
    yes: Annotated[
        str | None,
        typer.Option(
            metavar="FINGERPRINT", help="Confirm without a prompt, by the fingerprint that this command prints."
        ),
    ] = None,
) -> None:
    """Show the content of an inventory's disks and, after a confirmation, permit raidproof to overwrite the disks."""
    from raidproof.provider.hosts import gate  # noqa: PLC0415
    from raidproof.provider.hosts.inventory import load_inventory  # noqa: PLC0415
    from raidproof.provider.hosts.login import reached  # noqa: PLC0415

    named = load_inventory(inventory)
    ask = typer.prompt if yes is None and sys.stdin.isatty() else None
    with reached([named.server]) as (server,):
        marks = gate.adopt(named, server, show=print, ask=ask, yes="" if yes is None and ask is None else yes)
    print(f"adopted {len(marks)} disks")  # noqa: T201


@app.command()
def restore(inventory: Inventory) -> None:
    """Restore the machines that a killed run has changed to their state before the run."""
    from raidproof.provider.hosts.inventory import load_inventory  # noqa: PLC0415
    from raidproof.provider.hosts.login import reached  # noqa: PLC0415
    from raidproof.provider.hosts.snapshot import copies, restore_all  # noqa: PLC0415

    with reached(load_inventory(inventory).machines) as machines:
        restored = restore_all(machines, copies(), str(inventory))
    for one in restored:
        print(f"{one.machine}: restored to its state before run {one.run}")  # noqa: T201
        for path in one.replaced:
            changed = f"another program or user changed {path} since run {one.run}"
            print(f"  {changed}; the changed version is in {copies()}")  # noqa: T201
    if not restored:
        print("nothing to restore")  # noqa: T201
