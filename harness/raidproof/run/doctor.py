"""The checks of `./raidproof doctor`: programs, privileges, capacity and providers of this host, with remedies."""

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

from raidproof.core import command
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
from raidproof.core.terminal import Terminal
from raidproof.core.units import GIB, MIB
from raidproof.image import cache

if TYPE_CHECKING:
    from raidproof.provider.kvm import KvmAnswer

TUN = Path("/dev/net/tun")
APPARMOR = "kernel.apparmor_restrict_unprivileged_userns"
SYSCTLS = ("user.max_user_namespaces", "kernel.unprivileged_userns_clone", APPARMOR)
"""Settings that can forbid user namespaces to an ordinary user."""
SUBORDINATE_IDS_NEEDED = 65536
"""Number of subordinate user ids, and of group ids, that the build of an image maps (subuid(5))."""
MACHINES = 3
"""Number of machines of the demo's lab."""
MACHINE_MEMORY = 768 * MIB
"""Bytes of memory of each machine."""
ENGINE_MEMORY = 512 * MIB
"""Bytes of memory that the disk engine takes for the demo's disks."""
TEST_MEMORY = 5 * GIB
"""Bytes of memory that the project's tests take: two workers of pytest, each with a lab and checker machines."""
CACHE_ROOM = 3 * GIB
"""Bytes that downloads and the build of the first image take in the cache."""
LAB_ROOM = 2 * GIB
"""Bytes that the files of a lab take."""
RESULTS_ROOM = 256 * MIB
"""Bytes that the results of a run take."""
CPUS = 2
"""Number of processors below which measured rates are low."""
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108


class Outcome(StrEnum):
    """The consequence of a check: none, a limitation, or that no run is possible."""

    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"


@dataclass(frozen=True)
class HostCheck:
    """The result of one check of this host."""

    name: str
    """Subject of the check: a program, a device, ``memory``, ``provider qemu``, ..."""
    outcome: Outcome
    reason: str
    """What the check found, as text."""
    remedy: str = ""
    """What the user can do, as text; empty if nothing is to be done."""


def command_checks(
    packages: list[HostPackage], which: Callable[[str], str | None] = shutil.which
) -> Iterator[HostCheck]:
    """Yield the check of each command of host packages: the command's path, or the package to install."""
    for package in packages:
        if package.command is None:
            continue
        path = which(package.command)
        if path:
            yield HostCheck(package.command, Outcome.OK, path)
        else:
            reason = f"not found; it {package.why}"
            yield HostCheck(package.command, Outcome.MISSING, reason, install_line([package]))


def wire_check(packages: list[HostPackage], which: Callable[[str], str | None] = shutil.which) -> HostCheck:
    """Return whether this host has the programs that capture NFS traffic; without these, scenarios/nfs is skipped."""
    absent = [one for one in packages if one.command is not None and which(one.command) is None]
    if not absent:
        return HostCheck("capture of NFS", Outcome.OK, "possible: dumpcap and tshark are installed")
    commands = ", ".join(str(one.command) for one in absent)
    why = "without a capture, a reply sent milliseconds too early is not detected, and scenarios/nfs is skipped"
    return HostCheck("capture of NFS", Outcome.WARNING, f"not found: {commands}; {why}", install_line(absent))


def plugin_check(dump: str | None) -> HostCheck:
    """Return whether nbdkit's Python plugin is usable; ``dump``: output of ``nbdkit python --dump-plugin``, if any."""
    if dump is None:
        return HostCheck(
            "nbdkit python plugin",
            Outcome.MISSING,
            "nbdkit cannot load the plugin",
            install_named(["nbdkit-plugin-python"]),
        )
    found = re.search(r"^python_version=(\S+)", dump, re.MULTILINE)
    version = found[1] if found else "unknown"
    if found and tuple(map(int, version.split(".")[:2])) < (3, 11):
        return HostCheck(
            "nbdkit python plugin",
            Outcome.MISSING,
            f"is built for Python {version}; the disk engine needs Python 3.11 or newer",
            "use Debian 12, Ubuntu 24.04 or newer",
        )
    return HostCheck("nbdkit python plugin", Outcome.OK, f"Python {version}")


