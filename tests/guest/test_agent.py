"""The agent, run as a program on this host, over two pipes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.waiting import Deadline, wait_until
from raidproof.guest import agent as program
from raidproof.guest.agent import MORE, START, Frames, frame

SOURCE = Path(program.__file__).read_bytes()
OBJECTS = st.dictionaries(st.text(), st.integers() | st.text() | st.lists(st.text()), max_size=3)
FRAMES = st.lists(st.tuples(OBJECTS, st.binary(max_size=200)), max_size=5)


@given(FRAMES, st.lists(st.integers(min_value=1, max_value=50), min_size=1))
def test_frames_are_found_however_the_stream_is_cut(sent: list[tuple[dict[str, Any], bytes]], cuts: list[int]) -> None:
    stream = b"".join(frame(*one) for one in sent)
    frames, found, turn = Frames(), [], 0
    while stream:
        size = cuts[turn % len(cuts)]
        found += frames.add(stream[:size])
        stream, turn = stream[size:], turn + 1
    assert found == sent


def test_a_part_of_a_frame_is_none() -> None:
    frames, whole = Frames(), frame({"id": 1}, b"payload")
    assert frames.add(whole[:-1]) == []
    assert frames.add(whole[-1:]) == [({"id": 1}, b"payload")]


class Running:
    """A running agent."""

    def __init__(self, *, environment: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-ISc", START.format(len(SOURCE))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=environment,
        )
        self.frames = Frames()
        self.waiting: list[tuple[dict[str, Any], bytes]] = []
        # In pieces: its source and the first request may arrive together.
        self.send(SOURCE[:1000])
        self.send(SOURCE[1000:])
        assert self.next()[0]["id"] == 0

    def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    def next(self) -> tuple[dict[str, Any], bytes]:
        assert self.process.stdout is not None
        while not self.waiting:
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            assert data, "the agent ended"
            self.waiting += self.frames.add(data)
        return self.waiting.pop(0)

    def ask(self, *steps: dict[str, Any], payload: bytes = b"") -> tuple[list[Any], bytes]:
        self.send(frame({"id": 7, "steps": steps}, payload))
        said, found = self.next()
        assert said["id"] == 7
        return said["done"], found

    def run(self, *argv: str, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
        (result,), found = self.ask({"run": argv, "given": len(stdin)}, payload=stdin)
        out, _err = result["found"]
        return result["status"], found[:out], found[out:]

    def close(self) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        status = self.process.wait(20)
        self.process.stdout.close()
        return status


@pytest.fixture
def agent() -> Iterator[Running]:
    running = Running()
    yield running
    running.close()


def test_a_command_is_run(agent: Running) -> None:
    assert agent.run("sh", "-c", "cat; echo error >&2; exit 3", stdin=b"\0\xff") == (3, b"\0\xff", b"error\n")


@pytest.mark.parametrize("word", ["two words", "$HOME", "a'b\"c", "*", "", "é\n", "\udcff"])
def test_arguments_arrive_unchanged(agent: Running, word: str) -> None:
    assert agent.run("printf", "%s", word)[1] == word.encode("utf-8", "surrogateescape")


def test_a_signal_is_the_status(agent: Running) -> None:
    assert agent.run("sh", "-c", "kill -SEGV $$")[0] == -signal.SIGSEGV


def test_a_shell_command_and_an_unknown_command(agent: Running) -> None:
    assert agent.run("command", "-v", "sh")[1].endswith(b"/sh\n")
    status, _, err = agent.run("no such program", "x")
    assert status == 127
    assert b"no such program: not found" in err


def test_a_script_without_an_interpreter_is_the_shells(agent: Running, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("echo $1")
    script.chmod(0o755)
    assert agent.run(str(script), "said")[:2] == (0, b"said\n")


def test_a_command_sees_what_the_agent_was_given() -> None:
    # In the C locale Python adds LC_CTYPE to its own environment, and it ignores two signals.
    agent = Running(environment={"PATH": "/usr/bin:/bin", "WORD": "a b"})
    assert agent.run("env")[1] == b"PATH=/usr/bin:/bin\nWORD=a b\n"
    ignored = int(agent.run("grep", "SigIgn", "/proc/self/status")[1].split()[1], 16)
    assert not ignored & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1)
    agent.close()


def test_a_command_has_no_descriptor_of_the_agents(agent: Running) -> None:
    agent.send(frame({"id": 1, "steps": [{"run": ["sleep", "60"]}]}))
    assert agent.next()[0]["began"]
    assert agent.run("ls", "/proc/self/fd")[1].split() == [b"0", b"1", b"2", b"3"]  # the last is of ls
    agent.send(frame({"id": 1, "kill": True}))


def test_much_of_everything_at_once(agent: Running) -> None:
    size = 3 * MORE
    script = "cat & head -c $0 /dev/zero >&2 & wait"
    agent.send(frame({"id": 1, "steps": [{"run": ["sh", "-c", script, str(size)], "given": size}]}, b"x" * size))
    streams = [0, 0]
    while "more" in (said := agent.next())[0]:
        streams[said[0]["more"]] += len(said[1])
    (result,) = said[0]["done"]
    # A shell gives a command in the background no input.
    assert [early + late for early, late in zip(streams, result["found"], strict=True)] == [0, size]


def test_output_is_read_while_input_is_written(agent: Running) -> None:
    data = bytes(range(256)) * (2 * MORE // 256)
    agent.send(frame({"id": 1, "steps": [{"run": ["cat"], "given": len(data)}]}, data))
    found = b""
    while "more" in (said := agent.next())[0]:
        found += said[1]
    assert found + said[1] == data


def test_unread_input_does_not_block(agent: Running) -> None:
    assert agent.run("sh", "-c", "exec <&-; exit 4", stdin=bytes(MORE)) == (4, b"", b"")


def test_a_command_is_fed_while_others_run(agent: Running) -> None:
    agent.send(frame({"id": 1, "steps": [{"run": ["cat"]}]}) + frame({"id": 1, "feed": True}, b"a"))
    assert agent.next()[0].keys() == {"id", "began"}
    assert agent.run("true")[0] == 0
    agent.send(frame({"id": 1, "feed": True}, b"b") + frame({"id": 1, "close": True}))
    assert agent.next() == ({"id": 1, "done": [{"status": 0, "found": [2, 0]}]}, b"ab")


def test_a_command_is_killed_with_what_it_has_started(agent: Running) -> None:
    agent.send(frame({"id": 1, "steps": [{"run": ["sh", "-c", "sleep 60 & wait"], "given": 0}]}))
    time.sleep(0.2)
    agent.send(frame({"id": 1, "kill": True}))
    assert agent.next()[0]["done"] == [{"status": -signal.SIGKILL, "found": [0, 0]}]


def test_what_has_ended_can_be_neither_killed_nor_fed(agent: Running) -> None:
    assert agent.run("true")[0] == 0
    agent.send(b"".join(frame({"id": 7, word: True}) for word in ("kill", "feed", "close")))
    assert agent.run("true")[0] == 0


def test_steps_stop_at_the_first_that_fails(agent: Running, tmp_path: Path) -> None:
    file = f"{tmp_path}/file"
    run = {"run": ["cat", file], "given": 0}
    write = {"write": [[file, 3], [f"{tmp_path}/no/file", 1]], "given": 4}
    done, found = agent.ask(run, write, payload=b"abcd")
    assert [one.get("status") for one in done] == [1]
    assert found.endswith(b"No such file or directory\n")
    done, _ = agent.ask(write, run, payload=b"abcd")
    assert done == [{"errors": [None, "No such file or directory"]}]
    assert agent.ask({"write": [[file, 2]], "given": 2}, run, payload=b"xy")[1] == b"xy"


def test_the_kernels_refusal_is_reported(agent: Running) -> None:
    done, _ = agent.ask({"write": [["/proc/self/oom_score_adj", 7]], "given": 7}, payload=b"nothing")
    assert done == [{"errors": ["Invalid argument"]}]


def test_files_are_read(agent: Running, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(200_000))
    (tmp_path / "empty").touch()
    paths = [f"{tmp_path}/{name}" for name in ("large", "none", "empty", "")]
    (result,), found = agent.ask({"read": paths})
    assert result == {"found": [200_000, "No such file or directory", 0, "Is a directory"]}
    assert found == bytes(200_000)


def test_links_are_resolved(agent: Running, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "dangling").symlink_to("none")
    (result,), _ = agent.ask({"resolve": [f"{tmp_path}/{name}" for name in ("link", "dangling", "none")]})
    assert result == {"paths": [str((tmp_path / "file").resolve()), None, None]}


def test_a_step_that_is_none_fails_alone(agent: Running) -> None:
    agent.send(frame({"id": 1, "steps": [{"sing": True}]}))
    assert agent.next()[0] == {"id": 1, "done": [], "failed": "KeyError: 'resolve'"}
    assert agent.run("true")[0] == 0


def test_a_command_outlives_the_agent(tmp_path: Path) -> None:
    agent, begin, late = Running(), tmp_path / "begin", tmp_path / "late"
    script = f"while [ ! -e {begin} ]; do sleep 0.05; done; touch {late}"
    agent.send(frame({"id": 1, "steps": [{"run": ["sh", "-c", script]}]}))
    assert agent.next()[0]["began"]
    assert agent.close() == 0
    assert not late.exists()
    begin.touch()
    wait_until(late.exists, Deadline.after(20), "the command to continue")
