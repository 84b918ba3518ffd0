"""Returns the provider that a topology names, or that ``auto`` selects on this host; creates the lab of a topology."""

from dataclasses import dataclass
from pathlib import Path

from raidproof.core.command import QEMU, install_list
from raidproof.core.errors import RequestError, RequirementMissing
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
"""The value of the option ``--provider`` that lets `decide` select the provider."""
OURS = (Uml, Qemu, Vagrants)
"""The providers in this package, registered on import; other Python packages register providers by entry points."""


def names() -> tuple[str, ...]:
    """Return the names of all providers, including ``hosts``, which uses existing machines."""
    return (*PROVIDERS, hosts.NAME)


def provider_of(topology: Topology) -> Provider:
    """Return a new instance of the provider that a topology names.

    Raises:
        RequestError: no provider has this name.
    """
    return PROVIDERS[topology.provider]()


def prepare(topology: Topology) -> None:
    """Fetch and build the kernels, images and boxes of a lab before the lab starts; do nothing for provider ``hosts``.

    Raises:
        RequestError: a requested kernel, image or provider does not exist, or the provider cannot create the machines.
        RequirementMissing: this host lacks a program, or space, that the provider needs.
        RigError: a download or a build failed.
    """
    if topology.provider != hosts.NAME:
        _able(topology).prepare(topology)


def lab_of(topology: Topology, *, logs: Path | None = None, keep: bool = False) -> Lab:
    """Return the lab of a topology as a context manager; entering it creates and boots the machines.

    Console logs are written to ``logs``; None: to the lab's directory. With ``keep`` the machines continue to
    run when the context is left.

    Raises:
        RequestError: no provider has the name that the topology requests, or the provider cannot create the lab.
    """
    if topology.provider == hosts.NAME:
        _refuse_standby(topology, hosts.WHY_NO_STANDBY)
        return hosts.HostsLab(topology, keep=keep)
    return NamespaceLab(topology, _able(topology), logs=logs, keep=keep)


def _able(topology: Topology) -> Provider:
    provider = provider_of(topology)
    _refuse_standby(topology, provider.why_no_standby)
    return provider


def _refuse_standby(topology: Topology, why: str | None) -> None:
    if why is not None and topology.standby is not None:
        raise RequestError(
            f"provider {topology.provider}: a second server is not possible: {why}",
            remedy=f"use provider {Uml.name}",
        )


@dataclass(frozen=True)
class Choice:
    """The provider that ``auto`` selects."""

    name: str
    """The provider's name."""
    reason: str
    """Why the provider was selected, for messages."""


def choose(*, qemu_lacks: str | None, uml_lacks: str | None, answer: KvmAnswer | None) -> Choice:
    """Choose a provider: ``qemu`` if KVM works, else ``uml``, else ``qemu`` with emulation.

    ``qemu_lacks`` and ``uml_lacks`` are the reasons why the provider cannot run on this host; None: it can run.
    ``answer`` is the result of the trial boot under KVM; None: there was no trial boot, as this host has no QEMU.

    Raises:
        RequirementMissing: neither ``qemu`` nor ``uml`` can run on this host.
    """
    if qemu_lacks is None and answer is not None and answer.works:
        return Choice(Qemu.name, f"KVM works: {answer.reason}")
    without = f"no QEMU ({qemu_lacks})" if qemu_lacks is not None else "KVM was not tried"
    if qemu_lacks is None and answer is not None:
        without = f"KVM does not work ({answer.reason})"
    if uml_lacks is None:
        return Choice(Uml.name, f"{without}; User-mode Linux runs about ten times faster than an emulated CPU")
    if qemu_lacks is None:
        return Choice(Qemu.name, f"{without}, and provider uml cannot run ({uml_lacks}): CPUs are emulated")
    raise RequirementMissing(
        f"neither provider uml nor provider qemu can run on this host: uml: {uml_lacks}; qemu: {qemu_lacks}",
        remedy=install_list(QEMU),
    )


def decide() -> Choice:
    """Choose a provider for this host; boot a kernel under KVM if the cache has no result of such a trial.

    Raises:
        RequirementMissing: neither ``qemu`` nor ``uml`` can run on this host.
        RigError: the kernel for the trial boot could not be fetched.
    """
    lacks = qemu_lacks()
    return choose(qemu_lacks=lacks, uml_lacks=uml_lacks(), answer=kvm.find_out() if lacks is None else None)
