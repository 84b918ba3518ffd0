"""Run programs on this host, report their failures, and name the packages that install missing programs."""

import os
import shlex
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from raidproof.core.errors import DeadlineExceeded, RequirementMissing, RigError
from raidproof.core.package_manager import instruction, of_this_host

DEFAULT_DEADLINE_S = 60.0
"""Seconds after which a command is ended if its caller sets no deadline."""

ENDING_S = 30.0
"""Seconds between SIGTERM and SIGKILL for a program that `follow` ends."""
NOT_FOUND = 127
"""Exit status of sh(1) for a command that does not exist."""
_FORWARD_SIGTERM = """\
trap 'trap "" TERM; kill -TERM 0; wait "$child"; exit 143' TERM
"$@" &
child=$!
wait "$child"
"""
"""Shell script that runs a program and forwards SIGTERM to every process of the script's process group.

Without the script, only the program itself would receive SIGTERM; mmdebstrap would then wait for its child processes
instead of ending them.
"""

FOLDER = Path(__file__).resolve().parents[1] / "vms"
HOST, WIRE, QEMU, VAGRANT, KERNEL = (
    FOLDER / f"host-packages{suffix}.txt" for suffix in ("", "-wire", "-qemu", "-vagrant", "-kernel")
)
"""Files that list packages for this host: for any lab, NFS captures, QEMU, Vagrant, and kernel builds."""


@dataclass(frozen=True)
class Completed:
    """The result of a command that ended, on this host or in a machine."""

    argv: tuple[str, ...]
    status: int
    """Exit status; negative if a signal ended a program of this host (`subprocess.Popen.returncode`)."""
    stdout: str
    stderr: str
    where: str = "host"
    """Name of the machine that ran the command, or ``host``."""

    @property
    def ok(self) -> bool:
        """Whether the command ended with status 0."""
        return self.status == 0


class CommandFailed(RigError):
    """A command ended with a status that its caller did not expect."""

    def __init__(self, completed: Completed) -> None:
        output = (completed.stderr.strip() or completed.stdout.strip())[-2000:]
        super().__init__(
            f"{completed.where}: status {completed.status} from: {shlex.join(completed.argv)}"
            + (f"\n{output}" if output else "")
        )
        self.completed = completed


def run(
    argv: Sequence[str | Path],
    *,
    stdin: str | None = None,
    environment: Mapping[str, str] | None = None,
    deadline_s: float = DEFAULT_DEADLINE_S,
) -> Completed:
    """Run a program on this host, and return its result, whatever its exit status.

    Raises:
        RequirementMissing: the program is not installed.
        DeadlineExceeded: the program ran longer than ``deadline_s`` seconds and was ended.
    """
    words = tuple(map(str, argv))
    try:
        ended = subprocess.run(
            words,
            input=stdin if stdin is not None else "",
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=deadline_s,
            check=False,
        )
    except FileNotFoundError as error:
        raise RequirementMissing(f"host tool not found: {words[0]}", remedy=remedy_for(words[0])) from error
    except subprocess.TimeoutExpired as error:
        raise DeadlineExceeded(f"host: still running after {deadline_s:g} s: {shlex.join(words)}") from error
    return Completed(words, ended.returncode, ended.stdout, ended.stderr)


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


def succeed(
    argv: Sequence[str | Path],
    *,
    stdin: str | None = None,
    environment: Mapping[str, str] | None = None,
    deadline_s: float = DEFAULT_DEADLINE_S,
) -> str:
    """Run a program on this host that must end with status 0, and return its standard output.

    Raises:
        CommandFailed: the program ended with another status.
        RequirementMissing, DeadlineExceeded: as for `run`.
    """
    completed = run(argv, stdin=stdin, environment=environment, deadline_s=deadline_s)
    if not completed.ok:
        raise CommandFailed(completed)
    return completed.stdout


