"""What nbdkit loads. It brings its own Python: that of the host, which has none of the harness's libraries."""

import os
import subprocess
import sys
from pathlib import Path

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
