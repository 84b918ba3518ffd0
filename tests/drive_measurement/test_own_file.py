"""The measured file has no name, is full of data, and leaves nothing behind, whatever ends the program."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from raidproof.core.errors import RequestError
from raidproof.core.units import MIB
from raidproof.drive_measurement.own_file import own_file

HOLD = """
import sys
from pathlib import Path
from raidproof.drive_measurement.own_file import own_file
with own_file(Path(sys.argv[1]), 64 << 20) as path:
    print(path, flush=True)
    sys.stdin.read()
"""


def test_the_file_has_no_name_and_is_written(tmp_path: Path) -> None:
    with own_file(tmp_path, 64 * MIB) as path:
        assert list(tmp_path.iterdir()) == []
        assert Path(path).stat().st_size == 64 * MIB
        assert Path(path).stat().st_blocks * 512 >= 64 * MIB
        data = Path(path).read_bytes()
        assert all(any(data[at : at + MIB]) for at in range(0, len(data), MIB))
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_beside_the_file(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"x" * 10_000)
    before = (other.read_bytes(), other.stat().st_mtime_ns)
    with own_file(tmp_path, 64 * MIB):
        pass
    assert (other.read_bytes(), other.stat().st_mtime_ns) == before
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_a_killed_program_leaves_no_file(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        path = Path(process.stdout.readline().strip())
        assert path.stat().st_size == 64 * MIB
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert list(tmp_path.iterdir()) == []
        assert not path.exists()


def test_a_file_that_is_too_small_or_too_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="a file of 1MiB is too small"), own_file(tmp_path, MIB):
        pass
    with pytest.raises(RequestError, match="free, too little for a file of"), own_file(tmp_path, 1 << 60):
        pass


def test_a_folder_that_does_not_exist_or_has_no_such_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="cannot create a file"), own_file(tmp_path / "none", 64 * MIB):
        pass
