import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

from raidproof.cli.main import main
from raidproof.core.errors import Status


def test_serve_prints_its_address_and_ends_as_interrupted(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "raidproof", "serve", "--results", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as served:
        try:
            assert served.stdout is not None
            line = served.stdout.readline()
            assert line.startswith("http://127.0.0.1:")
            with urlopen(line.split()[0], timeout=60) as answer:  # noqa: S310  an address of this host
                assert b"This directory has no runs" in answer.read()
        finally:
            served.send_signal(signal.SIGINT)
        _, errors = served.communicate(timeout=60)
    assert served.returncode == Status.INTERRUPTED
    assert "interrupted" in errors
    assert "Traceback" not in errors


def test_serve_refuses_a_missing_directory(tmp_path: Path) -> None:
    assert main(["serve", "--results", str(tmp_path / "missing")]) == Status.BAD_REQUEST
