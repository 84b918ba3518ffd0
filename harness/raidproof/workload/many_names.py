"""A directory of thousands of names, which the server makes before the clients begin: one of them lists it."""

from raidproof.guest import ledger_listing
from raidproof.guest.ledger_format import LISTING
from raidproof.workload.ledger import Ledger, ServerPlace
from raidproof.workload.ledger_programs import command_of, install


def fill(ledger: Ledger, server: ServerPlace) -> None:
    """Make the directory on the server, for the first worker that lists directories; do nothing without one.

    Raises:
        RigError: the server cannot make the directory.
    """
    worker = next((one for one in ledger.workers if one.kind == LISTING), None)
    if worker is None:
        return
    install(server.machine, ledger.config(None))
    server.machine.succeed(command_of(ledger_listing, f"{server.root}/{worker.path}", str(worker.owner)))
    ledger.filled = worker.number