def package_checks() -> Iterator[HostCheck]:
    """Check the host's programs and nbdkit's Python plugin."""
    yield from command_checks(parse_host_packages(HOST.read_text()))
    yield wire_check(parse_host_packages(WIRE.read_text()))
    try:
        dumped = run(["nbdkit", "python", "--dump-plugin"], deadline_s=20)
    except RequirementMissing:
        return  # the check about the command nbdkit says that it is missing
    yield plugin_check(dumped.stdout if dumped.ok else None)


def tun_check(device: Path = TUN) -> HostCheck:
    """Return whether this process can open the device that creates tap interfaces."""
    try:
        os.close(os.open(device, os.O_RDWR))
    except OSError as error:
        remedy = {
            errno.ENOENT: "as root: modprobe tun; in a container: start it with --device /dev/net/tun",
            errno.ENODEV: "as root: modprobe tun",
            errno.EACCES: f"as root: chmod 0666 {device}, which is Debian's own default",
            errno.EPERM: "in a container: start it with --device /dev/net/tun",
        }.get(error.errno or 0, "as root: modprobe tun")
        return HostCheck(str(device), Outcome.MISSING, error.strerror or str(error), remedy)
    return HostCheck(str(device), Outcome.OK, "can be opened")


def read_sysctls(root: Path = Path("/proc/sys")) -> dict[str, str]:
    """Return the values of the sysctls about user namespaces, by name; a sysctl that this kernel lacks is left out."""
    paths = {name: root / name.replace(".", "/") for name in SYSCTLS}
    return {name: path.read_text().strip() for name, path in paths.items() if path.exists()}


def explain_refusal(settings: Mapping[str, str]) -> tuple[str, str]:
    """Return why an ordinary user cannot create user namespaces, and the remedy; ``settings``: sysctls by name."""
    if settings.get("user.max_user_namespaces") == "0":
        return "user.max_user_namespaces is 0", "as root: sysctl -w user.max_user_namespaces=15000"
    if settings.get("kernel.unprivileged_userns_clone") == "0":
        return "kernel.unprivileged_userns_clone is 0", "as root: sysctl -w kernel.unprivileged_userns_clone=1"
    if settings.get(APPARMOR, "0") != "0":
        return f"{APPARMOR} is on (Ubuntu's default)", f"as root: sysctl -w {APPARMOR}=0, or run raidproof as root"
    return "the kernel or a container refuses user namespaces", "run raidproof as root, or outside of the container"


def namespace_check(refusal: str | None, settings: Mapping[str, str], *, root: bool) -> HostCheck:
    """Return whether a lab's namespaces can be created; ``refusal``: the error of an attempt, None if it succeeded."""
    name = "namespaces" if root else "user namespaces"
    if refusal is None:
        return HostCheck(name, Outcome.OK, "permitted")
    if root:
        return HostCheck(
            name,
            Outcome.MISSING,
            f"root is not allowed to create namespaces, as in an unprivileged container: {refusal}",
            "start the container with --cap-add SYS_ADMIN,NET_ADMIN, or run raidproof outside of the container",
        )
    reason, remedy = explain_refusal(settings)
    return HostCheck(name, Outcome.MISSING, f"{reason}: {refusal}", remedy)


def try_namespaces(*, root: bool) -> str | None:
    """Create a lab's namespaces and set up a network interface in them; return the error message, None on success."""
    user = [] if root else ["--user", "--map-root-user"]
    tried = run(["unshare", *user, "--net", "--pid", "--fork", "--kill-child=KILL", "ip", "link", "set", "lo", "up"])
    return None if tried.ok else (tried.stderr.strip() or f"status {tried.status}")


def subordinate_ids(text: str, user: str, uid: int) -> int:
    """Return the number of ids that a text in the format of subuid(5) assigns to a user."""
    rows = (line.split(":") for line in text.splitlines())
    return sum(int(row[2]) for row in rows if len(row) == 3 and row[0] in {user, str(uid)})


