"""Builds Debian packages from a source tree of nfs-utils or mdadm, for `SoftwareSpec.packages`."""

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from raidproof.core import command
from raidproof.core.command import Completed, install_named
from raidproof.core.errors import RequestError, RequirementMissing, RigError, nearest
from raidproof.core.log import step
from raidproof.image import cache
from raidproof.image.build_output import cause_of
from raidproof.image.worktree import identity_of

RECIPE_VERSION = "1"
"""Part of the cache address: increase it when the result of a build changes."""
PROGRAMS = ("dpkg-buildpackage", "dpkg-shlibdeps", "make", "gcc")
"""The programs of every build: of dpkg-dev, make and gcc."""
BUILD_DEADLINE_S = 1800.0
FAILED = "package-log"
"""The kind of the cache's folders with the logs of failed builds."""
ENVIRONMENT = {"LC_ALL": "C", "MAKEFLAGS": "", "DEB_BUILD_OPTIONS": "nocheck noautodbgsym terse"}
_UNUSED = re.compile(r".*-(?:dev|doc|dbgsym|udeb)_.*")
_DATE = "Thu, 01 Jan 1970 00:00:00 +0000"


class PackageBuildFailed(RigError):
    """The source tree of a package does not build."""


@dataclass(frozen=True)
class Upstream:
    """How a project's own source tree, without Debian's files, is built and installed."""

    mark: str
    """A file that identifies the project's tree."""
    version: re.Pattern[str]
    """The pattern of the version in ``mark``."""
    configure: tuple[tuple[str, ...], ...]
    """The commands before make(1)."""
    make: tuple[str, ...]
    """Arguments of make(1), also for its target ``install``."""
    replaces: tuple[str, ...]
    """The packages of Debian whose files the built package replaces."""
    needs: tuple[str, ...]
    """The packages for this host that the build needs."""


UPSTREAM = {
    "mdadm": Upstream(
        mark="ReadMe.c",
        version=re.compile(r'#define\s+VERSION\s+"([^"]+)"'),
        configure=(),
        make=("BINDIR=/usr/sbin", "UDEVDIR=/usr/lib/udev", "CWFLAGS=-w"),
        replaces=(),
        needs=("make", "gcc", "libc6-dev", "libudev-dev", "pkg-config"),
    ),
    "nfs-utils": Upstream(
        mark="configure.ac",
        version=re.compile(r"AC_INIT\(\[linux nfs-utils\],\s*\[([^\]]+)\]"),
        configure=(
            ("autoreconf", "--force", "--install"),
            (
                *("./configure", "--prefix=/usr", "--sysconfdir=/etc", "--localstatedir=/var", "--disable-gss"),
                *("--libdir=/usr/lib/x86_64-linux-gnu", "--with-systemd=no", "--disable-ldap", "--disable-nfsdctl"),
                *("--enable-libmount-mount", "--with-rpcgen=internal", "--with-statedir=/var/lib/nfs"),
            ),
        ),
        make=(),
        replaces=("nfs-common", "nfs-kernel-server", "libnfsidmap1"),
        needs=(
            *("make", "gcc", "libc6-dev", "autoconf", "automake", "libtool", "pkg-config", "libtirpc-dev"),
            *("libevent-dev", "libsqlite3-dev", "libmount-dev", "libblkid-dev", "libdevmapper-dev", "libkeyutils-dev"),
            *("uuid-dev", "libxml2-dev", "libreadline-dev"),
        ),
    ),
}
"""The projects whose own source trees raidproof builds, by the name of Debian's source package."""


def build(tree: Path) -> tuple[Path, ...]:
    """Return the .deb files that are built from a source tree; build them if the cache lacks them.

    A tree with Debian's files (``debian/``) is built by dpkg-buildpackage(1); another tree of nfs-utils or mdadm by
    its own makefiles. The packages use the libraries of this host. Their version ends with the content of the tree.

    Raises:
        PackageBuildFailed: the tree does not build.
        RequestError: ``tree`` is not a source tree that can be built.
        RequirementMissing: this host lacks a program or a library for the build.
        RigError: the cache cannot be used.
    """
    path = tree.expanduser().resolve()
    if not path.is_dir():
        raise RequestError(f"there is no source tree {tree}", remedy="name the folder of the source")
    if absent := [program for program in PROGRAMS if shutil.which(program) is None]:
        raise RequirementMissing(
            f"building packages needs {', '.join(absent)}, which this host lacks",
            remedy=install_named(["dpkg-dev", "make", "gcc"]),
        )
    mark = identity_of(path).replace("-", ".")
    if (path / "debian" / "control").is_file():
        name = _field(path / "debian" / "control", "Source")
        builder = _by_debian
    else:
        name = upstream_of(path)
        builder = _by_make
    address = f"{name}-{mark}-{cache.digest(RECIPE_VERSION, repr(UPSTREAM.get(name)))[:8]}"

    def build_aside(partial: Path) -> None:
        step(f"building packages of {name} from {path}")
        copy = partial / cache.SCRATCH / "source"
        shutil.copytree(path, copy, symlinks=True, ignore=shutil.ignore_patterns(".git"))
        builder(name, mark, copy)
        for file in sorted(copy.parent.glob("*.deb")):
            if not _UNUSED.match(file.name):
                shutil.copy(file, partial)

    folder = cache.build("package", address, build_aside)
    return tuple(sorted(folder.glob("*.deb")))


