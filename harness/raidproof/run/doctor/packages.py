"""The programs that a run needs from the distribution, as vms/host-packages.txt lists them."""

import re
import shutil
from collections.abc import Callable, Iterator

from raidproof.core.command import run
from raidproof.core.errors import RequirementMissing
from raidproof.core.host_packages import HOST, WIRE, HostPackage, install_line, install_named, parse_host_packages
from raidproof.run.doctor.finding import Finding, Outcome


def command_findings(
    packages: list[HostPackage], which: Callable[[str], str | None] = shutil.which
) -> Iterator[Finding]:
    """Look for each command."""
    for package in packages:
        if package.command is None:
            continue
        path = which(package.command)
        if path:
            yield Finding(package.command, Outcome.OK, path)
        else:
            reason = f"not found; it {package.why}"
            yield Finding(package.command, Outcome.MISSING, reason, install_line([package]))


def wire_finding(packages: list[HostPackage], which: Callable[[str], str | None] = shutil.which) -> Finding:
    """Say whether NFS can be looked at on the wire: some scenarios need that, and are skipped without."""
    absent = [one for one in packages if one.command is not None and which(one.command) is None]
    if not absent:
        return Finding("capture of NFS", Outcome.OK, "can run: dumpcap and tshark are here")
    said = ", ".join(str(one.command) for one in absent)
    why = "without it a reply given milliseconds too early does not show, and scenarios/nfs is skipped"
    return Finding("capture of NFS", Outcome.WARNING, f"not found: {said}; {why}", install_line(absent))


def plugin_finding(dump: str | None) -> Finding:
    """Judge the output of ``nbdkit python --dump-plugin``; None if that failed."""
    if dump is None:
        return Finding(
            "nbdkit python plugin", Outcome.MISSING, "does not load", install_named(["nbdkit-plugin-python"])
        )
    found = re.search(r"^python_version=(\S+)", dump, re.MULTILINE)
    version = found[1] if found else "unknown"
    if found and tuple(map(int, version.split(".")[:2])) < (3, 11):
        return Finding(
            "nbdkit python plugin",
            Outcome.MISSING,
            f"is built for Python {version}; the disk engine needs 3.11",
            "use Debian 12, Ubuntu 24.04 or newer",
        )
    return Finding("nbdkit python plugin", Outcome.OK, f"Python {version}")


def package_findings() -> Iterator[Finding]:
    """Check the programs and the nbdkit plugin."""
    yield from command_findings(parse_host_packages(HOST.read_text()))
    yield wire_finding(parse_host_packages(WIRE.read_text()))
    try:
        dumped = run(["nbdkit", "python", "--dump-plugin"], deadline_s=20)
    except RequirementMissing:
        return  # already said
    yield plugin_finding(dumped.stdout if dumped.ok else None)
