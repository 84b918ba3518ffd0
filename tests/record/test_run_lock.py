import subprocess
import sys
from pathlib import Path

import pytest

from raidproof.core.errors import RequestError
from raidproof.record import run_lock
from raidproof.record.run_lock import is_locked, locked

HOLDER = """
import sys
from pathlib import Path
from raidproof.record.run_lock import locked
with locked(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_lock, "PROBED_S", 0.0)


def test_a_run_is_in_progress_while_its_process_holds_the_lock(tmp_path: Path) -> None:
    assert not is_locked(tmp_path)
    with locked(tmp_path):
        assert is_locked(tmp_path)
        with pytest.raises(RequestError, match=f"run {tmp_path.name} is in progress"), locked(tmp_path):
            pass
    assert not is_locked(tmp_path)


def test_a_killed_process_holds_no_lock(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert is_locked(tmp_path)
        holder.kill()
        holder.wait()
        assert not is_locked(tmp_path)
