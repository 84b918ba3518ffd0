"""What the kernel allows this user: taps, namespaces, subordinate ids."""

import errno
import os
import pwd
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from raidproof.core.command import run
from raidproof.core.errors import RequirementMissing
from raidproof.run.doctor.finding import Finding, Outcome

TUN = Path("/dev/net/tun")
APPARMOR = "kernel.apparmor_restrict_unprivileged_userns"
SYSCTLS = ("user.max_user_namespaces", "kernel.unprivileged_userns_clone", APPARMOR)
SUBORDINATE_IDS_NEEDED = 65536


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