def follow(
    argv: Sequence[str | Path],
    on_line: Callable[[str], None],
    *,
    environment: Mapping[str, str],
    pass_fds: Sequence[int] = (),
    folder: Path | None = None,
    deadline_s: float,
) -> Completed:
    """Run a program on this host, and pass each line of its output to ``on_line`` as soon as it is printed.

    ``folder`` is the working folder of the program; None: that of this process.

    If this process is interrupted or ends, the program receives SIGTERM; after an interruption, this process waits up
    to ``ENDING_S`` for the end of the program.

    Raises:
        RequirementMissing: the program is not installed.
        DeadlineExceeded: the program ran longer than ``deadline_s`` seconds and was ended.
    """
    program = tuple(map(str, argv))
    words = ("setpriv", "--pdeathsig", "TERM", "--", "sh", "-c", _FORWARD_SIGTERM, "sh", *program)
    try:
        # A new session (setsid(2)): Ctrl-C reaches only this process, which sends the program one SIGTERM.
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            pass_fds=pass_fds,
            cwd=folder,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise RequirementMissing(f"host tool not found: {words[0]}", remedy=install_named(["util-linux"])) from error
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        process.terminate()

    timer = threading.Timer(deadline_s, expire)
    timer.daemon = True
    timer.start()
    lines: list[str] = []
    try:
        assert process.stdout is not None  # noqa: S101  stdout=PIPE
        for line in process.stdout:
            lines.append(line)
            on_line(line.rstrip())
        status = process.wait()
    except BaseException:
        _end(process)
        raise
    finally:
        timer.cancel()
    if status == NOT_FOUND:
        raise RequirementMissing(f"host tool not found: {program[0]}", remedy=remedy_for(program[0]))
    if expired.is_set():
        raise DeadlineExceeded(f"host: still running after {deadline_s:g} s: {program[0]}")
    return Completed(program, status, "".join(lines), "")


def _end(process: subprocess.Popen[str]) -> None:
    """Send SIGTERM to a program that `follow` started; after ``ENDING_S``, kill its process group."""
    process.terminate()
    try:
        process.communicate(timeout=ENDING_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@dataclass(frozen=True)
class HostPackage:
    """A package that this host needs, from one line of a package list."""

    names: tuple[str, ...]
    """Names of alternative packages; each release of a distribution has one of them."""
    command: str | None
    """The command that each alternative package provides; None if the list names no command."""
    why: str
    """What the package does for raidproof: a clause for users that follows the package's name."""


def parse_host_packages(text: str) -> list[HostPackage]:
    """Return the packages of a list with lines ``package|alternative  command  # why``; ``-`` stands for no command.

    Raises:
        RigError: a line does not have two columns before the comment.
    """
    packages = []
    for number, line in enumerate(text.splitlines(), 1):
        content, _, why = line.partition("#")
        match content.split():
            case []:
                continue
            case [names, command]:
                packages.append(HostPackage(tuple(names.split("|")), None if command == "-" else command, why.strip()))
            case _:
                raise RigError(f"{HOST.name}:{number}: expected a package and a command, found {line!r}")
    return packages


def install_line(packages: Iterable[HostPackage]) -> str:
    """Return the shell command that installs packages; the command names every alternative of each package."""
    return install_named(name for package in packages for name in package.names)


def install_named(names: Iterable[str]) -> str:
    """Return the shell command that installs packages on this host; ``names``: the names of the packages in Debian."""
    return instruction(names, of_this_host())


def install_list(path: Path) -> str:
    """Return the shell command that installs all packages of the list in a file."""
    return install_line(parse_host_packages(path.read_text()))


def remedy_for(program: str) -> str:
    """Return the shell command that installs a program; if no list has the program, refer to ``raidproof doctor``."""
    for path in (HOST, QEMU, WIRE, VAGRANT, KERNEL):
        found = [one for one in parse_host_packages(path.read_text()) if one.command == program]
        if found:
            return install_line(found)
    return "run ./raidproof doctor, which prints what this host lacks"
