"""Programs on this host: how they run, how a failure is reported, and the packages that install them."""

import os
import shlex
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from raidproof.core.errors import DeadlineExceeded, RequirementMissing, RigError

DEFAULT_DEADLINE_S = 60.0

ENDING_S = 30.0
NOT_FOUND = 127
_GROUP = """\
trap 'trap "" TERM; kill -TERM 0; wait "$child"; exit 143' TERM
"$@" &
child=$!
wait "$child"
"""
"""Shell script that runs a program and forwards SIGTERM to the process group: mmdebstrap alone would wait for its
children and not end them."""

FOLDER = Path(__file__).resolve().parents[1] / "vms"
HOST, WIRE, QEMU, VAGRANT, KERNEL = (
    FOLDER / f"host-packages{suffix}.txt" for suffix in ("", "-wire", "-qemu", "-vagrant", "-kernel")
)
INSTALL = "as root: apt-get update && apt-get install --yes --no-install-recommends"
"""The launcher's command, for Debian and Ubuntu. Other distributions have these packages under other names."""


@dataclass(frozen=True)
class Completed:
    """A command that ended, on this host or in a machine."""

    argv: tuple[str, ...]
    status: int
    stdout: str
    stderr: str
    where: str = "host"

    @property
    def ok(self) -> bool:
        """Whether it ended with status 0."""
        return self.status == 0


class CommandFailed(RigError):
    """A command ended with a status that its caller did not expect."""

    def __init__(self, completed: Completed) -> None:
        said = (completed.stderr.strip() or completed.stdout.strip())[-2000:]
        super().__init__(
            f"{completed.where}: status {completed.status} from: {shlex.join(completed.argv)}"
            + (f"\n{said}" if said else "")
        )
        self.completed = completed


def run(
    argv: Sequence[str | Path],
    *,
    stdin: str | None = None,
    environment: Mapping[str, str] | None = None,
    deadline_s: float = DEFAULT_DEADLINE_S,
) -> Completed:
    """Run a program to its end, whatever its status.

    Raises:
        RequirementMissing: the program is not installed.
        DeadlineExceeded: the program exceeded ``deadline_s`` seconds and was ended.
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


def succeed(
    argv: Sequence[str | Path],
    *,
    stdin: str | None = None,
    environment: Mapping[str, str] | None = None,
    deadline_s: float = DEFAULT_DEADLINE_S,
) -> str:
    """Run a program that must end with status 0, and return its standard output.

    Raises:
        CommandFailed: the program ended with another status. All errors of `run` are raised too.
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
    deadline_s: float,
) -> Completed:
    """Run a program to its end and pass each line of its output to ``on_line``.

    If this process is interrupted or dies, the program gets SIGTERM and time to clean up.

    Raises:
        RequirementMissing: the program is not installed.
        DeadlineExceeded: the program exceeded ``deadline_s`` seconds and was ended.
    """
    program = tuple(map(str, argv))
    words = ("setpriv", "--pdeathsig", "TERM", "--", "sh", "-c", _GROUP, "sh", *program)
    try:
        # In a session of its own: Ctrl-C reaches only this process, which sends the program one SIGTERM.
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            pass_fds=pass_fds,
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
        assert process.stdout is not None  # noqa: S101  it was asked for above
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
    process.terminate()
    try:
        process.communicate(timeout=ENDING_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@dataclass(frozen=True)
class HostPackage:
    """A line of a list: alternative packages, the command that each of them provides, and the reason."""

    names: tuple[str, ...]
    command: str | None
    why: str


def parse_host_packages(text: str) -> list[HostPackage]:
    """Return the packages in lines of the form ``package|alternative  command  # why``; ``-`` means no command.

    Raises:
        RigError: a line has another form.
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
                raise RigError(f"{HOST.name}:{number}: should be a package and a command: {line!r}")
    return packages


def install_line(packages: Iterable[HostPackage]) -> str:
    """Return the shell command that installs packages; it names all alternatives, as each release has only one."""
    return install_named(name for package in packages for name in package.names)


def install_named(names: Iterable[str]) -> str:
    """Return the shell command that installs packages of these names."""
    return " ".join([INSTALL, *dict.fromkeys(names)])


def install_list(path: Path) -> str:
    """Return the shell command that installs all packages of a list."""
    return install_line(parse_host_packages(path.read_text()))


def remedy_for(program: str) -> str:
    """Return the shell command that installs a program; if no list has the program, a hint to ``raidproof doctor``."""
    for path in (HOST, QEMU, WIRE, VAGRANT, KERNEL):
        found = [one for one in parse_host_packages(path.read_text()) if one.command == program]
        if found:
            return install_line(found)
    return "./raidproof doctor says what is missing"
