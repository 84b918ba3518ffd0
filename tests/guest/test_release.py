"""The release of block devices: the file that stops a device, and the wait for the devices below it."""

import errno
import os
from pathlib import Path

import pytest

from raidproof.guest import release


def test_a_device_in_use_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([False, False, True, True])
    monkeypatch.setattr(release, "claimable", lambda _: next(answers))
    release.release(str(tmp_path / "stop"), ["/dev/md0", "/dev/vde"])
    assert next(answers, None) is None
    assert (tmp_path / "stop").read_text() == "1"


def test_a_device_that_stays_in_use_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "MOST_S", 0.0)
    monkeypatch.setattr(release, "claimable", lambda _: False)
    with pytest.raises(OSError, match="/dev/md0"):
        release.release(str(tmp_path / "stop"), ["/dev/md0"])


def test_without_the_file_nothing_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "claimable", lambda _: pytest.fail("a device was opened"))
    with pytest.raises(FileNotFoundError):
        release.release(str(tmp_path / "absent" / "stop"), ["/dev/md0"])


@pytest.mark.parametrize(("number", "claimed"), [(errno.EBUSY, False), (0, True)])
def test_the_kernel_tells_whether_a_device_is_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, claimed: bool
) -> None:
    real = os.open

    def opened(path: str, flags: int) -> int:
        assert flags & os.O_EXCL
        if number:
            raise OSError(number, os.strerror(number), path)
        return real(path, os.O_RDONLY)

    monkeypatch.setattr(os, "open", opened)
    assert release.claimable(str(tmp_path)) is claimed


def test_an_absent_device_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        release.claimable(str(tmp_path / "absent"))
