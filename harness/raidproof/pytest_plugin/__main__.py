"""Runs pytest, and ends with raidproof's exit status: ``python -m raidproof.pytest_plugin [pytest's arguments]``."""

import os
import sys

import pytest

from raidproof.core.errors import Status
from raidproof.pytest_plugin.exit_status import ExitStatus

IMPORTED = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"
"""Filter for pytest's warning that it cannot rewrite the assertions of raidproof, which this program has imported."""


def main() -> int:
    """Run pytest with the arguments of the command line, and return the exit status."""
    ends = ExitStatus()
    try:
        code = pytest.main(["-W", IMPORTED, *sys.argv[1:]], plugins=[ends])
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Status.ERROR
    return ends.of(code)


if __name__ == "__main__":
    sys.exit(main())