def _field(control: Path, key: str) -> str:
    found = re.search(rf"^{key}:[ \t]*(\S+)", control.read_text(), re.MULTILINE)
    if found is None:
        raise RequestError(f"{control} has no field {key}")
    return found[1]


def upstream_of(tree: Path) -> str:
    """Return the name of the project in `UPSTREAM` whose own source tree is ``tree``.

    Raises:
        RequestError: it is none of them.
    """
    for name, project in UPSTREAM.items():
        file = tree / project.mark
        if file.is_file() and project.version.search(file.read_text(errors="replace")):
            return name
    raise RequestError(
        f"{tree} is not a source tree of {' or '.join(UPSTREAM)}, and has no debian/control",
        remedy=nearest(tree.name, UPSTREAM),
    )


def _by_debian(name: str, mark: str, copy: Path) -> None:
    changelog = copy / "debian" / "changelog"
    text = changelog.read_text()
    found = re.match(r"\S+ \(([^)]+)\)", text)
    if found is None:
        raise RequestError(f"{name}: debian/changelog does not begin with a version")
    entry = f"{name} ({found[1]}+{mark}) UNRELEASED; urgency=medium\n\n  * Local build.\n\n"
    changelog.write_text(f"{entry} -- raidproof <raidproof@localhost>  {_DATE}\n\n{text}")
    options = {
        **ENVIRONMENT,
        "DEB_BUILD_OPTIONS": f"{ENVIRONMENT['DEB_BUILD_OPTIONS']} parallel={command.processors()}",
    }
    _run(name, mark, copy, ["dpkg-buildpackage", "--build=binary", "--unsigned-changes"], options)


def _by_make(name: str, mark: str, copy: Path) -> None:
    project = UPSTREAM[name]
    found = project.version.search((copy / project.mark).read_text(errors="replace"))
    version = f"{found[1] if found else 0}+{mark}"
    root = copy.parent / "root"
    for command_line in project.configure:
        _run(name, mark, copy, command_line)
    _run(name, mark, copy, ["make", f"-j{command.processors()}", *project.make])
    _run(name, mark, copy, ["make", *project.make, f"DESTDIR={root}", "install"])
    _into_usr(root)
    fields = {
        "Package": name,
        "Source": name,
        "Version": version,
        "Architecture": "amd64",
        "Maintainer": "raidproof <raidproof@localhost>",
        "Description": "built from source",
        "Replaces": ", ".join(project.replaces),
        "Depends": _libraries(root, copy.parent / "libraries"),
    }
    (root / "DEBIAN").mkdir()
    (root / "DEBIAN" / "control").write_text("".join(f"{key}: {value}\n" for key, value in fields.items() if value))
    file = copy.parent / f"{name}_{mark}_amd64.deb"
    _run(name, mark, copy, ["dpkg-deb", "--root-owner-group", "--build", str(root), str(file)])


def _libraries(root: Path, scratch: Path) -> str:
    """Return the packages, and their least versions, whose libraries the programs in ``root`` need."""
    (scratch / "debian").mkdir(parents=True)
    (scratch / "debian" / "control").write_text("Source: built\n\nPackage: built\nArchitecture: amd64\n")
    files = (path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    programs = sorted(f"-e{path}" for path in files if path.read_bytes()[:4] == b"\x7fELF")
    words = ["env", f"--chdir={scratch}", "dpkg-shlibdeps", "-O", "--ignore-missing-info", *programs]
    return command.succeed(words).strip().removeprefix("shlibs:Depends=")


def _into_usr(root: Path) -> None:
    """Move programs and libraries from /sbin, /bin and /lib below /usr, where Debian's packages have them."""
    for folder in ("sbin", "bin", "lib"):
        old = root / folder
        if old.is_dir():
            shutil.copytree(old, root / "usr" / folder, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(old)


def _run(name: str, mark: str, copy: Path, words: Sequence[str], environment: Mapping[str, str] = ENVIRONMENT) -> None:
    argv = ["env", f"--chdir={copy}", *words]
    completed = command.follow(argv, lambda _line: None, environment=environment, deadline_s=BUILD_DEADLINE_S)
    if not completed.ok:
        log = cache.place(FAILED, f"{name}-{mark}.log")
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(completed.stdout)
        raise explain(completed, name, log)


def explain(completed: Completed, name: str, log: Path) -> RigError | RequirementMissing:
    """Return the error for a failed command of a build; ``log`` is the file with its output."""
    output = completed.stdout
    if "No space left on device" in output:
        return cache.no_room(log.parent)
    if found := re.search(r"(?i)unmet build dependencies: (.+)", output):
        packages = [word for word in re.sub(r"\([^)]*\)|\|[^,\s]+", "", found[1]).split() if word[0].isalnum()]
        return RequirementMissing(
            f"building {name} needs packages that this host lacks: {found[1].strip()}", remedy=install_named(packages)
        )
    needs = UPSTREAM[name].needs if name in UPSTREAM else ("build-essential",)
    if found := re.search(
        r"fatal error: (\S+): No such file or directory|configure: error: (.+)|^env: (.+): No such file|"
        r"(?m:^Package (\S+) was not found in the pkg-config)",
        output,
        re.MULTILINE,
    ):
        what = next(part for part in found.groups() if part)
        return RequirementMissing(
            f"building {name} stopped: {what} is missing (log: {log})", remedy=install_named(needs)
        )
    cause = cause_of(output) or f"status {completed.status}"
    return PackageBuildFailed(f"the source of {name} does not build: {cause}", remedy=f"log: {log}")
