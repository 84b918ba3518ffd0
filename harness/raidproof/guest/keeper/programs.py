# No pathlib: a machine may have a minimal Python.
"""Runs programs, starts daemons, and finds and ends processes."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

DEADLINE_S = 60.0
"""Default time limit of a program in seconds."""
END_MS = 10_000
"""Milliseconds to wait for the end of a process after a signal."""
LEAVE_S = 5.0
"""Seconds to wait until a daemon detaches: until the started process ends."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def run(argv: list[str], deadline_s: float = DEADLINE_S) -> subprocess.CompletedProcess[str]:
    """Run a program; return status 127 if the program cannot start, and 124 if it does not end within the deadline."""
    environment = {**os.environ, "LC_ALL": "C", "PATH": PATH}
    try:
        return subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=deadline_s,
            env=environment,
            check=False,
        )
    except OSError as error:
        return subprocess.CompletedProcess(argv, 127, "", str(error))
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(argv, 124, "", f"still running after {deadline_s:g} s")


def must(argv: list[str], failures: list[str], deadline_s: float = DEADLINE_S) -> bool:
    """Run a program, and return whether it ended with status 0; if not, append a message to ``failures``."""
    ended = run(argv, deadline_s)
    if ended.returncode:
        failures.append(
            f"status {ended.returncode} from {' '.join(argv)}: {(ended.stderr or ended.stdout).strip()[-500:]}"
        )
    return ended.returncode == 0


def launch(argv: list[str], failures: list[str]) -> None:
    """Start a daemon, and wait until it detaches, `LEAVE_S` at most; append a message to ``failures`` on an error."""
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "PATH": PATH},
        )
    except OSError as error:
        failures.append(f"cannot start {' '.join(argv)}: {error}")
        return
    with suppress(subprocess.TimeoutExpired):
        process.wait(LEAVE_S)


def pids() -> list[int]:
    """Return the ids of all processes except PID 1, this process and its parents."""
    mine, pid = set(), os.getpid()
    while pid > 1:
        mine.add(pid)
        with open(f"/proc/{pid}/stat") as file:
            pid = int(file.read().rpartition(")")[2].split()[1])
    return [int(name) for name in os.listdir("/proc") if name.isdecimal() and int(name) not in {1, *mine}]


def daemons(names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the running daemons with these names: process id, arguments, and whether a systemd unit started them."""
    found = []
    for pid in pids():
        with suppress(OSError):
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                argv = [word.decode(errors="surrogateescape") for word in file.read().split(b"\0")[:-1]]
            with open(f"/proc/{pid}/cgroup") as file:
                unit = ".service" in file.read().rpartition("/")[2]
            if argv and os.path.basename(argv[0]) in names:
                found.append({"name": os.path.basename(argv[0]), "pid": pid, "argv": argv, "unit": unit})
    return sorted(found, key=lambda one: one["pid"])


def users(folders: list[str]) -> Iterator[int]:
    """Yield the ids of processes with an open file, working directory, root or program in one of the folders."""
    for pid in pids():
        with suppress(OSError):
            held = [f"/proc/{pid}/cwd", f"/proc/{pid}/root", f"/proc/{pid}/exe"]
            held += [f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]
            if any(_inside(path, folders) for path in held):
                yield pid


def _inside(path: str, folders: list[str]) -> bool:
    try:
        target = os.readlink(path)
    except OSError:
        return False
    return any(target == folder or target.startswith(f"{folder}/") for folder in folders)


def end(pid: int, how: signal.Signals) -> bool:
    """Send the signal ``how`` to a process, and wait `END_MS` for its end; return whether the process ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, how)
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(END_MS))
    finally:
        os.close(descriptor)
