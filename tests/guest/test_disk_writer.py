"""The programs that write and read disks on a machine, run as on the machine."""

import subprocess
import sys
from pathlib import Path

import pytest

from raidproof.guest import disk_probe as probe
from raidproof.guest import disk_writer as writer
from raidproof.provider.hosts.survey import parse_probe


def run(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-I", program, *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("words", [["8:16", "4096"], ["0:0", "16384"]])
def test_what_is_not_the_judged_device_is_not_written(tmp_path: Path, words: list[str]) -> None:
    disk = tmp_path / "disk"
    disk.write_bytes(b"theirs" * 4096)
    ended = run(writer.__file__, "8192", str(disk), *words, "-", b"mark".hex())
    assert ended.returncode != 0
    assert "no longer leads to device" in ended.stderr
    assert disk.read_bytes() == b"theirs" * 4096


def test_a_name_that_is_gone_is_an_error() -> None:
    assert run(writer.__file__, "0", "/nowhere", "8:16", "4096", "-", "00").returncode != 0


def test_the_probe_reports_its_user_or_missing_permission() -> None:
    ended = run(probe.__file__, "/dev/null", "/nowhere")
    if ended.returncode != 0:
        assert "needs root" in ended.stderr or "Permission" in ended.stderr
    else:
        assert not parse_probe(ended.stdout).links
