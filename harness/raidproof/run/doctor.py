"""The checks of this host: what it can and cannot do, with reasons and remedies. They change nothing."""

import errno
import json as json_format
import os
import platform
import pwd
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from rich.console import Console
from rich.table import Table
from rich.text import Text

from raidproof.core.command import (
    HOST,
    QEMU,
    VAGRANT,
    WIRE,
    HostPackage,
    install_line,
    install_list,
    install_named,
    parse_host_packages,
    run,
)
from raidproof.core.errors import RaidproofError, RequirementMissing
from raidproof.core.units import GIB, MIB
from raidproof.image import cache

if TYPE_CHECKING:
    from raidproof.provider.kvm import KvmAnswer

TUN = Path("/dev/net/tun")
APPARMOR = "kernel.apparmor_restrict_unprivileged_userns"
SYSCTLS = ("user.max_user_namespaces", "kernel.unprivileged_userns_clone", APPARMOR)
SUBORDINATE_IDS_NEEDED = 65536
MACHINES = 3
MACHINE_MEMORY = 768 * MIB
ENGINE_MEMORY = 512 * MIB
CACHE_ROOM = 3 * GIB
LAB_ROOM = 2 * GIB
RESULTS_ROOM = 256 * MIB
CPUS = 2
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108


class Outcome(StrEnum):
    """Whether a run is possible in spite of a finding."""

    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"


@dataclass(frozen=True)
class Finding:
    """One property of this machine: what was found, and what can be done about it."""

    name: str
    outcome: Outcome
    reason: str
    remedy: str = ""


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


def tun_finding(device: Path = TUN) -> Finding:
    """Open the device that makes taps."""
    try:
        os.close(os.open(device, os.O_RDWR))
    except OSError as error:
        remedy = {
            errno.ENOENT: "as root: modprobe tun; in a container: start it with --device /dev/net/tun",
            errno.ENODEV: "as root: modprobe tun",
            errno.EACCES: f"as root: chmod 0666 {device}, which is Debian's own default",
            errno.EPERM: "in a container: start it with --device /dev/net/tun",
        }.get(error.errno or 0, "as root: modprobe tun")
        return Finding(str(device), Outcome.MISSING, error.strerror or str(error), remedy)
    return Finding(str(device), Outcome.OK, "can be opened")


def read_sysctls(root: Path = Path("/proc/sys")) -> dict[str, str]:
    """Read those of the settings about user namespaces that this kernel has."""
    paths = {name: root / name.replace(".", "/") for name in SYSCTLS}
    return {name: path.read_text().strip() for name, path in paths.items() if path.exists()}


def explain_refusal(settings: Mapping[str, str]) -> tuple[str, str]:
    """Say which setting keeps an ordinary user from namespaces, and the remedy."""
    if settings.get("user.max_user_namespaces") == "0":
        return "user.max_user_namespaces is 0", "as root: sysctl -w user.max_user_namespaces=15000"
    if settings.get("kernel.unprivileged_userns_clone") == "0":
        return "kernel.unprivileged_userns_clone is 0", "as root: sysctl -w kernel.unprivileged_userns_clone=1"
    if settings.get(APPARMOR, "0") != "0":
        return f"{APPARMOR} is on (Ubuntu's default)", f"as root: sysctl -w {APPARMOR}=0, or run raidproof as root"
    return "the kernel or a container refuses them", "run raidproof as root, or outside of the container"


def namespace_finding(refusal: str | None, settings: Mapping[str, str], *, root: bool) -> Finding:
    """Judge an attempt to make a lab's namespaces: ``refusal`` is what it said, None if it worked."""
    name = "namespaces" if root else "user namespaces"
    if refusal is None:
        return Finding(name, Outcome.OK, "permitted")
    if root:
        return Finding(
            name,
            Outcome.MISSING,
            f"root lacks the privilege, as in a container: {refusal}",
            "start the container with --privileged, or raidproof on the host",
        )
    reason, remedy = explain_refusal(settings)
    return Finding(name, Outcome.MISSING, f"{reason}: {refusal}", remedy)


