"""The provider that ``auto`` selects on this host, and the reason."""

import platform
import shutil
from dataclasses import dataclass

from raidproof.core.errors import RequirementMissing
from raidproof.core.host_packages import QEMU, install_list
from raidproof.provider import uml
from raidproof.provider.qemu import kvm, machine
from raidproof.provider.qemu import machine as qemu
from raidproof.provider.qemu.kvm import KvmAnswer

AUTO = "auto"
QEMU_TOOLS = (machine.PROGRAM, "qemu-img", "depmod")
"""The programs that provider ``qemu`` needs in addition to the common ones."""


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
        return Choice(qemu.NAME, f"KVM works: {answer.reason}")
    without = f"no QEMU ({qemu_lacks})" if qemu_lacks is not None else "KVM was not tried"
    if qemu_lacks is None and answer is not None:
        without = f"KVM does not work ({answer.reason})"
    if uml_lacks is None:
        return Choice(uml.NAME, f"{without}; kernels as processes are some ten times faster than emulated ones")
    if qemu_lacks is None:
        return Choice(qemu.NAME, f"{without}, and no User-mode Linux ({uml_lacks}): processors are emulated")
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


def qemu_lacks() -> str | None:
    """Return what this host lacks for provider ``qemu``, or None."""
    absent = [program for program in QEMU_TOOLS if shutil.which(program) is None]
    return f"not found: {', '.join(absent)}" if absent else None


def uml_lacks() -> str | None:
    """Return why provider ``uml`` cannot run on this host, or None."""
    machine = platform.machine()
    return None if machine == "x86_64" else f"no kernels for {machine}"
