"""Configuration of all tests of the harness itself."""

import ctypes
import gc
import os
import signal
from collections.abc import Generator, Iterator

import pytest
from hypothesis import settings

from raidproof.core import command
from raidproof.core.package_manager import PackageManager

# What a newcomer and CI run is repeatable: the examples follow from the test alone. No test asserts a wall-clock time:
# the machine may be busy with something else.
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=30)
# `./raidproof test fuzz`: other examples at each run, more of them, and the line that repeats the one that failed.
settings.register_profile("fuzz", derandomize=False, deadline=None, max_examples=150, print_blob=True)
settings.load_profile("repeatable")

# The defaults of options are the built-in ones, whatever the developer's files say.
os.environ["RAIDPROOF_CONFIG"] = ""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell lets what it starts in the background ignore SIGINT; processes that tests start would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let the garbage collector leave alone what the collection made: all of it is needed to the end.

    Otherwise each full run of the collector, of which each pytest within a test makes several, visits all of it again.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def _own_group() -> Iterator[None]:
    """Restore the group of the thread, which the ledger's program changes: the next exec would ignore LD_PRELOAD."""
    yield
    ctypes.CDLL(None).setfsgid(os.getegid())


@pytest.fixture(autouse=True)
def _remedies_of_debian(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let errors name the packages of Debian, whatever the distribution of the developer's host."""
    monkeypatch.setattr(command, "of_this_host", lambda: PackageManager.APT)
