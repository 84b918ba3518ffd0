"""Ctrl-C and SIGKILL end a client on a terminal with all of its local workers and their processes."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import psutil
import pytest

from raidproof.core.errors import Status
from raidproof.core.waiting import Deadline, wait_until
from tests.cluster.sleeping_job import SLEEP

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "from tests.cluster import sleeping_job; sleeping_job.main()"
SETSID = "/usr/bin/setsid"
MARK = "RAIDPROOF_TEST"
WITHIN_S, LOOK_S = 60.0, 0.2


def read(terminal: int) -> None:
    """Read what is printed, so that the terminal does not block."""
    try:
        while os.read(terminal, 4096):
            pass
    except OSError:
        return  # no process has the terminal any more


def processes(mark: str) -> list[list[str]]:
    """Return the command lines of the processes with a mark in their environment."""
    return [
        one.info["cmdline"]
        for one in psutil.process_iter(["cmdline", "environ", "status"])
        if one.info["status"] != psutil.STATUS_ZOMBIE and (one.info["environ"] or {}).get(MARK) == mark
    ]


def ctrl_c(_process: "subprocess.Popen[bytes]", terminal: int) -> None:
    # The terminal sends SIGINT to the client and to its workers.
    os.write(terminal, b"\x03")


def kill(process: "subprocess.Popen[bytes]", _terminal: int) -> None:
    process.kill()


@pytest.mark.parametrize(("ends", "status"), [(ctrl_c, Status.INTERRUPTED), (kill, -signal.SIGKILL)])
def test_no_process_is_left(
    ends: Callable[["subprocess.Popen[bytes]", int], None], status: int, tmp_path: Path
) -> None:
    mark = str(tmp_path)
    master, slave = pty.openpty()
    paths = [str(ROOT), str(ROOT / "harness")]
    environment = {**os.environ, MARK: mark, "PYTHONPATH": os.pathsep.join(paths), "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        [SETSID, "--ctty", sys.executable, "-P", "-c", PROGRAM],
        stdin=slave, stdout=slave, stderr=slave, env=environment,
    )  # fmt: skip
    os.close(slave)
    reader = Thread(target=read, args=(master,))
    reader.start()
    try:
        begun = Deadline.after(WITHIN_S)
        wait_until(lambda: processes(mark).count(SLEEP) == 2, begun, "requests of both workers", interval_s=LOOK_S)
        ends(process, master)
        assert process.wait(WITHIN_S) == status
        wait_until(lambda: not processes(mark), Deadline.after(WITHIN_S), "the end of all", interval_s=LOOK_S)
        assert not list(tmp_path.glob("raidproof-scratch-round-*")), "folders of requests"
    finally:
        process.kill()
        process.wait()
        reader.join(WITHIN_S)
        os.close(master)