def subordinate_check(files: Mapping[str, str], user: str, uid: int) -> HostCheck:
    """Return whether a user has `SUBORDINATE_IDS_NEEDED` ids; ``files``: texts of /etc/subuid, /etc/subgid by path."""
    short = [path for path, text in files.items() if subordinate_ids(text, user, uid) < SUBORDINATE_IDS_NEEDED]
    if short:
        return HostCheck(
            "subordinate ids",
            Outcome.MISSING,
            f"{' and '.join(short)}: fewer than {SUBORDINATE_IDS_NEEDED} ids for user {user}; the build of an image "
            "needs them",
            f"as root: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}",
        )
    return HostCheck("subordinate ids", Outcome.OK, f"enough for user {user}")


def isolation_checks() -> Iterator[HostCheck]:
    """Check tap devices and namespaces, and for an ordinary user the subordinate ids."""
    root = os.geteuid() == 0
    yield tun_check()
    with suppress(RequirementMissing):  # package_checks reports that unshare or ip is missing
        yield namespace_check(try_namespaces(root=root), read_sysctls(), root=root)
    if not root:
        paths = (Path("/etc/subuid"), Path("/etc/subgid"))
        files = {str(path): path.read_text() if path.exists() else "" for path in paths}
        yield subordinate_check(files, pwd.getpwuid(os.getuid()).pw_name, os.getuid())


def memory_check(available: int) -> HostCheck:
    """Return whether the available memory, in bytes, is enough for the demo's machines and the disk engine."""
    needed = MACHINES * MACHINE_MEMORY + ENGINE_MEMORY
    reason = f"{available // MIB} MiB available; {MACHINES} machines and their disks take up to {needed // MIB} MiB"
    if available < needed // 2:
        return HostCheck("memory", Outcome.MISSING, reason, "stop other programs, or add memory")
    if available < needed:
        return HostCheck(
            "memory", Outcome.WARNING, reason, "stop other programs; swapping would distort measured values"
        )
    return HostCheck("memory", Outcome.OK, reason)


def memory_for_tests_check(available: int) -> HostCheck:
    """Return whether the available memory, in bytes, is enough for `./raidproof test`: two scenarios at a time."""
    reason = f"{available // MIB} MiB available; `./raidproof test` takes up to {TEST_MEMORY // MIB} MiB"
    if available >= TEST_MEMORY:
        return HostCheck("memory for the project's tests", Outcome.OK, reason)
    remedy = "stop other programs; or run ./raidproof scenarios, which runs one scenario at a time"
    return HostCheck("memory for the project's tests", Outcome.WARNING, reason, remedy)


def room_check(purpose: str, path: Path, free: int, needed: int) -> HostCheck:
    """Return whether a directory has enough free space for ``purpose``; ``free`` and ``needed`` in bytes."""
    reason = f"{path}: {free // MIB} MiB free, {needed // MIB} MiB needed"
    if free >= needed:
        return HostCheck(f"room for {purpose}", Outcome.OK, reason)
    return HostCheck(f"room for {purpose}", Outcome.MISSING, reason, f"free space in {path}")


def shared_memory_check(path: Path, free: int) -> HostCheck:
    """Return whether a folder has enough free space for the memory of the demo's machines; ``free`` in bytes."""
    name, needed = "room for machines' memory", MACHINES * MACHINE_MEMORY
    reason = f"{path}: {free // MIB} MiB free, {MACHINES} machines take up to {needed // MIB} MiB"
    if free > needed:
        return HostCheck(name, Outcome.OK, reason)
    remedy = f"as root: mount -o remount,size=75% {path}; in a container: --shm-size={needed // MIB + 64}m"
    return HostCheck(
        name, Outcome.WARNING, f"{reason}; files with machines' memory are in TMPDIR instead, which is slower", remedy
    )


def cpu_check(cpus: int) -> HostCheck:
    """Return whether this process may use at least `CPUS` processors."""
    if cpus >= CPUS:
        return HostCheck("processors", Outcome.OK, str(cpus))
    return HostCheck(
        "processors",
        Outcome.WARNING,
        f"{cpus}; server and clients share it, and measured rates are low",
        f"use a host with at least {CPUS} processors",
    )


