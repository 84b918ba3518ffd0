"""The interface of a suite, its search and installation on a client, and the run of its commands."""

import hashlib
import io
import os
import re
import shutil
import tarfile
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Protocol

from pydantic import Field

from raidproof.core.command import DEFAULT_DEADLINE_S, Completed
from raidproof.core.errors import DeadlineExceeded, RequestError, RequirementMissing
from raidproof.core.layer import Machine, Spec, State
from raidproof.core.units import MIB, format_size
from raidproof.core.waiting import now_ns
from raidproof.record.suite import CaseResult, SuiteOutcome
from raidproof.workload.workload import own_directory, run_limited

DIRECTORY = "/var/lib/raidproof-suites"
"""Folder of the installed suites in a machine; it is removed when the lab ends."""
LARGEST = 256 * MIB
"""Maximum size in bytes of a suite that is copied to a machine: about a third of the free space in an image."""
LEFT_OUT = frozenset({".git", "autom4te.cache", "__pycache__"})
"""Names of folders that are not copied to a machine."""
COPY_DEADLINE_S = 300.0
"""Time limit in seconds for copying a suite to a machine."""
_MISSING = re.compile(r"^\s*(\S+) => not found", re.MULTILINE)
_VERSION = re.compile(r": (\S+): version [`'](\S+)' not found")


