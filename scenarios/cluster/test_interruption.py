"""Explorations on two workers of this host that Ctrl-C or SIGKILL ends: no process is left, and results are kept."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

import psutil
import pytest

from raidproof.core.errors import Status
from raidproof.core.log import logger
from raidproof.core.waiting import Deadline, wait_until
from raidproof.crash.journal import lines_of
from raidproof.record.results.names import JOURNAL
from raidproof.run.source import STEM
from scenarios.cluster.machines import LOOK_S
from scenarios.cluster.recorded import ENDED, Recorded

pytestmark = [pytest.mark.exhaustive]

STATES = 300
RUN_S, END_S, LABS_S = 400.0, 60.0, 10.0
SETSID = "/usr/bin/setsid"
CTRL_C = b"\x03"
ENTRY = (
    "import sys; from raidproof.cluster import checkers; from raidproof.cli.main import main; "
    "checkers.PROOF_EVERY = 1; sys.exit(main(sys.argv[1:]))"
)
"""The client, in which workers prove themselves after each task, so that results are kept early."""


class Client:
    """The client of a cluster on a terminal of its own, with all processes that it starts."""

    def __init__(self, process: "subprocess.Popen[bytes]", terminal: int, temporary: Path) -> None:
        self.process = process
        self.terminal = terminal
        self.temporary = temporary
        self.output = bytearray()
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        # Without any process on the terminal, read(2) fails with EIO.
        try:
            while part := os.read(self.terminal, 4096):
                self.output += part
        except OSError:
            pass

    def processes(self) -> dict[int, str]:
        """Return the command lines of the client, of its workers and of their machines, by PID."""
        return {
            process.pid: " ".join(process.info["cmdline"] or ())
            for process in psutil.process_iter(["cmdline", "environ", "status"])
            if process.info["status"] != psutil.STATUS_ZOMBIE and self._is_mine(process)
        }

    def _is_mine(self, process: psutil.Process) -> bool:
        words, environment = process.info["cmdline"] or (), process.info["environ"] or {}
        mine = str(self.temporary)
        return environment.get("TMPDIR") == mine or any(mine in word for word in words)

    def kernels(self) -> list[int]:
        """Return the PIDs of the machines of the workers."""
        return [pid for pid, words in self.processes().items() if " umid=" in words]

    def wait_for_no_process(self, within_s: float) -> None:
        """Wait until neither a worker nor a process of a lab is left."""
        try:
            what = "the end of workers and machines"
            wait_until(lambda: not self.processes(), Deadline.after(within_s), what, interval_s=LOOK_S)
        finally:
            logger.info("processes that are left: %s", self.processes())


@contextmanager
def exploring(recorded: Recorded) -> Iterator[Client]:
    """Start an exploration with two workers, and wait until results are kept while the machines work."""
    master, slave = pty.openpty()
    with TemporaryDirectory(prefix="ci-", ignore_cleanup_errors=True) as temporary:
        words = ["explore", str(recorded.run), "--cycle", recorded.cycle, "--states", str(STATES)]
        process = subprocess.Popen(
            [SETSID, "--ctty", sys.executable, "-P", "-c", ENTRY, *words, "--cluster", "local:2"],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TMPDIR": temporary},
        )
        os.close(slave)
        client = Client(process, master, Path(temporary))
        before = kept(recorded)
        try:
            wait_until(
                lambda: len(kept(recorded)) > 10 and kept(recorded) != before and client.kernels(),
                Deadline.after(RUN_S),
                "results of both workers",
                interval_s=LOOK_S,
            )
            yield client
        finally:
            logger.info("output of the client: %s", client.output.decode(errors="replace"))
            if process.poll() is None:
                process.terminate()
                process.wait(END_S)
            os.close(master)


def journal(recorded: Recorded) -> Path:
    """Return the journal of the newest exploration."""
    begun = recorded.run.glob(f"{STEM}{recorded.cycle}*/{JOURNAL}")
    return max(begun, key=lambda path: path.stat().st_mtime_ns)


def kept(recorded: Recorded) -> list[bytes]:
    """Return the complete lines of the journal: its input, and one for each state."""
    return [line for line in journal(recorded).read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


def resume(recorded: Recorded, earlier: list[bytes]) -> None:
    """Continue the exploration on a cluster; verify that it keeps the earlier results, and checks no state twice."""
    words = ["explore", str(recorded.run), "--cycle", recorded.cycle, "--states", str(STATES), "--resume"]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "raidproof", *words, "--cluster", "local:2"],
        timeout=RUN_S,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode in ENDED, done.stdout + done.stderr
    assert kept(recorded)[: len(earlier)] == earlier
    states = [line.choice for line in lines_of(journal(recorded))]
    assert len(states) == len(set(states)) == STATES


def test_ctrl_c_ends_all_processes_and_keeps_the_results(recorded: Recorded) -> None:
    with exploring(recorded) as client:
        # The terminal sends SIGINT to its foreground process group: client and workers.
        os.write(client.terminal, CTRL_C)
        assert client.process.wait(END_S) == Status.INTERRUPTED
        client.wait_for_no_process(LABS_S)
    resume(recorded, kept(recorded))


def test_machines_end_with_a_client_that_is_killed(recorded: Recorded) -> None:
    with exploring(recorded) as client:
        before = kept(recorded)
        client.process.send_signal(signal.SIGKILL)
        client.process.wait(END_S)
        client.wait_for_no_process(LABS_S)
    assert kept(recorded)[: len(before)] == before
    resume(recorded, kept(recorded))
