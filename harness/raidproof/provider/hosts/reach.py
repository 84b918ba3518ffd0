"""Machines of an inventory, logged in to: for what is done to them outside of a run."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from raidproof.core.waiting import Deadline
from raidproof.machine.remote import Remote
from raidproof.machine.transport import Transport
from raidproof.provider.hosts.inventory import HostSpec
from raidproof.provider.hosts.login import HostLogin, require_root

REACH_DEADLINE_S = 30.0


@dataclass(frozen=True)
class Reached(Remote):
    """A machine that exists, over an open connection."""

    name: str
    address: str
    transport: Transport


def login_of(host: HostSpec) -> HostLogin:
    """Return how one logs in to a machine of an inventory.

    Raises:
        RequestError: ~/.ssh/config cannot be read.
    """
    return HostLogin(host.host, host.user, sudo=host.sudo)


@contextmanager
def reached(hosts: Sequence[HostSpec], deadline_s: float = REACH_DEADLINE_S) -> Iterator[tuple[Reached, ...]]:
    """Log in to machines, in their order, and make sure that commands are run as root there.

    Raises:
        DeadlineExceeded: one does not answer.
        RequestError: its host key is unknown, or its user is not root and may not become it.
        RigError: it refuses the login.
    """
    with ExitStack() as undo:
        machines = []
        for host in hosts:
            login = login_of(host)
            transport = Transport(host.name, login)
            undo.callback(transport.close)
            transport.connect(Deadline.after(deadline_s))
            machine = Reached(host.name, host.address or login.hostname, transport)
            require_root(machine)
            machines.append(machine)
        yield tuple(machines)