def free_bytes(path: Path) -> int:
    """Return the bytes that an ordinary user can still write below a path; the path need not exist."""
    while not path.exists():
        path = path.parent
    return psutil.disk_usage(str(path)).free


def image_is_built(cache: Path) -> bool:
    """Return whether the cache already has an image, so that a run needs little additional space in the cache."""
    return any(cache.glob("image/*/root.ext4"))


def capacity_checks(cache: Path, results: Path) -> Iterator[HostCheck]:
    """Check processors, memory, and the disks that hold the cache, the labs and the results."""
    to_build = 0 if image_is_built(cache) else CACHE_ROOM
    yield cpu_check(command.processors())
    available = psutil.virtual_memory().available
    yield memory_check(available)
    yield memory_for_tests_check(available)
    yield shared_memory_check(SHARED_MEMORY, free_bytes(SHARED_MEMORY))
    rooms = (("images", cache, to_build), ("labs", Path(tempfile.gettempdir()), LAB_ROOM))
    for purpose, path, needed in (*rooms, ("results", results, RESULTS_ROOM)):
        yield room_check(purpose, path, free_bytes(path), needed)


def architecture_check(machine: str) -> HostCheck:
    """Return whether kernels of User-mode Linux exist for a processor architecture."""
    if machine == "x86_64":
        return HostCheck(
            "provider uml", Outcome.OK, "can run: kernels are user processes, without KVM and without root"
        )
    return HostCheck(
        "provider uml", Outcome.MISSING, f"no kernels of User-mode Linux for {machine}", "use an x86_64 host"
    )


def xstate_check(cpuinfo: str) -> HostCheck:
    """Return whether kernels of User-mode Linux before 7 need a work-around for AMX registers in /proc/cpuinfo."""
    if re.search(r"^flags\b.*\bamx_tile\b", cpuinfo, re.MULTILINE):
        return HostCheck(
            "kernels before 7",
            Outcome.WARNING,
            "the processor has AMX registers: kernels 6.1 and 6.12 need the XSTATE work-around",
            "none needed: raidproof applies the work-around",
        )
    return HostCheck("kernels before 7", Outcome.OK, "no work-around needed")


def qemu_check(lacks: str | None) -> HostCheck:
    """Return whether provider qemu can run; ``lacks``: what this host lacks for it, None if nothing."""
    if lacks is None:
        return HostCheck("provider qemu", Outcome.OK, "can run: any kernel for PCs, several CPUs per machine")
    reason = f"{lacks}; only provider qemu runs kernels for PCs and machines with several CPUs"
    return HostCheck("provider qemu", Outcome.WARNING, reason, install_list(QEMU))


def vagrant_checks(packages: list[HostPackage]) -> Iterator[HostCheck]:
    """Yield whether provider vagrant can run; other providers do not need its programs."""
    absent = [one for one in command_checks(packages) if one.outcome is not Outcome.OK]
    if not absent:
        yield HostCheck("provider vagrant", Outcome.OK, "can run, as root: machines of Vagrant and libvirt")
        return
    commands = ", ".join(one.name for one in absent)
    yield HostCheck("provider vagrant", Outcome.WARNING, f"not found: {commands}", install_line(packages))


def kvm_check(answer: "KvmAnswer | None") -> HostCheck:
    """Return whether KVM works on this host; ``answer``: result of an earlier trial of KVM, None without a trial."""
    if answer is None:
        return HostCheck("KVM", Outcome.OK, "not tried yet: the first machine of provider qemu or auto tries it")
    if answer.works:
        return HostCheck("KVM", Outcome.OK, f"works: {answer.reason}")
    reason = f"does not work: {answer.reason}; provider qemu emulates its machines, at a tenth of the speed"
    return HostCheck("KVM", Outcome.WARNING, reason, "use provider uml, which needs no KVM")


