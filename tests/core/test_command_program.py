import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from raidproof.core import command
from raidproof.core.command import Completed
from raidproof.core.errors import DeadlineExceeded, RequirementMissing
from raidproof.core.waiting import Deadline, wait_until


def follow(*argv: str, deadline_s: float = 60.0, lines: list[str] | None = None) -> Completed:
    seen = lines if lines is not None else []
    return command.follow(argv, seen.append, environment={}, deadline_s=deadline_s)


def test_a_programs_lines_are_shown_and_its_status_kept() -> None:
    lines: list[str] = []
    completed = follow("sh", "-c", "echo one; echo two >&2; exit 3", lines=lines)
    assert lines == ["one", "two"]
    assert (completed.status, completed.stdout) == (3, "one\ntwo\n")


def test_a_missing_program_is_named() -> None:
    with pytest.raises(RequirementMissing, match="no-such-tool"):
        follow("no-such-tool")


def test_a_program_that_does_not_end_is_ended() -> None:
    with pytest.raises(DeadlineExceeded, match="sleep"):
        follow("sleep", "1000", deadline_s=0.1)


# A shell lets what it starts in the background ignore SIGINT, and that is inherited.
PARENT = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from raidproof.core import command
command.follow(["sh", "-c", "sh -c 'echo $$; exec sleep 1000' | cat"], lambda line: print(line, flush=True),
               environment={}, deadline_s=1000)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_program_and_its_children_end_with_us(how: signal.Signals) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert parent.stdout is not None
    child = int(json.loads(parent.stdout.readline()))
    parent.send_signal(how)
    parent.communicate()

    def ended() -> bool:
        try:
            return Path(f"/proc/{child}/stat").read_text().split()[2] == "Z"
        except (FileNotFoundError, ProcessLookupError):
            return True

    wait_until(ended, Deadline.after(20), "the child to end")
