import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from raidproof.core.command import Completed
from raidproof.core.errors import RigError
from raidproof.core.waiting import Deadline
from raidproof.guest import monitor_agent as agent
from raidproof.machine.machine import Machine
from raidproof.monitor import Monitor, parse_recording

DATA = Path(__file__).parents[1] / "data" / "monitor"
SERVER = (DATA / "linux-6.12-server-write.txt").read_text()
CLIENT = (DATA / "linux-6.12-client-write.txt").read_text()


class Command:
    def __init__(self, output: str, status: int = 0) -> None:
        self.output = output
        self.status = status
        self.ended = False
        self.closed = False

    def close_input(self) -> None:
        self.closed = True

    def wait(self, deadline: Deadline) -> Completed:
        return Completed(("agent",), self.status, self.output, "it broke", "machine")


class Watched(Machine):
    """A fake machine whose agent gives the output of a real one."""

    def __init__(self, name: str, output: str, status: int = 0) -> None:
        self.name = name
        self.boot_id = "first"
        self.command = Command(output, status)
        self.puts = 0

    def put(self, content: str | bytes, path: str) -> None:
        self.puts += 1

    def run(self, argv: Sequence[str], **_: object) -> Completed:
        return Completed(tuple(argv), 0, "", "", self.name)

    def succeed(self, argv: Sequence[str], **_: object) -> str:
        return ""

    def start_command(self, argv: Sequence[str], deadline_s: float = 1) -> Command:  # type: ignore[override]
        return self.command


def test_all_machines_are_watched() -> None:
    monitor = Monitor(Watched("server", SERVER), [Watched("client1", CLIENT)])
    with monitor.running():
        pass
    assert monitor.recordings.keys() == {"server", "client1"}
    assert not monitor.failures


def test_it_is_installed_once_a_boot() -> None:
    server = Watched("server", SERVER)
    monitor = Monitor(server, [])
    for _ in range(2):
        with monitor.running():
            pass
    assert server.puts == 1
    server.boot_id = "second"
    with monitor.running():
        pass
    assert server.puts == 2


@pytest.mark.parametrize(
    ("output", "status", "reason"),
    [("", 1, "it broke"), (SERVER[:3000], 0, "truncated"), ("", 0, "truncated")],
)
def test_a_machine_without_monitor_is_unknown_and_the_workload_continues(
    output: str, status: int, reason: str
) -> None:
    monitor = Monitor(Watched("server", output, status), [Watched("client1", CLIENT)])
    done = False
    with monitor.running():
        done = True
    assert done
    assert monitor.recordings.keys() == {"client1"}
    assert reason in monitor.failures["server"]


def test_an_agent_that_does_not_start_is_ended() -> None:
    server = Watched("server", "", 1)
    server.command.ended = True
    monitor = Monitor(server, [])
    with monitor.running():
        pass
    assert "ended" in monitor.failures["server"]
    assert server.command.closed


def test_a_machine_that_lost_its_power_is_unknown() -> None:
    server = Watched("server", SERVER)
    monitor = Monitor(server, [])
    with monitor.running():
        server.boot_id = None
    assert "power" in monitor.failures["server"]
    assert not monitor.recordings


def test_what_the_workload_raises_passes_through() -> None:
    server = Watched("server", SERVER)
    monitor = Monitor(server, [])
    with pytest.raises(RigError, match="workload"), monitor.running():
        raise RigError("the workload failed")
    assert server.command.closed
    assert monitor.recordings


def run_agent(tmp_path: Path, *, interval_s: float, limit: int) -> str:
    argv = [sys.executable, agent.__file__, str(interval_s), str(limit), str(tmp_path / "out")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        while not (tmp_path / "out").exists() or not (tmp_path / "out").stat().st_size:
            assert process.poll() is None
        process.stdin.close()
        return process.stdout.read()


def test_the_agent_ends_with_its_input_after_one_last_look(tmp_path: Path) -> None:
    seen = parse_recording(run_agent(tmp_path, interval_s=60, limit=1 << 20))
    assert len(seen.snapshots) == 2
    assert seen.last.cpu is not None
    assert seen.last.memory is not None
    assert not (tmp_path / "out").exists()


def test_the_agent_notes_what_it_cannot_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "FILES", (str(tmp_path / "missing"),))
    assert f"! {tmp_path}/missing 2\n".encode() in agent.sample()


def test_the_agent_keeps_one_character_a_byte() -> None:
    assert agent.printable("device /mnt/ä\n".encode()) == b"device /mnt/??\n"


def test_a_full_agent_takes_only_the_last_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "ticks", lambda _: iter([None, None, None]))
    printed = tmp_path / "printed"
    with printed.open("w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        agent.main(1.0, 1, str(tmp_path / "out"))
    seen = parse_recording(printed.read_text())
    assert (len(seen.snapshots), seen.left_out) == (2, 3)
