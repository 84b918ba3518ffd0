"""A pair of servers on the same disks: one serves, and the other takes over by the steps of a cluster manager.

The steps are those of the OCF agents of a group mdraid, Filesystem, nfsserver, exportfs, IPaddr2, in this order: the
address comes last, so that no client reaches a server without the export. The harness executes them; the programs of
the package resource-agents do not run.
"""

import json
from ipaddress import IPv4Interface
from pathlib import Path

from raidproof.core.errors import NotEffective, RigError
from raidproof.core.layer import Machine, Spec, State
from raidproof.core.topology import SUBNET
from raidproof.guest import gratuitous_arp
from raidproof.storage.link import INTERFACE

RECORDS = ".nfsdcld"
"""Folder of nfsd's recovery database in the exported file system."""
SCOPE = "raidproof-pair"
"""The server scope (RFC 8881, 2.10.4) that both servers report: else a client would not reclaim its state."""
_ANNOUNCE = Path(gratuitous_arp.__file__).read_text()


class PairSpec(Spec):
    """The request for two servers on the same disks, of which one serves: the other takes over (active/passive)."""

    address: IPv4Interface = IPv4Interface(f"{SUBNET}.9/24")
    """The floating address, by which clients mount the export: the active server has it."""
    shared_records: bool = True
    """Whether nfsd's recovery database (nfsdcld(8)) is on the shared file system, so that it moves with the export.

    Else each server has its own, and after a takeover no client may reclaim its locks and open files.
    """
    same_scope: bool = True
    """Whether both servers report the same server scope (rpc.nfsd --scope); else each reports its host name."""

    def records(self, directory: str) -> str | None:
        """Return the folder of the recovery database on a file system that is mounted on a directory; None: usual."""
        return f"{directory}/{RECORDS}" if self.shared_records else None

    @property
    def scope(self) -> str | None:
        """The server scope of both servers; None: the host name of each."""
        return SCOPE if self.same_scope else None


class PairState(State):
    """The effective state of a pair."""

    active: str
    """The server that has the floating address, by name."""
    address: str


class FloatingAddress:
    """The floating address of a pair, on one of its servers."""

    def __init__(self, spec: PairSpec, machine: Machine) -> None:
        self.spec = spec
        self.machine = machine

    def activate(self) -> PairState:
        """Add the address to the server's interface, and announce it by gratuitous ARP.

        Raises:
            NotEffective: the interface does not have the address.
        """
        self.machine.succeed(["ip", "address", "replace", str(self.spec.address), "dev", INTERFACE])
        self.machine.succeed(["python3", "-ISc", _ANNOUNCE, INTERFACE, str(self.spec.address.ip)])
        return self.require_effective()

    def deactivate(self) -> None:
        """Remove the address: the server stays in the network by its own."""
        self.machine.succeed(["ip", "address", "delete", str(self.spec.address), "dev", INTERFACE])

    def require_effective(self) -> PairState:
        """Verify that the server has the address.

        Raises:
            NotEffective: the interface does not have the address.
        """
        found = parse_addresses(self.machine.succeed(["ip", "-json", "address", "show", "dev", INTERFACE]))
        if str(self.spec.address) not in found:
            raise NotEffective(f"{self.machine.name}: {INTERFACE} has {', '.join(found)}, not {self.spec.address}")
        return PairState(active=self.machine.name, address=str(self.spec.address))


def parse_addresses(text: str) -> list[str]:
    """Return the IPv4 addresses with prefix length in the output of ``ip -json address show dev INTERFACE``.

    Raises:
        RigError: the text has another format.
    """
    try:
        (interface,) = (one for one in json.loads(text) if one)
        listed = interface["addr_info"]
        return [f"{one['local']}/{one['prefixlen']}" for one in listed if one["family"] == "inet"]
    except (ValueError, KeyError, TypeError) as error:
        raise RigError(f"unexpected output of ip address: {error!r}: {text[:200]!r}") from error
