import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.errors import RequirementMissing, RigError
from raidproof.image import cache


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAIDPROOF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fill(partial: Path) -> None:
    (partial / "file").write_text("content")


def everything(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if "locks" not in path.parts)


def test_root_without_a_setting_is_in_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAIDPROOF_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache.root() == Path("/somewhere/raidproof")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.root() == Path.home() / ".cache/raidproof"


@given(st.lists(st.text()), st.lists(st.text()))
def test_other_parts_have_another_address(one: list[str], other: list[str]) -> None:
    assert (cache.digest(*one) == cache.digest(*other)) == (one == other)


def test_built_once() -> None:
    calls: list[Path] = []

    def builder(partial: Path) -> None:
        calls.append(partial)
        fill(partial)

    built = cache.build("image", "a", builder)
    assert cache.build("image", "a", builder) == built == cache.place("image", "a")
    assert (built / "file").read_text() == "content"
    assert len(calls) == 1


@pytest.mark.parametrize("end", [ValueError("broken"), KeyboardInterrupt()])
def test_a_build_that_fails_leaves_nothing(own_cache: Path, end: BaseException) -> None:
    def builder(partial: Path) -> None:
        fill(partial)
        raise end

    with pytest.raises(type(end)):
        cache.build("image", "a", builder)
    assert everything(own_cache) == ["image"]
    assert cache.build("image", "a", fill).is_dir()


def test_the_scratch_folder_is_no_part_of_the_result(own_cache: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"

    def builder(partial: Path) -> None:
        fill(partial)
        outside.mkdir()
        fill(outside)
        (partial / cache.SCRATCH).symlink_to(outside)

    built = cache.build("image", "a", builder)
    assert [path.name for path in built.iterdir()] == ["file"]
    assert not outside.exists()


@pytest.mark.parametrize(
    ("number", "kind", "says"),
    [
        (errno.ENOSPC, RigError, "is full"),
        (errno.EDQUOT, RigError, "is full"),
        (errno.EACCES, RequirementMissing, "RAIDPROOF_CACHE"),
        (errno.EIO, RigError, "cannot be used"),
    ],
)
def test_a_failing_disk_is_reported_in_one_line(
    own_cache: Path, number: int, kind: type[Exception], says: str
) -> None:
    def builder(partial: Path) -> None:
        fill(partial)
        raise OSError(number, os.strerror(number))

    with pytest.raises(kind, match=says) as caught:
        cache.build("image", "a", builder)
    assert "\n" not in str(caught.value)
    assert everything(own_cache) == ["image"]


def test_two_at_once_build_it_once() -> None:
    calls: list[Path] = []
    inside, go_on = threading.Event(), threading.Event()

    def builder(partial: Path) -> None:
        calls.append(partial)
        inside.set()
        go_on.wait()
        fill(partial)

    threads = [threading.Thread(target=cache.build, args=("image", "a", builder)) for _ in range(2)]
    for thread in threads:
        thread.start()
    inside.wait()
    assert cache.sweep() == []
    go_on.set()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert (cache.place("image", "a") / "file").exists()


KILLED = """
import os, sys
from pathlib import Path
from raidproof.image import cache

def builder(partial):
    (partial / "half").write_text("half")
    print("inside", flush=True)
    sys.stdin.read()

cache.build("image", "a", builder)
"""


def test_what_a_killed_build_left_is_swept(own_cache: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "inside\n"
    assert cache.sweep() == []
    assert everything(own_cache) == ["image", "image/a.partial", "image/a.partial/half"]
    process.send_signal(signal.SIGKILL)
    process.communicate()
    [said] = cache.sweep()
    assert "image" in said
    assert "a.partial" in said
    assert everything(own_cache) == ["image"]
    assert cache.sweep() == []


def test_the_next_build_replaces_what_a_killed_one_left(own_cache: Path) -> None:
    left = own_cache / "image" / "a.partial"
    left.mkdir(parents=True)
    (left / "half").touch()
    cache.build("image", "a", fill)
    assert everything(own_cache) == ["image", "image/a", "image/a/file"]


def test_sweep_leaves_what_is_finished(own_cache: Path) -> None:
    cache.build("image", "a", fill)
    before = everything(own_cache)
    assert cache.sweep() == []
    assert everything(own_cache) == before


def test_a_builder_that_never_ends_is_named(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "BUILD_DEADLINE_S", 0.0)
    lock = own_cache / "locks" / "image-a"
    lock.parent.mkdir(parents=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(RigError, match="image-a"):
            cache.build("image", "a", fill)
