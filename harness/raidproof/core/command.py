"""The one door to a program on this host: argument lists, a deadline, and one report of a failure."""

import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from raidproof.core.errors import DeadlineExceeded, RequirementMissing, RigError
from raidproof.core.host_packages import remedy_for

DEFAULT_DEADLINE_S = 60.0


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
        RequirementMissing: there is no such program.
        DeadlineExceeded: it ran too long and was ended.
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
        CommandFailed: it ended otherwise; also everything that `run` raises.
    """
    completed = run(argv, stdin=stdin, environment=environment, deadline_s=deadline_s)
    if not completed.ok:
        raise CommandFailed(completed)
    return completed.stdout
