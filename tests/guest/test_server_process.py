"""A server in user space that serves one state after the other; the server is a small shell script."""

import os
from pathlib import Path

import pytest

from raidproof.guest.server_process import ServerProcess

SERVES = """\
ls "$2" > "$1.records"
echo one > "$2/client"
echo "pid $$" >> "$1"
echo INITIALIZED >> "$1"
echo "NOT IN GRACE" >> "$1"
exec sleep 600
"""
ENDS = 'echo INITIALIZED >> "$1"\nexit 3\n'
READY = ("INITIALIZED", "NOT IN GRACE")


def made(folder: Path, script: str) -> tuple[ServerProcess, Path]:
    log, records = folder / "log", folder / "records"
    return ServerProcess(["sh", "-c", script, "sh", str(log), str(records)], str(log), READY, str(records)), log


def pid_of(log: Path) -> int:
    return int(log.read_text().split()[1])


def test_each_state_gets_a_new_process_without_records_of_the_one_before(tmp_path: Path) -> None:
    server, log = made(tmp_path, SERVES)
    pids = []
    for _ in range(2):
        assert server.serve() == ""
        pids.append(pid_of(log))
        assert (tmp_path / "log.records").read_text() == ""
        server.release()
        with pytest.raises(ProcessLookupError):
            os.kill(pids[-1], 0)
    assert pids[0] != pids[1]
    server.release()


def test_a_server_that_still_runs_ends_before_the_next_start(tmp_path: Path) -> None:
    server, log = made(tmp_path, SERVES)
    assert server.serve() == ""
    first = pid_of(log)
    assert server.serve() == ""
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)
    server.release()


def test_a_server_that_ends_before_it_serves_is_a_problem(tmp_path: Path) -> None:
    server, _ = made(tmp_path, ENDS)
    assert server.serve() == "sh ended at its start with status 3"
    server.release()


def test_the_log_of_an_earlier_start_does_not_count(tmp_path: Path) -> None:
    server, log = made(tmp_path, ENDS)
    log.write_text("INITIALIZED\nNOT IN GRACE\n")
    assert server.serve() == "sh ended at its start with status 3"
