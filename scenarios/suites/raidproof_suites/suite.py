"""A suite: how it is found and installed on a client, its commands, and how they are run and their results parsed."""

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
"""Folder in the machine; it disappears when the lab ends."""
LARGEST = 256 * MIB
"""Bytes of a suite that may be copied: the image's file system has about three times as much room."""
LEFT_OUT = frozenset({".git", "autom4te.cache", "__pycache__"})
COPY_DEADLINE_S = 300.0
_MISSING = re.compile(r"^\s*(\S+) => not found", re.MULTILINE)
_VERSION = re.compile(r": (\S+): version [`'](\S+)' not found")


class Target(Machine, Protocol):
    """A machine whose commands also accept bytes on standard input."""

    def run(
        self, argv: Sequence[str], *, stdin: str | bytes | None = None, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> Completed:
        """Run a command to its end, whatever its status."""

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
    """Return the outcome of one test that does not apply."""
    return SuiteOutcome(skipped=(CaseResult(name=name, reason=reason),))


def unknown(name: str, reason: str) -> SuiteOutcome:
    """Return the outcome of one test whose result is unknown."""
    return SuiteOutcome(unknown=(CaseResult(name=name, reason=reason),))


def joined(outcomes: Iterable[SuiteOutcome]) -> SuiteOutcome:
    """Return the tests of several outcomes as one outcome."""
    every = list(outcomes)
    return SuiteOutcome(
        passed=tuple(name for one in every for name in one.passed),
        failed=tuple(case for one in every for case in one.failed),
        skipped=tuple(case for one in every for case in one.skipped),
        unknown=tuple(case for one in every for case in one.unknown),
    )


def tail(text: str, length: int = 300) -> str:
    """Return the last ``length`` characters of a tool's output, on one line."""
    words = " ".join(text.split())
    return words[-length:] or "no output"


class SuitePlace(State):
    """The parts of the stack that a suite needs to know."""

    path: str
    """The suite's program or folder in the machine."""
    directory: str
    """An empty directory on the mount, for this suite only."""
    mount: str
    """The mount point."""
    server: str
    """The server's address."""
    export: str
    """The path that the server exports."""
    vers: str
    """The mount's NFS version, as 3 or 4.2."""

    @property
    def exported(self) -> str:
        """The suite's directory on the server."""
        return f"{self.export.rstrip('/')}/{self.directory.removeprefix(self.mount).strip('/')}"


class SuiteStep(State):
    """One command of a suite; its result is judged separately."""

    name: str
    argv: tuple[str, ...]
    directory: str
    """Working directory of the command."""
    environment: dict[str, str] = Field(default_factory=dict)

    @property
    def command(self) -> tuple[str, ...]:
        """The command in its directory and environment."""
        settings = (f"{name}={value}" for name, value in self.environment.items())
        return ("env", f"--chdir={self.directory}", *settings, *self.argv)


class Suite(Spec):
    """A suite with its settings. A subclass is one suite; its default for ``suite`` is the name."""

    programs: ClassVar[tuple[str, ...]] = ()
    """Names of the program; empty if the suite is a folder."""
    entries: ClassVar[tuple[str, ...]] = ()
    """Files that exist in the folder of a built suite."""
    remedy: ClassVar[str]
    """How to get the suite, for a message."""
    directories: ClassVar[tuple[str, ...]] = ()
    """Directories that must exist in the client."""

    suite: str
    path: str | None = None
    """The program or the folder, on the host or in the machine; None: see `host_path`."""
    deadline_s: float = Field(default=600.0, gt=0)
    """Seconds for each command."""

    @abstractmethod
    def steps(self, place: SuitePlace) -> tuple[SuiteStep, ...]:
        """Return the commands.

        Raises:
            RequestError: the suite has no test for these settings on this mount.
        """

    @abstractmethod
    def parse(self, name: str, ended: Completed) -> SuiteOutcome:
        """Parse the output of the command with this name."""

    def built(self) -> Path | None:
        """Build the suite on this host, once, and return its path; None if raidproof cannot build it.

        Raises:
            RequirementMissing: this host lacks what the build needs.
            RigError: the build failed.
        """
        return None

    def compare(self, client: Machine, server: Machine, place: SuitePlace) -> SuiteOutcome:  # noqa: ARG002
        """Compare what the suite has left on the client with what the server has; by default nothing."""
        return SuiteOutcome()


def variable_of(spec: Suite) -> str:
    """Return the environment variable with the path of a suite on this host."""
    return f"RAIDPROOF_SUITE_{spec.suite.upper()}"


def host_path(spec: Suite, paths: Mapping[str, str] = {}) -> Path | None:
    """Return the path of the suite on this host: from the request, the user's settings, or PATH.

    ``paths`` are the user's settings by name of the suite; they take precedence over the environment variable.

    Raises:
        RequestError: the path does not exist, or is not that suite after its build.
    """
    said = paths.get(spec.suite) or os.environ.get(variable_of(spec))
    if spec.path is not None or said:
        path = Path(spec.path or said or "").expanduser()
        if path.exists():
            return _checked(spec, path)
        if spec.path is not None:
            return None  # the path may exist in the machine
        raise RequestError(f"{spec.suite}: there is no {path}", remedy=spec.remedy)
    found = (shutil.which(name) for name in spec.programs)
    return next((Path(one) for one in found if one), None)


def _checked(spec: Suite, path: Path) -> Path:
    if spec.programs and not (path.is_file() and os.access(path, os.X_OK)):
        raise RequestError(f"{spec.suite}: {path} is no program", remedy=spec.remedy)
    if missing := [name for name in spec.entries if not (path / name).exists()]:
        raise RequestError(f"{spec.suite}: {path} has no {', '.join(missing)}", remedy=spec.remedy)
    return path


def packed(path: Path) -> bytes:
    """Return a program or a folder as a tar archive.

    Raises:
        RequestError: it is larger than the limit.
    """
    files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file() and not one.is_symlink()]
    size = sum(one.stat().st_size for one in files if not LEFT_OUT & {*one.relative_to(path.parent).parts})
    if size > LARGEST:
        raise RequestError(
            f"{path} has {format_size(size)}, and at most {format_size(LARGEST)} are copied into a machine",
            remedy="strip its programs, leave out sources and objects, or put it into the image",
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
    """Install the suite in the machine if it is missing, and return its path there.

    Raises:
        RequirementMissing: the suite is nowhere, or its programs need libraries that the machine does not have.
        RequestError: the path that the user gave is not the suite.
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
        raise RequirementMissing(f"{spec.suite}: neither this host nor {machine.name} has {spec.path}")
    for name in spec.programs:
        if (found := machine.run(["command", "-v", name])).ok:
            return found.stdout.strip()
    return None


def _built_here(spec: Suite, machine: Target) -> Path:
    if (built := spec.built()) is not None:
        return built
    raise RequirementMissing(
        f"{spec.suite} is neither on this host nor in {machine.name}'s image",
        remedy=f"{spec.remedy}; then say where: --suite-path {spec.suite}=PATH",
    )


def parse_ldd(text: str) -> tuple[str, ...]:
    """Parse what ldd did not find: libraries, and versions of symbols that a library is too old for."""
    return tuple(dict.fromkeys([*_MISSING.findall(text), *(f"{name} {of}" for name, of in _VERSION.findall(text))]))


def require_libraries(machine: Target, programs: Sequence[str]) -> None:
    """Check that programs can be loaded; scripts, folders and static programs need nothing.

    Raises:
        RequirementMissing: names every missing library.
    """
    said = machine.run(["ldd", *programs])
    if missing := parse_ldd(f"{said.stdout}\n{said.stderr}"):
        raise RequirementMissing(
            f"{machine.name} has not what the suite was linked with: {', '.join(missing)}",
            remedy="link it statically, or build it on the machine's own distribution",
        )


class SuiteRun(State):
    """The output of a run of a suite, and its duration."""

    outcome: SuiteOutcome
    seconds: float
    path: str
    """Path of the suite in the machine; the name of its folder contains the digest of what was copied."""
    commands: tuple[tuple[str, ...], ...]
    output: dict[str, str] = Field(default_factory=dict, exclude=True)
    """Output of each step, standard error last; kept as files beside the record."""


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
    """Run a suite to its end; a step that exceeds its time is unknown, and the next does not begin.

    Raises:
        RequirementMissing: the suite is nowhere, or cannot run in the machine.
        RequestError: the suite does not support this mount.
        RigError: the machine failed.
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
    return [unknown(step.name, "not begun: one before it did not end") for step in steps]
