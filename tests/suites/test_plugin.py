"""The plugin: its option, and what it imports."""

import subprocess
import sys

import pytest

from raidproof.core.errors import RequestError
from raidproof_suites.plugin import paths_of


def test_paths_are_named() -> None:
    assert paths_of(["fsx=/bin/fsx", "ltp=/opt/a=b"]) == {"fsx": "/bin/fsx", "ltp": "/opt/a=b"}
    for word in ("fsx", "=/bin/fsx", "fsx="):
        with pytest.raises(RequestError, match="not NAME=PATH"):
            paths_of([word])


def test_a_process_without_scenarios_does_not_import_the_machinery() -> None:
    """Every process of pytest loads both plugins; the machinery takes a second."""
    asked = "import sys, raidproof_suites.plugin, raidproof.pytest_plugin.plugin; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout.split()
    assert "raidproof.pytest_plugin.fixture_functions" in loaded
    assert not {"raidproof.run.run", "raidproof.lab.lab", "raidproof_suites.fsx", "paramiko"} & {*loaded}