def try_namespaces(*, root: bool) -> str | None:
    """Make the namespaces of a lab, with an interface in them; return what went wrong, or None."""
    user = [] if root else ["--user", "--map-root-user"]
    tried = run(["unshare", *user, "--net", "--pid", "--fork", "--kill-child=KILL", "ip", "link", "set", "lo", "up"])
    return None if tried.ok else (tried.stderr.strip() or f"status {tried.status}")


def subordinate_ids(text: str, user: str, uid: int) -> int:
    """Count the ids that a file in the format of subuid(5) gives to a user."""
    rows = (line.split(":") for line in text.splitlines())
    return sum(int(row[2]) for row in rows if len(row) == 3 and row[0] in {user, str(uid)})


def subordinate_finding(files: Mapping[str, str], user: str, uid: int) -> Finding:
    """Judge the contents of /etc/subuid and /etc/subgid, by path."""
    short = [path for path, text in files.items() if subordinate_ids(text, user, uid) < SUBORDINATE_IDS_NEEDED]
    if short:
        return Finding(
            "subordinate ids",
            Outcome.MISSING,
            f"{' and '.join(short)}: fewer than {SUBORDINATE_IDS_NEEDED} for {user}; the image is built with them",
            f"as root: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}",
        )
    return Finding("subordinate ids", Outcome.OK, f"enough for {user}")


def isolation_findings() -> Iterator[Finding]:
    """Check taps and namespaces, and for an ordinary user the subordinate ids."""
    root = os.geteuid() == 0
    yield tun_finding()
    with suppress(RequirementMissing):  # unshare or ip: said with the packages
        yield namespace_finding(try_namespaces(root=root), read_sysctls(), root=root)
    if not root:
        paths = (Path("/etc/subuid"), Path("/etc/subgid"))
        files = {str(path): path.read_text() if path.exists() else "" for path in paths}
        yield subordinate_finding(files, pwd.getpwuid(os.getuid()).pw_name, os.getuid())


def memory_finding(available: int) -> Finding:
    """Judge the available memory, in bytes, against three machines and the disk engine."""
    needed = MACHINES * MACHINE_MEMORY + ENGINE_MEMORY
    reason = f"{available // MIB} MiB available; {MACHINES} machines and their disks take up to {needed // MIB} MiB"
    if available < needed // 2:
        return Finding("memory", Outcome.MISSING, reason, "stop other programs, or add memory")
    if available < needed:
        return Finding("memory", Outcome.WARNING, reason, "stop other programs; swapping would spoil the measurements")
    return Finding("memory", Outcome.OK, reason)


def room_finding(purpose: str, path: Path, free: int, needed: int) -> Finding:
    """Return whether a directory has enough free space; ``free`` and ``needed`` in bytes."""
    reason = f"{path}: {free // MIB} MiB free, needs {needed // MIB} MiB"
    if free >= needed:
        return Finding(f"room for {purpose}", Outcome.OK, reason)
    return Finding(f"room for {purpose}", Outcome.MISSING, reason, "free some space there")


def shared_memory_finding(path: Path, free: int) -> Finding:
    """Return whether the folder of the machines' memory has enough free space; ``free`` in bytes."""
    name, needed = "room for machines' memory", MACHINES * MACHINE_MEMORY
    reason = f"{path}: {free // MIB} MiB free, {MACHINES} machines take up to {needed // MIB} MiB"
    if free > needed:
        return Finding(name, Outcome.OK, reason)
    remedy = f"as root: mount -o remount,size=75% {path}; in a container: --shm-size={needed // MIB + 64}m"
    return Finding(name, Outcome.WARNING, f"{reason}; it goes to files in TMPDIR instead, which is slower", remedy)


