"""What the providers of machines can do here."""

import platform
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from raidproof.core.errors import RaidproofError
from raidproof.core.host_packages import QEMU, VAGRANT, HostPackage, install_line, install_list, parse_host_packages
from raidproof.run.doctor.finding import Finding, Outcome
from raidproof.run.doctor.packages import command_findings

if TYPE_CHECKING:
    from raidproof.provider.qemu.kvm import KvmAnswer


def architecture_finding(machine: str) -> Finding:
    """Judge whether User-mode Linux exists for this processor."""
    if machine == "x86_64":
        return Finding("provider uml", Outcome.OK, "can run: kernels are user processes, without KVM and without root")
    return Finding("provider uml", Outcome.MISSING, f"no kernels for {machine}", "use an x86_64 machine")


def xstate_finding(cpuinfo: str) -> Finding:
    """Judge from /proc/cpuinfo whether older kernels need help with this processor's registers."""
    if re.search(r"^flags\b.*\bamx_tile\b", cpuinfo, re.MULTILINE):
        return Finding(
            "kernels before 7", Outcome.WARNING, "AMX registers: 6.1 and 6.12 need the XSTATE work-around", "automatic"
        )
    return Finding("kernels before 7", Outcome.OK, "no work-around needed")


def qemu_finding(lacks: str | None) -> Finding:
    """Say whether provider qemu can run; uml needs nothing of it."""
    if lacks is None:
        return Finding("provider qemu", Outcome.OK, "can run: any kernel for PCs, several CPUs")
    reason = f"{lacks}; needed for kernels of PCs and for several CPUs"
    return Finding("provider qemu", Outcome.WARNING, reason, install_list(QEMU))


def vagrant_findings(packages: list[HostPackage]) -> Iterator[Finding]:
    """Say whether provider vagrant can run: what it lacks is no obstacle to the others."""
    absent = [one for one in command_findings(packages) if one.outcome is not Outcome.OK]
    if not absent:
        yield Finding("provider vagrant", Outcome.OK, "can run, as root: machines by Vagrant and libvirt")
        return
    lacks = ", ".join(one.name for one in absent)
    yield Finding("provider vagrant", Outcome.WARNING, f"not found: {lacks}", install_line(packages))


def kvm_finding(answer: "KvmAnswer | None") -> Finding:
    """Say what the trial of KVM found; None: there was none yet."""
    if answer is None:
        return Finding("KVM", Outcome.OK, "not tried yet: the first machine of provider qemu or auto tries it")
    if answer.works:
        return Finding("KVM", Outcome.OK, f"works: {answer.reason}")
    reason = f"does not work: {answer.reason}; machines of provider qemu are emulated, at a tenth of the speed"
    return Finding("KVM", Outcome.WARNING, reason, "provider uml needs no KVM")


def provider_findings() -> Iterator[Finding]:
    """Check each provider, and repeat what it cannot prove.

    If KVM was never tried and a kernel is at hand, it is tried now: 8 seconds at most, once.
    """
    # They bring the SSH library along.
    from raidproof.image.kernel import pc  # noqa: PLC0415
    from raidproof.provider import choice as provider  # noqa: PLC0415
    from raidproof.provider.qemu import kvm  # noqa: PLC0415
    from raidproof.provider.qemu import machine as qemu  # noqa: PLC0415
    from raidproof.provider.uml import machine as uml  # noqa: PLC0415

    yield architecture_finding(platform.machine())
    yield xstate_finding(Path("/proc/cpuinfo").read_text())
    lacks, answer = provider.qemu_lacks(), None
    yield qemu_finding(lacks)
    if lacks is None:
        answer = kvm.find_out() if pc.at_hand() else kvm.remembered()
        yield kvm_finding(answer)
    yield from vagrant_findings(parse_host_packages(VAGRANT.read_text()))
    try:
        choice = provider.choose(qemu_lacks=lacks, uml_lacks=provider.uml_lacks(), answer=answer)
    except RaidproofError as error:
        yield Finding("provider auto", Outcome.MISSING, str(error))
    else:
        yield Finding("provider auto", Outcome.OK, f"takes {choice.name}: {choice.reason}")
    for limit in (*uml.CANNOT_PROVE, *qemu.CANNOT_PROVE):
        yield Finding("cannot prove", Outcome.OK, limit)
