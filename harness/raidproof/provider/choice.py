"""Which provider ``auto`` takes on this host, and why."""

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
"""What provider ``qemu`` needs of this host besides the rest."""


@dataclass(frozen=True)
class Choice:
    """A provider and the reason for it."""

    name: str
    reason: str


def choose(*, qemu_lacks: str | None, uml_lacks: str | None, answer: KvmAnswer | None) -> Choice:
    """Choose a provider: KVM that works, else kernels as processes, else emulation.

    ``qemu_lacks`` and ``uml_lacks`` say why the provider cannot run here at all; None is that it can. ``answer`` is
    None where KVM was not asked, because there is no QEMU to ask it by.

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
    """Choose for this host; KVM is tried where its answer is not known yet.

    Raises:
        RequirementMissing: no provider can run here.
        RigError: the kernel to try KVM with could not be fetched.
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
