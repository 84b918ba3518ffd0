import tarfile
from pathlib import Path

import pytest

from raidproof.core import command
from raidproof.core.errors import RequestError
from raidproof.image import apt
from raidproof.image.kernel import tree
from tests.image.kernel import tiny


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAIDPROOF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def linux(tmp_path: Path) -> Path:
    return tiny.write(tmp_path / "linux")


def git(folder: Path, *words: str) -> str:
    own = ["-c", "user.name=tests", "-c", "user.email=tests@invalid", "-c", "commit.gpgsign=false"]
    return command.succeed(["git", "-C", folder, *own, *words]).strip()


def test_a_git_work_tree_is_named_by_its_commit_and_its_changes(linux: Path) -> None:
    git(linux, "init", "--quiet")
    git(linux, "add", ".")
    git(linux, "commit", "--quiet", "-m", "all")
    commit = git(linux, "rev-parse", "--short=12", "HEAD")
    clean = tree.read(linux)
    assert (clean.version, clean.identity, clean.name) == ("6.99.1", f"g{commit}", f"6.99.1-g{commit}")
    seen = {clean.identity}
    for change in (
        lambda: (linux / "init/main.c").write_text("int main(void) { return 1; }\n"),
        lambda: (linux / "init/new.c").write_text("int x;\n"),
        lambda: (linux / "init/new.c").write_text("int y;\n"),
        lambda: git(linux, "add", "init/new.c"),
    ):
        change()
        identity = tree.read(linux).identity
        assert identity.startswith(f"g{commit}-d")
        seen.add(identity)
    # The digest of a file that git tracks differs from that of the same file when it was new: at worst a second build.
    assert len(seen) == 5
    git(linux, "reset", "--quiet", "--hard")
    assert tree.read(linux) == clean


def test_a_plain_tree_is_named_by_its_version_and_its_files(linux: Path) -> None:
    first = tree.read(linux)
    assert first.identity.startswith("t")
    assert tree.read(linux) == first
    (linux / "init/main.c").write_text("int main(void) { return 1; }\n")
    assert tree.read(linux) != first


def test_the_version_has_the_extra_version(linux: Path) -> None:
    makefile = linux / "Makefile"
    makefile.write_text(makefile.read_text().replace("EXTRAVERSION =", "EXTRAVERSION = -rc3"))
    assert tree.read(linux).version == "6.99.1-rc3"


@pytest.mark.parametrize("missing", ["Makefile", "arch/um/Kconfig"])
def test_a_folder_that_is_no_kernel_source_is_refused(linux: Path, missing: str) -> None:
    (linux / missing).unlink()
    if missing.startswith("arch"):
        (linux / "arch/um").rmdir()
    with pytest.raises(RequestError, match="is not the source of a kernel"):
        tree.read(linux)


def test_an_archive_is_unpacked_once_without_what_no_kernel_needs(linux: Path, tmp_path: Path) -> None:
    kept = ("include/sound/core.h", "drivers/net/ifb.c", "sound/Kconfig")
    for name in (*kept, "sound/core/core.c", "drivers/gpu/drm/a/b.h", "drivers/net/ethernet/x/x.c", "arch/arm/mm/m.S"):
        (linux / name).parent.mkdir(parents=True, exist_ok=True)
        (linux / name).touch()
    archive = tmp_path / "linux-source-6.99.tar.xz"
    with tarfile.open(archive, "w:xz") as content:
        content.add(linux, "linux-source-6.99")
    unpacked = tree.located(archive)
    assert unpacked.name == "linux-source-6.99"
    files = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    assert files == {"Makefile", "init/main.c", "arch/um/Kconfig", "drivers/md/Kconfig", *kept}
    (unpacked / "mark").touch()
    assert tree.located(archive) == unpacked
    assert (unpacked / "mark").exists()


def test_a_broken_archive_is_refused_and_leaves_nothing(tmp_path: Path, own_cache: Path) -> None:
    archive = tmp_path / "linux.tar.xz"
    archive.write_bytes(b"\xfd7zXZ\0 and no more")
    with pytest.raises(RequestError, match=r"linux\.tar\.xz is not a tar archive that can be read"):
        tree.located(archive)
    assert not list((own_cache / "source").iterdir())


def test_a_suite_means_debians_source_of_its_series(
    linux: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def download(suite: str, packages: list[str], work: Path) -> dict[str, Path]:
        asked.extend((suite, packages))
        return {packages[0]: work / "x.deb"}

    def unpack(package: Path, target: Path) -> None:
        (target / "usr/src").mkdir(parents=True)
        with tarfile.open(target / "usr/src/linux-source-6.12.tar.xz", "w:xz") as content:
            content.add(linux, "linux-source-6.12")

    monkeypatch.setattr(apt, "download", download)
    monkeypatch.setattr(apt, "unpack", unpack)
    monkeypatch.chdir(tmp_path)
    found = tree.located(Path("debian/trixie"))
    assert asked == ["trixie", ["linux-source-6.12"]]
    assert tree.read(found).version == "6.99.1"
    assert tree.located(Path("debian/trixie")) == found
    assert len(asked) == 2


def test_what_is_neither_folder_nor_archive_nor_suite_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"no kernel source debian/trixi .*did you mean 'debian/trixie'"):
        tree.located(Path("debian/trixi"))