def provider_checks() -> Iterator[HostCheck]:
    """Check each provider, and yield what runs with uml or qemu cannot prove.

    If KVM was never tried and the cache has a kernel for PCs, KVM is tried now, for at most 8 seconds.
    """
    # Imported here, because these modules import the SSH library, which takes long.
    from raidproof.image.kernel import pc  # noqa: PLC0415
    from raidproof.provider import kvm, qemu, uml  # noqa: PLC0415
    from raidproof.provider.registry import choose  # noqa: PLC0415

    yield architecture_check(platform.machine())
    yield xstate_check(Path("/proc/cpuinfo").read_text())
    lacks, answer = kvm.qemu_lacks(), None
    yield qemu_check(lacks)
    if lacks is None:
        answer = kvm.find_out() if pc.at_hand() else kvm.remembered()
        yield kvm_check(answer)
    yield from vagrant_checks(parse_host_packages(VAGRANT.read_text()))
    try:
        choice = choose(qemu_lacks=lacks, uml_lacks=uml.uml_lacks(), answer=answer)
    except RaidproofError as error:
        yield HostCheck("provider auto", Outcome.MISSING, str(error))
    else:
        yield HostCheck("provider auto", Outcome.OK, f"chooses {choice.name}: {choice.reason}")
    for limit in (*uml.CANNOT_PROVE, *qemu.CANNOT_PROVE):
        yield HostCheck("cannot prove", Outcome.OK, limit)


COLOURS = {Outcome.OK: "green", Outcome.WARNING: "yellow", Outcome.MISSING: "red"}


def line(check: HostCheck) -> str:
    """Return a check as one line of text."""
    remedy = f" (remedy: {check.remedy})" if check.remedy else ""
    return f"{check.outcome:<8} {check.name}: {check.reason}{remedy}"


def conclusion(checks: Iterable[HostCheck]) -> str:
    """Return a sentence about whether the demo can run on this host."""
    absent = [check.name for check in checks if check.outcome is Outcome.MISSING]
    return f"the demo cannot run on this host: {', '.join(absent)}" if absent else "the demo can run on this host"


def show(checks: list[HostCheck], *, json: bool = False, console: Console | None = None) -> None:
    """Print checks on standard output: a table on a terminal, else lines, or JSON."""
    console = console or Terminal(highlight=False)
    if json:
        console.print(json_format.dumps([asdict(check) for check in checks], indent=1), markup=False, soft_wrap=True)
        return
    if not console.is_terminal:
        for check in checks:
            console.print(line(check), markup=False, soft_wrap=True)
    else:
        table = Table("", "what", "found", "remedy", box=None)
        for check in checks:
            outcome = Text(check.outcome, style=COLOURS[check.outcome])
            table.add_row(outcome, *map(Text, (check.name, check.reason, check.remedy)))
        console.print(table)
    console.print(conclusion(checks), markup=False, soft_wrap=True)


def examine() -> list[HostCheck]:
    """Check this host in every respect; takes less than a second, or up to 8 s if KVM must be tried."""
    return [
        HostCheck("python", Outcome.OK, f"{platform.python_version()} ({sys.executable})"),
        *package_checks(),
        *isolation_checks(),
        *capacity_checks(cache.root(), Path("results").resolve()),
        *provider_checks(),
    ]


def missing(checks: Iterable[HostCheck]) -> list[HostCheck]:
    """Return the checks that prevent any run."""
    return [check for check in checks if check.outcome is Outcome.MISSING]


def require(checks: Iterable[HostCheck]) -> None:
    """Verify that no check prevents a run.

    Raises:
        RequirementMissing: a check prevents any run; the message has each reason and each remedy.
    """
    if absent := missing(checks):
        raise RequirementMissing(
            "this host cannot run a lab: "
            + "; ".join(f"{check.name}: {check.reason} ({check.remedy})" for check in absent)
        )


def require_host() -> None:
    """Verify that this host can run a lab, before any machine boots.

    Raises:
        RequirementMissing: the host lacks something that a lab needs; the message has each reason and each remedy.
    """
    require(examine())
