"""What this machine can and cannot do, each with the reason and the remedy. Nothing here changes the machine."""

import platform
import sys
from collections.abc import Iterable
from pathlib import Path

from harness.doctor.capacity import capacity_findings
from harness.doctor.finding import Finding, Outcome
from harness.doctor.isolation import isolation_findings
from harness.doctor.packages import package_findings
from harness.doctor.provider import provider_findings
from harness.doctor.table import show
from harness.errors import RequirementMissing
from harness.machine import cache

__all__ = ["Finding", "Outcome", "examine", "missing", "require", "require_host", "show"]


def examine() -> list[Finding]:
    """Run every check, in a fraction of a second; but KVM, if a kernel is at hand, is tried once, for 8 s at most."""
    home = Path(__file__).resolve().parents[2]
    return [
        Finding("python", Outcome.OK, f"{platform.python_version()} ({sys.executable})"),
        *package_findings(),
        *isolation_findings(),
        *capacity_findings(cache.root(), home / "results"),
        *provider_findings(),
    ]


def missing(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings without whose remedy no machine can run."""
    return [finding for finding in findings if finding.outcome is Outcome.MISSING]


def require(findings: Iterable[Finding]) -> None:
    """Do nothing if these findings allow a run.

    Raises:
        RequirementMissing: they do not; the message has each reason and each remedy.
    """
    if absent := missing(findings):
        raise RequirementMissing(
            "this machine cannot run a lab: "
            + "; ".join(f"{finding.name}: {finding.reason} ({finding.remedy})" for finding in absent)
        )


def require_host() -> None:
    """Check this machine before anything boots.

    Raises:
        RequirementMissing: it cannot run a lab, for all the reasons given.
    """
    require(examine())
