# No pathlib, no subprocess: on the minimal Python of a guest each import takes time.
"""An NFS server in user space in a checker's machine: one process for each crash state that is read through it.

The harness copies this file into machines, into the folder of check_agent.py: standard library only.

The process starts after the file system of a state was mounted, and is killed after the read, so that it keeps no open
file, no cache and no state of clients of an earlier state.
"""

import os
import select
import shutil
import signal
from collections.abc import Sequence

POLL_S = 0.02
"""Interval in seconds at which the log of the process is read until the process serves."""


class ServerProcess:
    """A server in user space that exports the mounted file system from its start on.

    ``start``: the command, which must stay in the foreground. ``log``: the path of its log. ``ready``: texts that are
    all in the log of this start once the server accepts requests and its grace period has ended. ``records``: the
    directory with the records of NFSv4 clients, which each start gets empty.
    """

    def __init__(self, start: Sequence[str], log: str, ready: Sequence[str], records: str) -> None:
        self._start = list(start)
        self._log = log
        self._ready = list(ready)
        self._records = records
        self._pid = 0
        null = os.open("/dev/null", os.O_RDWR)
        self._files = [(os.POSIX_SPAWN_DUP2, null, fd) for fd in range(3)]

    def serve(self) -> str:
        """Start the server and wait until it serves; return the problem if it ends, else an empty text.

        There is no time limit: the harness has one for each request.

        Raises:
            OSError: the command cannot be started.
        """
        self.release()
        shutil.rmtree(self._records, ignore_errors=True)
        os.makedirs(self._records)
        if os.path.exists(self._log):
            os.truncate(self._log, 0)
        self._pid = os.posix_spawnp(self._start[0], self._start, os.environ, file_actions=self._files)
        while not self._serves():
            ended, status = os.waitpid(self._pid, os.WNOHANG)
            if ended:
                self._pid = 0
                return "%s ended at its start with status %d" % (self._start[0], os.waitstatus_to_exitcode(status))
            select.select([], [], [], POLL_S)
        return ""

    def release(self) -> None:
        """Kill the server, if it runs: it then has no file of the state open."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0

    def _serves(self) -> bool:
        if not os.path.exists(self._log):
            return False
        with open(self._log, errors="replace") as file:
            said = file.read()
        return all(text in said for text in self._ready)


SERVICE = ServerProcess
"""The class that `check_agent` makes of this module."""
