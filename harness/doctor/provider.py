"""What the providers of machines can do here."""

import platform
import re
from collections.abc import Iterator
from pathlib import Path

from harness.doctor.finding import Finding, Outcome

KVM = Path("/dev/kvm")


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


def kvm_finding(*, present: bool) -> Finding:
    """Say that /dev/kvm makes no difference yet."""
    found = "there, but not used" if present else "not there, and not needed"
    return Finding(str(KVM), Outcome.OK, f"{found}: this release's only provider is uml")


def provider_findings() -> Iterator[Finding]:
    """Check the one provider, and repeat what it cannot prove."""
    from harness.machine.uml import CANNOT_PROVE  # noqa: PLC0415  brings the SSH library along

    yield architecture_finding(platform.machine())
    yield xstate_finding(Path("/proc/cpuinfo").read_text())
    yield kvm_finding(present=KVM.exists())
    for limit in CANNOT_PROVE:
        yield Finding("cannot prove", Outcome.OK, limit)
