"""Finds the provider of a topology, or the one that ``auto`` selects on this host, and makes its lab."""

from dataclasses import dataclass
from pathlib import Path

from raidproof.core.command import QEMU, install_list
from raidproof.core.errors import RequirementMissing
from raidproof.core.topology import Topology
from raidproof.lab.lab import Lab
from raidproof.provider import kvm
from raidproof.provider.hosts import lab as hosts
from raidproof.provider.kvm import KvmAnswer, qemu_lacks
from raidproof.provider.namespace_lab import NamespaceLab
from raidproof.provider.provider import PROVIDERS, Provider
from raidproof.provider.qemu import Qemu
from raidproof.provider.uml import Uml, uml_lacks
from raidproof.provider.vagrant.lab import Vagrants

AUTO = "auto"
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
    return NamespaceLab(topology, provider_of(topology), logs=logs, keep=keep)


@dataclass(frozen=True)
class Choice:
    """A provider and the reason for it."""

    name: str
    reason: str


def choose(*, qemu_lacks: str | None, uml_lacks: str | None, answer: KvmAnswer | None) -> Choice:
    """Choose a provider: QEMU if KVM works, else User-mode Linux, else QEMU with emulation.

    ``qemu_lacks`` and ``uml_lacks`` are the reasons why the provider cannot run here at all; None means that it can.
    ``answer`` is None if KVM was not tried, because there is no QEMU.

    Raises:
        RequirementMissing: neither can run.
    """
    if qemu_lacks is None and answer is not None and answer.works:
        return Choice(Qemu.name, f"KVM works: {answer.reason}")
    without = f"no QEMU ({qemu_lacks})" if qemu_lacks is not None else "KVM was not tried"
    if qemu_lacks is None and answer is not None:
        without = f"KVM does not work ({answer.reason})"
    if uml_lacks is None:
        return Choice(Uml.name, f"{without}; kernels as processes are some ten times faster than emulated ones")
    if qemu_lacks is None:
        return Choice(Qemu.name, f"{without}, and no User-mode Linux ({uml_lacks}): processors are emulated")
    raise RequirementMissing(
        f"no provider can run here: uml: {uml_lacks}; qemu: {qemu_lacks}", remedy=install_list(QEMU)
    )


def decide() -> Choice:
    """Choose for this host; try KVM if its answer is not cached.

    Raises:
        RequirementMissing: no provider can run here.
        RigError: the kernel for the trial of KVM could not be fetched.
    """
    lacks = qemu_lacks()
    return choose(qemu_lacks=lacks, uml_lacks=uml_lacks(), answer=kvm.find_out() if lacks is None else None)
