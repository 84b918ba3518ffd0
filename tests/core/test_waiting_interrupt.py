import signal
import subprocess
import sys

import pytest

PROGRAM = """
import signal, sys
from contextlib import ExitStack
from raidproof.core.waiting import unwind_on_signals
def undo():
    signal.raise_signal(signal.{second})
    print("undone", flush=True)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup(1), under which these tests may run, ignores the signal
unwind_on_signals()
with ExitStack() as stack:
    stack.callback(undo)
    signal.raise_signal(signal.{first})
"""


@pytest.mark.parametrize("first", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_the_first_unwinds_and_the_second_does_not_cut_it_short(first: str) -> None:
    program = PROGRAM.format(first=first, second="SIGTERM")
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.stdout == "undone\n"
    assert "cleaning up" in ended.stderr
    assert f"KeyboardInterrupt: {first}" in ended.stderr


def test_the_third_ends_the_unwinding() -> None:
    second = "SIGTERM); signal.raise_signal(signal.SIGTERM"
    program = PROGRAM.format(first="SIGTERM", second=second)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.stdout == ""
    assert ended.returncode in {-signal.SIGINT, 130}
