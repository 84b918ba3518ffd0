"""Scenarios side by side: in workers of pytest-xdist.

Each worker has a lab and a run of its own. A scenario marked ``alone`` measures: while it runs no other one does. A
file marked ``long`` takes minutes: it begins before others, so that no worker is left with it at the end.
"""

import fcntl
import io
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from raidproof.core.interrupt import unwinding_on_signals

ALONE = "alone"
LONG = "long"
ENDS = pytest.StashKey[list[str]]()
"""Where the process that was started keeps what its workers said of their runs."""
_OUTPUT = "raidproof"
_LOCK = "raidproof-alone.lock"


def worker_name(config: pytest.Config) -> str | None:
    """Return the name of the worker that this process is; None if it is none."""
    workerinput: dict[str, Any] | None = getattr(config, "workerinput", None)
    return None if workerinput is None else str(workerinput["workerid"])


def tell_ends(config: pytest.Config, lines: Sequence[str]) -> None:
    """Hand what a worker has to say of its runs to the process that started it."""
    if worker_name(config) is not None:
        output: dict[str, Any] = config.workeroutput  # type: ignore[attr-defined]
        output[_OUTPUT] = list(lines)


def put_in_order(items: list[pytest.Item]) -> None:
    """Order scenarios so that nobody waits who could run: files that take long first, those that run alone last.

    A worker takes file after file. One that met a scenario in the middle which runs alone waited there for the other
    worker's, whatever that was.
    """
    last = {item.path for item in items if _is_alone(item)}
    items.sort(key=lambda item: (item.path in last, item.get_closest_marker(LONG) is None, _is_alone(item)))


@contextmanager
def turn(item: pytest.Item) -> Iterator[None]:
    """Run a scenario beside others or, if it is to be alone, when all others have ended; without workers at once."""
    if worker_name(item.config) is None:
        yield
        return
    # The folder above a worker's own is that of all workers (pytest-xdist).
    path = Path(item.config.option.basetemp).parent / _LOCK
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if _is_alone(item) else fcntl.LOCK_SH)
        yield


class WorkerScreen(io.StringIO):
    """Writes a worker's progress past its capture, each line with the worker's name."""

    def __init__(self, config: pytest.Config) -> None:
        super().__init__()
        self._capture = config.pluginmanager.get_plugin("capturemanager")
        self._name = worker_name(config)

    def write(self, text: str) -> int:
        """Write whole lines."""
        with ExitStack() as stack:
            if self._capture is not None:
                stack.enter_context(self._capture.global_and_fixture_disabled())
            if sys.__stderr__ is not None:
                sys.__stderr__.write("".join(f"{self._name}: {line}\n" for line in text.splitlines()))
                sys.__stderr__.flush()
        return len(text)


class Workers:
    """What pytest-xdist does where pytest was started: workers are ended in order, and tell of their runs."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        """Let SIGTERM end the workers as Ctrl-C does."""
        with unwinding_on_signals() if self._config.getoption("numprocesses", None) else nullcontext():
            return (yield)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Keep what a worker said at its end; one that was killed said nothing."""
        said = getattr(node, "workeroutput", {}).get(_OUTPUT, [])
        self._config.stash.setdefault(ENDS, []).extend(said)


def _is_alone(item: pytest.Item) -> bool:
    return item.get_closest_marker(ALONE) is not None