def cpu_finding(cpus: int) -> Finding:
    """Judge the number of processors that this process may use."""
    if cpus >= CPUS:
        return Finding("processors", Outcome.OK, str(cpus))
    return Finding("processors", Outcome.WARNING, f"{cpus}; server and clients share it", "rates will be low")


def free_bytes(path: Path) -> int:
    """Return what an ordinary user can still write under a path, which need not exist yet."""
    while not path.exists():
        path = path.parent
    return psutil.disk_usage(str(path)).free


def image_is_built(cache: Path) -> bool:
    """Whether the cache already has an image, so that a run needs little more there."""
    return any(cache.glob("image/*/root.ext4"))


def capacity_findings(cache: Path, results: Path) -> Iterator[Finding]:
    """Check processors, memory, and the disks that hold the cache, the labs and the results."""
    to_build = 0 if image_is_built(cache) else CACHE_ROOM
    yield cpu_finding(len(os.sched_getaffinity(0)))
    yield memory_finding(psutil.virtual_memory().available)
    yield shared_memory_finding(SHARED_MEMORY, free_bytes(SHARED_MEMORY))
    rooms = (("images", cache, to_build), ("labs", Path(tempfile.gettempdir()), LAB_ROOM))
    for purpose, path, needed in (*rooms, ("results", results, RESULTS_ROOM)):
        yield room_finding(purpose, path, free_bytes(path), needed)


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
    from raidproof.provider import kvm, qemu, uml  # noqa: PLC0415
    from raidproof.provider.registry import choose  # noqa: PLC0415

    yield architecture_finding(platform.machine())
    yield xstate_finding(Path("/proc/cpuinfo").read_text())
    lacks, answer = kvm.qemu_lacks(), None
    yield qemu_finding(lacks)
    if lacks is None:
        answer = kvm.find_out() if pc.at_hand() else kvm.remembered()
        yield kvm_finding(answer)
    yield from vagrant_findings(parse_host_packages(VAGRANT.read_text()))
    try:
        choice = choose(qemu_lacks=lacks, uml_lacks=uml.uml_lacks(), answer=answer)
    except RaidproofError as error:
        yield Finding("provider auto", Outcome.MISSING, str(error))
    else:
        yield Finding("provider auto", Outcome.OK, f"takes {choice.name}: {choice.reason}")
    for limit in (*uml.CANNOT_PROVE, *qemu.CANNOT_PROVE):
        yield Finding("cannot prove", Outcome.OK, limit)


COLOURS = {Outcome.OK: "green", Outcome.WARNING: "yellow", Outcome.MISSING: "red"}


def line(finding: Finding) -> str:
    """Write a finding on one line."""
    remedy = f" (remedy: {finding.remedy})" if finding.remedy else ""
    return f"{finding.outcome:<8} {finding.name}: {finding.reason}{remedy}"


def conclusion(findings: Iterable[Finding]) -> str:
    """Say in one line whether a demo can run."""
    absent = [finding.name for finding in findings if finding.outcome is Outcome.MISSING]
    return f"a demo cannot run here: {', '.join(absent)}" if absent else "a demo can run here"


def show(findings: list[Finding], *, json: bool = False, console: Console | None = None) -> None:
    """Print the findings on standard output."""
    console = console or Console(highlight=False)
    if json:
        console.print(
            json_format.dumps([asdict(finding) for finding in findings], indent=1), markup=False, soft_wrap=True
        )
        return
    if not console.is_terminal:
        for finding in findings:
            console.print(line(finding), markup=False, soft_wrap=True)
    else:
        table = Table("", "what", "found", "remedy", box=None)
        for finding in findings:
            outcome = Text(finding.outcome, style=COLOURS[finding.outcome])
            table.add_row(outcome, *map(Text, (finding.name, finding.reason, finding.remedy)))
        console.print(table)
    console.print(conclusion(findings), markup=False, soft_wrap=True)


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
