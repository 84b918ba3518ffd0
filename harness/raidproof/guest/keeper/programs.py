# A minimal Python: no pathlib.
"""Runs programs, and finds and ends processes."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

DEADLINE_S = 60.0
END_MS = 10_000
"""Milliseconds that a process gets to end."""
LEAVE_S = 5.0
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def run(argv: list[str], deadline_s: float = DEADLINE_S) -> subprocess.CompletedProcess[str]:
    """Run a program; the status is 127 if it cannot start and 124 if it does not end in time."""
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


def must(argv: list[str], said: list[str], deadline_s: float = DEADLINE_S) -> bool:
    """Run a program; append to ``said`` if it fails. Return whether it succeeded."""
    ended = run(argv, deadline_s)
    if ended.returncode:
        said.append(
            f"status {ended.returncode} from {' '.join(argv)}: {(ended.stderr or ended.stdout).strip()[-500:]}"
        )
    return ended.returncode == 0


def launch(argv: list[str], said: list[str]) -> None:
    """Start a daemon, and wait until it has left this session; return after a time limit if it never does."""
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
        said.append(f"cannot start {' '.join(argv)}: {error}")
        return
    with suppress(subprocess.TimeoutExpired):
        process.wait(LEAVE_S)


def pids() -> list[int]:
    """Return all process ids except this process and its parents."""
    mine, pid = set(), os.getpid()
    while pid > 1:
        mine.add(pid)
        with open(f"/proc/{pid}/stat") as file:
            pid = int(file.read().rpartition(")")[2].split()[1])
    return [int(name) for name in os.listdir("/proc") if name.isdecimal() and int(name) not in {1, *mine}]


def daemons(names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the running daemons of these names: process, arguments, and whether they belong to a systemd unit."""
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
    """Yield the processes that have a file open in one of the folders, or have their working directory there."""
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
    """Send a signal to a process and wait until it ends; return whether it ended."""
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
