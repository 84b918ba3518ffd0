"""The plug-in of nbdkit, which runs in the host's Python without the harness's libraries."""

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from raidproof.disk.connection import PowerLost
from raidproof.disk.disk_fault import DriveError

SOURCES = Path(__file__).resolve().parents[2] / "harness"
LOAD = """
import sys, types
sys.modules["nbdkit"] = types.SimpleNamespace(FLAG_FUA=2)
import raidproof.disk.plugin
"""


def test_it_needs_nothing_but_the_standard_library() -> None:
    # -S: without site-packages.
    ended = subprocess.run(
        [sys.executable, "-S", "-c", LOAD],
        cwd=SOURCES,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stderr == ""


REQUESTS: dict[str, Callable[[Any, object], None]] = {
    "read": lambda plugin, port: plugin.pread(port, memoryview(bytearray(512)), 0, 0),
    "write": lambda plugin, port: plugin.pwrite(port, memoryview(bytes(512)), 0, 0),
    "flush": lambda plugin, port: plugin.flush(port, 0),
    "discard": lambda plugin, port: plugin.trim(port, 512, 0, 0),
    "write_zeroes": lambda plugin, port: plugin.zero(port, 512, 0, 0),
}


@pytest.fixture
def errors() -> list[int]:
    return []


@pytest.fixture
def plugin(errors: list[int], monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The plug-in as nbdkit calls it; ``errors`` collects the error numbers of failed requests."""
    nbdkit = SimpleNamespace(FLAG_FUA=2, FUA_NONE=0, FUA_NATIVE=2, set_error=errors.append)
    monkeypatch.setitem(sys.modules, "nbdkit", nbdkit)
    monkeypatch.delitem(sys.modules, "raidproof.disk.plugin", raising=False)
    return importlib.import_module("raidproof.disk.plugin")


@pytest.mark.parametrize("request_name", REQUESTS)
@pytest.mark.parametrize("error", [PowerLost("disk0"), DriveError("bad sector")])
def test_the_guest_gets_the_error_that_the_drive_gave(
    plugin: ModuleType, errors: list[int], request_name: str, error: OSError
) -> None:
    def fail(*_: object) -> None:
        raise error

    with pytest.raises(type(error)):
        REQUESTS[request_name](plugin, SimpleNamespace(**{request_name: fail}))
    assert errors == [error.errno]


@pytest.mark.parametrize("request_name", ["write", "discard", "write_zeroes"])
def test_only_what_the_guest_forces_is_forced(plugin: ModuleType, request_name: str) -> None:
    told: list[object] = []
    port = SimpleNamespace(**{request_name: lambda *words: told.append(words[-1])})
    calls: dict[str, Callable[[int], None]] = {
        "write": lambda flags: plugin.pwrite(port, memoryview(bytes(512)), 0, flags),
        "discard": lambda flags: plugin.trim(port, 512, 0, flags),
        "write_zeroes": lambda flags: plugin.zero(port, 512, 0, flags),
    }
    for flags in (0, 1, 2, 3):  # the lowest bit is another flag of nbdkit
        calls[request_name](flags)
    assert told == [False, False, True, True]
