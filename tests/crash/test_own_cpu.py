"""A CPU for one checker alone: reserved once, and kept by all processes of a lab."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from raidproof.core.waiting import Deadline, wait_until
from raidproof.crash.own_cpu import keep_on, own_cpu


@pytest.fixture
def two_cpus(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("RAIDPROOF_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 1})


@pytest.mark.usefixtures("two_cpus")
def test_no_cpu_is_reserved_twice() -> None:
    with own_cpu() as first, own_cpu() as second, own_cpu() as third:
        assert (first, second, third) == (1, 3, None)


@pytest.mark.usefixtures("two_cpus")
def test_a_cpu_is_free_again() -> None:
    with own_cpu() as first:
        pass
    with own_cpu() as second:
        assert first == second == 1


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[bytes]]:
    """Yield a process with a child; both end when the input of the child ends."""
    code = "import subprocess, sys; subprocess.run(['cat'])"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as process:
        yield process


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_process_and_its_children_stay_on_one_cpu(parent: subprocess.Popen[bytes]) -> None:
    wait_until(lambda: bool(children(parent.pid)), Deadline.after(30), "the child")
    cpu = max(os.sched_getaffinity(0))
    keep_on(parent.pid, cpu)
    assert [os.sched_getaffinity(pid) for pid in (parent.pid, *children(parent.pid))] == [{cpu}, {cpu}]
    assert parent.stdin is not None
    parent.stdin.close()
