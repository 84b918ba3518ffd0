"""A program on this host that takes long: its lines are shown as they come, and it is ended politely."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from raidproof.core.command import Completed
from raidproof.core.errors import DeadlineExceeded, RequirementMissing
from raidproof.core.host_packages import install_named, remedy_for

ENDING_S = 30.0
NOT_FOUND = 127
_GROUP = """\
trap 'trap "" TERM; kill -TERM 0; wait "$child"; exit 143' TERM
"$@" &
child=$!
wait "$child"
"""
"""Runs a program and, told to stop, tells its whole process group: mmdebstrap alone would wait for its children."""


def follow(
    argv: Sequence[str | Path],
    on_line: Callable[[str], None],
    *,
    environment: Mapping[str, str],
    pass_fds: Sequence[int] = (),
    deadline_s: float,
) -> Completed:
    """Run a program to its end and hand each line that it says to ``on_line``.

    If this process is interrupted, or dies, the program is told to stop (SIGTERM) and given time to clean up.

    Raises:
        RequirementMissing: there is no such program.
        DeadlineExceeded: it ran too long and was ended.
    """
    program = tuple(map(str, argv))
    words = ("setpriv", "--pdeathsig", "TERM", "--", "sh", "-c", _GROUP, "sh", *program)
    try:
        # A session of its own: Ctrl-C reaches only us, and we pass it on once, as SIGTERM.
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
