import bz2
import gzip
import io
import lzma
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from raidproof.core.errors import RequestError
from raidproof.image import apt, origin, recipe
from raidproof.image.apt import Installed
from raidproof.image.recipe import ImageRecipe

STATUS = "Package: mdadm\nStatus: install ok installed\nVersion: 4.2-5\n"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAIDPROOF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def archive(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as packed:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            packed.addfile(member, io.BytesIO(content.encode()))
    return buffer.getvalue()


def given_root(folder: Path, content: bytes) -> ImageRecipe:
    (folder / "root.tar").write_bytes(content)
    (folder / "recipe.toml").write_text('root = "root.tar"\n')
    return recipe.load(folder / "recipe.toml")


def test_two_suites_come_from_two_places() -> None:
    options = Path("/work/apt.conf")
    lines = set()
    for suite in ("bookworm", "sid"):
        declared = recipe.load(recipe.find(f"debian/{suite}"))
        source = apt.Source("http://deb.example/debian", suite, Path("/keys"))
        argv = origin.mmdebstrap_command(declared, source, options, Path("/x/root.tar"))
        assert argv[-3:-1] == [suite, "/x/root.tar"]
        assert f"--aptopt={options}" in argv
        lines.add(argv[-1])
    assert len(lines) == 2


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("name", ["./var/lib/dpkg/status", "var/lib/dpkg/status"])
def test_a_given_root_is_unpacked_and_described(tmp_path: Path, pack: Callable[[bytes], bytes], name: str) -> None:
    whole = archive({"etc/os-release": "ID=debian\n", name: STATUS})
    start = origin.origin_of(given_root(tmp_path, pack(whole)))
    assert start.archive.read_bytes() == whole
    assert start.installed == {"mdadm": Installed("4.2-5", "mdadm")}
    assert start.archive.stat().st_mode & 0o777 == 0o644


def test_a_root_without_dpkg_has_no_packages_that_are_known(tmp_path: Path) -> None:
    assert origin.origin_of(given_root(tmp_path, archive({"etc/os-release": "ID=fedora\n"}))).installed == {}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"no archive" * 100, "not a tar archive"),
        (b"", "not a tar archive"),
        (gzip.compress(archive({"a": "b" * 100_000}))[:-20], "not a tar archive"),
        (b"\x28\xb5\x2f\xfd....", "zstd -d"),
    ],
)
def test_an_archive_without_a_root_is_refused_and_removed(
    own_cache: Path, tmp_path: Path, content: bytes, says: str
) -> None:
    with pytest.raises(RequestError, match=says):
        origin.origin_of(given_root(tmp_path, content))
    assert not list(own_cache.glob("root/*"))


def test_another_content_is_another_root(tmp_path: Path) -> None:
    first = origin.address(given_root(tmp_path, archive({"a": "1"})))
    # The same size, and perhaps within the clock's grain: the time is set apart.
    second = given_root(tmp_path, archive({"a": "2"}))
    os.utime(tmp_path / "root.tar", (1, 1))
    assert origin.address(second) != first
    assert origin.address(given_root(tmp_path, archive({"a": "1"}))) == first
