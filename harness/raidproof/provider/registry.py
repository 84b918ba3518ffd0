"""Finds the provider of a topology, and makes its lab."""

from pathlib import Path

from raidproof.core.topology import Topology
from raidproof.lab.lab import Lab
from raidproof.provider.enclosed_lab import EnclosedLab
from raidproof.provider.hosts import lab as hosts
from raidproof.provider.provider import PROVIDERS, Provider
from raidproof.provider.qemu.lab import Qemu
from raidproof.provider.uml import Uml
from raidproof.provider.vagrant.lab import Vagrants

OURS = (Uml, Qemu, Vagrants)
"""Built-in providers, registered on import; those of other distributions are registered by entry points."""


def names() -> tuple[str, ...]:
    """Return the names of all providers, including that of existing machines."""
    return (*PROVIDERS, hosts.NAME)


def provider_of(topology: Topology) -> Provider:
    """Return the provider of a topology.

    Raises:
        RequestError: there is no such provider.
    """
    return PROVIDERS[topology.provider]()


def prepare(topology: Topology) -> None:
    """Fetch and build what a lab needs, so that a failure occurs before anything has begun.

    Raises:
        RequestError: there is no such kernel, image or provider, or the provider cannot make such machines.
        RequirementMissing: this host lacks something for it.
        RigError: something could not be fetched or built.
    """
    if topology.provider != hosts.NAME:
        provider_of(topology).prepare(topology)


def lab_of(topology: Topology, *, logs: Path | None = None, keep: bool = False) -> Lab:
    """Return the lab of a topology, a context manager; nothing exists before it is entered.

    Console logs go to ``logs``. With ``keep`` the lab outlives the process that made it.

    Raises:
        RequestError: there is no such provider.
    """
    if topology.provider == hosts.NAME:
        return hosts.HostsLab(topology, keep=keep)
    return EnclosedLab(topology, provider_of(topology), logs=logs, keep=keep)
