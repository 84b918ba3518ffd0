"""`raidproof hosts`: commands for existing machines, outside of a run."""

import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="hosts",
    help="Existing machines: permit the use of their disks, restore the machines after a crash.",
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
)
Inventory = Annotated[Path, typer.Argument(help="the inventory, as docs/hosts.md describes it")]


@app.command()
def adopt(
    inventory: Inventory,
    yes: Annotated[str | None, typer.Option(metavar="FINGERPRINT", help="Confirm without a question.")] = None,
) -> None:
    """Show the contents of an inventory's disks and, after confirmation, mark the disks as raidproof's."""
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
    """Restore every machine to its state before a run that was killed. Machines in that state are not changed."""
    from raidproof.provider.hosts.inventory import load_inventory  # noqa: PLC0415
    from raidproof.provider.hosts.login import reached  # noqa: PLC0415
    from raidproof.provider.hosts.snapshot import copies, restore_all  # noqa: PLC0415

    with reached(load_inventory(inventory).machines) as machines:
        restored = restore_all(machines, copies())
    for one in restored:
        print(f"{one.machine}: restored to its state before run {one.run}")  # noqa: T201
        for path in one.replaced:
            print(f"  {path} was changed since run {one.run} by another program or user; {copies()} has that version")  # noqa: T201
    if not restored:
        print("nothing to restore")  # noqa: T201
