"""What this machine can and cannot do, each with the reason and the remedy. Nothing here changes the machine."""

import platform
import sys
from collections.abc import Iterable
from pathlib import Path

from raidproof.core.errors import RequirementMissing
from raidproof.image import cache
from raidproof.run.doctor.capacity import capacity_findings
from raidproof.run.doctor.finding import Finding, Outcome
from raidproof.run.doctor.isolation import isolation_findings
from raidproof.run.doctor.packages import package_findings
from raidproof.run.doctor.provider import provider_findings
from raidproof.run.doctor.table import show

__all__ = ["Finding", "Outcome", "examine", "missing", "require", "require_host", "show"]


def examine() -> list[Finding]:
    """Run every check, in a fraction of a second; but KVM, if a kernel is at hand, is tried once, for 8 s at most."""
    return [
        Finding("python", Outcome.OK, f"{platform.python_version()} ({sys.executable})"),
        *package_findings(),
        *isolation_findings(),
        *capacity_findings(cache.root(), Path("results").resolve()),
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