class Target(Machine, Protocol):
    """A machine whose commands also accept bytes on standard input."""

    def run(
        self, argv: Sequence[str], *, stdin: str | bytes | None = None, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> Completed:
        """Run a command, and return its output and status."""

    def succeed(
        self, argv: Sequence[str], *, stdin: str | bytes | None = None, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> str:
        """Run a command that must end with status 0, and return its standard output."""


def passed(name: str) -> SuiteOutcome:
    """Return the outcome of one test that passed."""
    return SuiteOutcome(passed=(name,))


def failed(name: str, reason: str) -> SuiteOutcome:
    """Return the outcome of one test that failed."""
    return SuiteOutcome(failed=(CaseResult(name=name, reason=reason),))


def skipped(name: str, reason: str) -> SuiteOutcome:
    """Return the outcome of one test that was skipped."""
    return SuiteOutcome(skipped=(CaseResult(name=name, reason=reason),))


def unknown(name: str, reason: str) -> SuiteOutcome:
    """Return the outcome of one test whose result is unknown."""
    return SuiteOutcome(unknown=(CaseResult(name=name, reason=reason),))


def joined(outcomes: Iterable[SuiteOutcome]) -> SuiteOutcome:
    """Return one outcome with the tests of several outcomes."""
    every = list(outcomes)
    return SuiteOutcome(
        passed=tuple(name for one in every for name in one.passed),
        failed=tuple(case for one in every for case in one.failed),
        skipped=tuple(case for one in every for case in one.skipped),
        unknown=tuple(case for one in every for case in one.unknown),
    )


def tail(text: str, length: int = 300) -> str:
    """Return the last ``length`` characters of a tool's output, as one line."""
    words = " ".join(text.split())
    return words[-length:] or "no output"


class SuitePlace(State):
    """The paths and addresses of a stack with which a suite runs on one client."""

    path: str
    """Path of the suite's program or folder in the client."""
    directory: str
    """Path of an empty directory on the mount, for this suite only."""
    mount: str
    """Path of the mount point in the client."""
    server: str
    """The server's address."""
    export: str
    """The path that the server exports."""
    vers: str
    """The mount's NFS version, for example 4.2."""

    @property
    def exported(self) -> str:
        """Path of the suite's directory on the server."""
        return f"{self.export.rstrip('/')}/{self.directory.removeprefix(self.mount).strip('/')}"


class SuiteStep(State):
    """One command of a suite; its output is parsed separately."""

    name: str
    argv: tuple[str, ...]
    directory: str
    """Working directory of the command."""
    environment: dict[str, str] = Field(default_factory=dict)
    """Additional environment variables of the command."""

    @property
    def command(self) -> tuple[str, ...]:
        """The command line, which sets the directory and environment by env(1)."""
        settings = (f"{name}={value}" for name, value in self.environment.items())
        return ("env", f"--chdir={self.directory}", *settings, *self.argv)


class Suite(Spec):
    """Base class of the suites: a suite with its settings. A subclass has the suite's name as default of ``suite``."""

    programs: ClassVar[tuple[str, ...]] = ()
    """Possible names of the suite's program; empty if the suite is a folder."""
    entries: ClassVar[tuple[str, ...]] = ()
    """Paths that exist in the folder of a built suite."""
    remedy: ClassVar[str]
    """How to get the suite, for error messages."""
    directories: ClassVar[tuple[str, ...]] = ()
    """Directories that must exist in the client; `run_suite` creates them."""

    suite: str
    path: str | None = None
    """Path of the program or the folder, on the host or in the machine. None: see `host_path`."""
    deadline_s: float = Field(default=600.0, gt=0)
    """Time limit in seconds of each command."""

    @abstractmethod
    def steps(self, place: SuitePlace) -> tuple[SuiteStep, ...]:
        """Return the commands of the suite, in their order.

        Raises:
            RequestError: the suite has no test for these settings on this mount.
        """

    @abstractmethod
    def parse(self, name: str, ended: Completed) -> SuiteOutcome:
        """Return the results of the tests in the output of the step ``name``."""

    def built(self) -> Path | None:
        """Build the suite on this host at the first call; return its path, or None if raidproof cannot build it.

        Raises:
            RequirementMissing: this host lacks what the build needs.
            RigError: the build failed.
        """
        return None

    def compare(self, client: Machine, server: Machine, place: SuitePlace) -> SuiteOutcome:  # noqa: ARG002
        """Compare the suite's files on the client with those on the server; the default compares nothing."""
        return SuiteOutcome()


def variable_of(spec: Suite) -> str:
    """Return the name of the environment variable for the path of a suite on this host."""
    return f"RAIDPROOF_SUITE_{spec.suite.upper()}"


def host_path(spec: Suite, paths: Mapping[str, str] = {}) -> Path | None:
    """Return the path of the suite on this host; None if this host does not have the suite.

    The path comes from the suite's settings, from ``paths`` (by name of the suite, ``--suite-path``), from the
    environment variable (`variable_of`), or from a search of PATH, in this order.

    Raises:
        RequestError: the path does not exist, or is not a built suite.
    """
    given = paths.get(spec.suite) or os.environ.get(variable_of(spec))
    if spec.path is not None or given:
        path = Path(spec.path or given or "").expanduser()
        if path.exists():
            return _checked(spec, path)
        if spec.path is not None:
            return None  # the path may exist in the machine
        raise RequestError(f"{spec.suite}: the path {path} does not exist", remedy=spec.remedy)
    found = (shutil.which(name) for name in spec.programs)
    return next((Path(one) for one in found if one), None)


def _checked(spec: Suite, path: Path) -> Path:
    if spec.programs and not (path.is_file() and os.access(path, os.X_OK)):
        raise RequestError(f"{spec.suite}: {path} is not an executable file", remedy=spec.remedy)
    if missing := [name for name in spec.entries if not (path / name).exists()]:
        raise RequestError(f"{spec.suite}: the folder {path} lacks {', '.join(missing)}", remedy=spec.remedy)
    return path


def packed(path: Path) -> bytes:
    """Return a tar archive of a program or a folder.

    Raises:
        RequestError: the files have more than `LARGEST` bytes.
    """
    files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file() and not one.is_symlink()]
    size = sum(one.stat().st_size for one in files if not LEFT_OUT & {*one.relative_to(path.parent).parts})
    if size > LARGEST:
        raise RequestError(
            f"{path} has {format_size(size)}, more than the limit of {format_size(LARGEST)} for a copy to a machine",
            remedy="strip the programs, remove sources and objects, or install the suite in the image",
        )
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.add(path.resolve() if path.is_file() else path, path.name, filter=_wanted)
    return stream.getvalue()


def _wanted(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return None if LEFT_OUT & {*Path(entry.name).parts} else entry


def install(spec: Suite, machine: Target, paths: Mapping[str, str] = {}) -> str:
    """Install the suite in the machine, unless the machine has it, and return the suite's path in the machine.

    Raises:
        RequirementMissing: neither host nor machine has the suite, or the machine lacks libraries of its programs.
        RequestError: the requested path does not exist, or is not a built suite.
    """
    if (source := host_path(spec, paths)) is None:
        if (path := _in_machine(spec, machine)) is not None:
            return path
        source = _built_here(spec, machine)
    content = packed(source)
    home = f"{DIRECTORY}/{spec.suite}-{hashlib.sha256(content).hexdigest()[:16]}"
    path = f"{home}/{source.name}"
    if not machine.run(["test", "-e", f"{home}/.complete"]).ok:
        machine.succeed(["mkdir", "-p", home])
        machine.succeed(["tar", "-xf", "-", "-C", home], stdin=content, deadline_s=COPY_DEADLINE_S)
        machine.succeed(["touch", f"{home}/.complete"])
    require_libraries(machine, [path] if spec.programs else [f"{path}/{name}" for name in spec.entries])
    return path


def _in_machine(spec: Suite, machine: Target) -> str | None:
    if spec.path is not None:
        if machine.run(["test", "-e", spec.path]).ok:
            return spec.path
        raise RequirementMissing(
            f"{spec.suite}: the path {spec.path} exists neither on this host nor in {machine.name}"
        )
    for name in spec.programs:
        if (found := machine.run(["command", "-v", name])).ok:
            return found.stdout.strip()
    return None


def _built_here(spec: Suite, machine: Target) -> Path:
    if (built := spec.built()) is not None:
        return built
    raise RequirementMissing(
        f"neither this host nor the image of {machine.name} has the suite {spec.suite}",
        remedy=f"{spec.remedy}; then use --suite-path {spec.suite}=PATH",
    )


def parse_ldd(text: str) -> tuple[str, ...]:
    """Return what is missing by the output of ldd(1): libraries, and symbol versions that a library is too old for."""
    return tuple(dict.fromkeys([*_MISSING.findall(text), *(f"{name} {of}" for name, of in _VERSION.findall(text))]))


def require_libraries(machine: Target, programs: Sequence[str]) -> None:
    """Check that a machine has the libraries of programs; scripts, folders and static programs need none.

    Raises:
        RequirementMissing: libraries are missing.
    """
    ended = machine.run(["ldd", *programs])
    if missing := parse_ldd(f"{ended.stdout}\n{ended.stderr}"):
        raise RequirementMissing(
            f"{machine.name} lacks libraries of the suite: {', '.join(missing)}",
            remedy="link the suite statically, or build it on the distribution of the machine",
        )


class SuiteRun(State):
    """The results of one run of a suite."""

    outcome: SuiteOutcome
    seconds: float
    path: str
    """Path of the suite in the machine; the name of the folder contains a digest of the copied archive."""
    commands: tuple[tuple[str, ...], ...]
    output: dict[str, str] = Field(default_factory=dict, exclude=True)
    """Standard output and standard error of each step; stored as files beside the record."""


def run_suite(
    spec: Suite,
    client: Target,
    server: Machine,
    *,
    mount: str,
    export: str,
    vers: str,
    paths: Mapping[str, str] = {},
) -> SuiteRun:
    """Run a suite on a client. If a step exceeds its time limit, its result and those of later steps are unknown.

    Raises:
        RequirementMissing: neither host nor client has the suite, or it cannot run on the client.
        RequestError: the suite does not support this mount.
        RigError: a command of raidproof on the client failed.
    """
    place = SuitePlace(
        path=install(spec, client, paths),
        directory=own_directory(client, mount, spec.suite),
        mount=mount,
        server=server.address,
        export=export,
        vers=vers,
    )
    steps = spec.steps(place)
    client.succeed(["rm", "-rf", place.directory])
    client.succeed(["mkdir", "-p", "-m", "0777", place.directory, *spec.directories])
    begun = now_ns()
    outcomes: list[SuiteOutcome] = []
    output: dict[str, str] = {}
    for number, step in enumerate(steps):
        try:
            ended = run_limited(client, step.command, spec.deadline_s)
        except DeadlineExceeded as error:
            outcomes += [unknown(step.name, str(error)), *_not_run(steps[number + 1 :])]
            break
        output[step.name] = f"{ended.stdout}{ended.stderr}\nstatus {ended.status}\n"
        outcomes.append(spec.parse(step.name, ended))
    seconds = (now_ns() - begun) / 1e9
    if not joined(outcomes).unknown:
        outcomes.append(spec.compare(client, server, place))
    commands = tuple(step.command for step in steps)
    return SuiteRun(outcome=joined(outcomes), seconds=seconds, path=place.path, commands=commands, output=output)


def _not_run(steps: tuple[SuiteStep, ...]) -> list[SuiteOutcome]:
    return [unknown(step.name, "not run, because an earlier step exceeded its time limit") for step in steps]
