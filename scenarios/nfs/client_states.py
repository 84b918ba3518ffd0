"""The delegations that clients hold on nfsd, by its files below /proc/fs/nfsd/clients."""

import re

from raidproof.core.errors import RigError
from raidproof.machine.machine import Machine

COMMAND = [
    *("find", "/proc/fs/nfsd/clients", "(", "-name", "info", "-o", "-name", "states", ")"),
    *("-exec", "grep", "-H", "-e", "^address:", "-e", "type: deleg", "{}", "+"),
]
"""Prints the address and the delegations of each client, with the path of the file before each line."""
ADDRESS = re.compile(r'/clients/(\d+)/info:address: "(\S+):\d+"')
DELEGATION = re.compile(
    r"/clients/(\d+)/states:- 0x\w+: \{ type: deleg, access: (\w+), superblock: \"[\da-f]+:[\da-f]+:(\d+)\""
)


def delegations_on(server: Machine) -> set[tuple[str, str, int]]:
    """Return the delegations that clients hold on a server, as `parse_delegations` does."""
    return parse_delegations(server.run(COMMAND).stdout)


def parse_delegations(text: str) -> set[tuple[str, str, int]]:
    """Return the client's address, the access (``r``, ``w``) and the inode of each delegation.

    Raises:
        RigError: the text is not the output of `COMMAND`.
    """
    addresses = dict(ADDRESS.findall(text))
    found = DELEGATION.findall(text)
    if text.count("type: deleg") != len(found) or not {client for client, _, _ in found} <= addresses.keys():
        raise RigError(f"the delegations of nfsd's clients cannot be parsed: {text[:500]!r}")
    # Linux 7.2 has a second letter for a delegation that includes the times of the file.
    return {(addresses[client], access[0], int(inode)) for client, access, inode in found}
