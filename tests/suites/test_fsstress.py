"""fsstress from Debian's source of btrfs-progs, and the comparison of the tree that fsstress leaves."""

import io
import tarfile
from pathlib import Path

import pytest

from raidproof.core.errors import RigError
from raidproof_suites.fsstress import SOURCE, compare_trees, compile_command, extract, parse_tree


def tarball(path: Path, *names: str) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size = len(name)
            archive.addfile(entry, io.BytesIO(name.encode()))
    return path


def test_only_what_is_wanted_is_taken(tmp_path: Path) -> None:
    made = tarball(
        tmp_path / "a.orig.tar.gz", f"p-1/{SOURCE}", "p-1/common/internal.h", "p-1/tests/other.c", "p-1/../x"
    )
    extract(made, tmp_path / "to")
    found = {str(path.relative_to(tmp_path / "to")) for path in (tmp_path / "to").rglob("*") if path.is_file()}
    assert found == {SOURCE, "common/internal.h"}


def test_tarball_without_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RigError, match=r"no longer has tests/fsstress\.c"):
        extract(tarball(tmp_path / "a.orig.tar.gz", "p-1/tests/other.c"), tmp_path / "to")


def test_cut_off_tarball_is_no_success(tmp_path: Path) -> None:
    made = tarball(tmp_path / "a.orig.tar.gz", f"p-1/{SOURCE}")
    made.write_bytes(made.read_bytes()[:40])
    with pytest.raises(RigError, match="truncated or damaged"):
        extract(made, tmp_path / "to")


def test_it_is_linked_statically() -> None:
    words = list(map(str, compile_command(Path("/s"), Path("/usr"), Path("/t"))))
    assert "-static" in words
    assert words.index(f"/s/{SOURCE}") < words.index("-laio")


def test_trees_that_differ_are_told() -> None:
    tree = parse_tree("a\tf 644 3\nb\tl 777 a\n", "abc  ./a\n")
    assert compare_trees(tree, tree).passed
    assert "b: client l 777 a, server missing" in compare_trees(tree, {"a": tree["a"]}).failed[0].reason
    assert compare_trees(tree, tree | {"a": "f 644 3 abd"}).failed
    assert compare_trees({}, {}).unknown
    with pytest.raises(RigError):
        parse_tree("a\tf 644 3\n", "abc  ./other\n")
