"""The build of a source tree, with a real make and a real compiler, but a tree of a few files."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from raidproof.core import command
from raidproof.core.errors import RequirementMissing, RigError
from raidproof.image import cache
from raidproof.image.kernel import fragment, rebuild, source
from raidproof.image.kernel import tree as trees
from raidproof.image.kernel.fragment import Option
from tests.image.kernel import tiny


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAIDPROOF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(rebuild, "require_tools", lambda: None)
    return tmp_path / "cache"


@pytest.fixture
def linux(tmp_path: Path) -> Path:
    return tiny.write(tmp_path / "linux")


def made(built: Path) -> list[str]:
    """Return the steps of the compiler in the log of the last build."""
    logs = list((built.parents[1] / "objects").glob("*/build.log"))
    return [line for log in logs for line in log.read_text().splitlines() if line.startswith("  CC")]


def test_a_kernel_is_named_by_its_tree_and_its_options(linux: Path) -> None:
    built = source.build(linux)
    release = built.name
    assert release.startswith(f"{trees.read(linux).name}-")
    described = json.loads((built / "kernel.json").read_text())
    assert (described["release"], described["version"]) == (release, "6.99.1")
    assert sorted(path.name for path in built.iterdir()) == ["config", "kernel.json", "lib", "linux", "modules.ext4"]
    assert not (built / "lib/modules" / release / "build").is_symlink()
    assert "CONFIG_NFSD=m\n" in (built / "config").read_text()


def test_an_unchanged_tree_is_not_built_again_and_a_changed_one_is(linux: Path) -> None:
    first = source.build(linux)
    log = next((first.parents[1] / "objects").glob("*/build.log"))
    before = log.stat().st_mtime_ns
    assert source.build(linux) == first
    assert log.stat().st_mtime_ns == before
    (linux / "Makefile").write_text(tiny.MAKEFILE + "# changed\n")
    second = source.build(linux)
    assert second != first
    # A file that has not changed is not compiled again.
    assert made(second) == []
    (linux / "init/main.c").write_text(tiny.MAIN + "int changed;\n")
    assert made(source.build(linux)) == ["  CC      init/main.o"]
    assert len(list((first.parents[1] / "objects").iterdir())) == 1


def test_further_options_make_another_kernel(linux: Path, tmp_path: Path) -> None:
    own = tmp_path / "my.config"
    own.write_text("CONFIG_PROVE_LOCKING=y\n")
    plain, built = source.build(linux), source.build(linux, own)
    assert plain != built
    assert "CONFIG_PROVE_LOCKING=y\n" in (built / "config").read_text()


def test_an_option_without_effect_fails_the_build_before_anything_is_compiled(linux: Path, tmp_path: Path) -> None:
    own = tmp_path / "my.config"
    own.write_text("CONFIG_MD_NEVER=y\n")
    with pytest.raises(source.BuildFailed, match=r"1 of \d+ options have no effect: .*my.config:1: CONFIG_MD_NEVER=y"):
        source.build(linux, own)
    assert not list(cache.root().glob("objects/*/linux"))
    assert not list(cache.root().glob("built/*"))


def test_an_error_of_the_compiler_is_one_line_with_the_log(linux: Path) -> None:
    (linux / "init/main.c").write_text("int main(void) { return nothing; }\n")
    with pytest.raises(source.BuildFailed) as failed:
        source.build(linux)
    message = str(failed.value)
    assert "\n" not in message
    assert f"kernel {trees.read(linux).name} does not build: init/main.c:1:25: error: " in message
    log = Path(message.rpartition("log: ")[2].rstrip(")"))
    assert "nothing" in log.read_text()
    assert not list(cache.root().glob("built/*"))
    (linux / "init/main.c").write_text(tiny.MAIN)
    assert source.build(linux).is_dir()


def test_two_builds_at_once_make_one_kernel(linux: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(source.build, [linux, linux])
    assert first == second
    assert len(list(cache.root().glob("built/*"))) == 1


def test_a_tree_that_changes_during_the_build_gives_no_kernel(linux: Path) -> None:
    makefile = tiny.MAKEFILE.replace("\n$(O)/linux:", "\techo >> $(CURDIR)/init/other.c\n\n$(O)/linux:")
    (linux / "Makefile").write_text(makefile)
    with pytest.raises(source.BuildFailed, match="changed during the build"):
        source.build(linux)
    assert not list(cache.root().glob("built/*"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("virtio_uml ", "", r"lacks virtio_uml \(CONFIG_VIRTIO_UML=y\)"),
        ("md/md-mod ", "", r"lacks md_mod \(CONFIG_BLK_DEV_MD\)"),
        ("$(DEPENDS)", "lockd,nfs", r"nfsd needs lockd"),
        ("vermagic=$(release)", "vermagic=6.12.0", r"nfsd.ko was built for kernel 6.12.0, not 6.99.1-t"),
    ],
)
def test_a_kernel_without_the_modules_of_a_lab_is_not_kept(linux: Path, old: str, new: str, message: str) -> None:
    (linux / "Makefile").write_text(tiny.MAKEFILE.replace(old, new))
    with pytest.raises(source.BuildFailed, match=message):
        source.build(linux)
    assert not list(cache.root().glob("built/*"))


def test_the_cache_keeps_the_objects_of_a_few_trees(tmp_path: Path) -> None:
    for number in range(source.OBJECTS_KEPT + 2):
        source.build(tiny.write(tmp_path / f"linux{number}"))
    left = {path.name for path in cache.root().glob("objects/*")}
    assert len(left) == source.OBJECTS_KEPT
    assert len(list(cache.root().glob("built/*"))) == source.OBJECTS_KEPT + 2


def test_objects_in_use_are_not_removed(tmp_path: Path) -> None:
    for number, name in enumerate(("used", "idle", "new")):
        folder = cache.place("objects", name)
        folder.mkdir(parents=True)
        os.utime(folder, (number, number))
    with cache.locked("objects", "used"):
        cache.trim("objects", 1)
    assert sorted(path.name for path in cache.root().glob("objects/*")) == ["new", "used"]


def test_a_missing_program_is_named_before_the_build(linux: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def require() -> None:
        raise RequirementMissing("building a kernel needs flex")

    monkeypatch.setattr(rebuild, "require_tools", require)
    with pytest.raises(RequirementMissing, match="flex"):
        source.build(linux)


def test_a_full_disk_and_a_tree_with_objects_have_their_own_remedies(linux: Path) -> None:
    tree = trees.read(linux)
    full = command.Completed(("make",), 2, "cc1: fatal error: error closing x.s: No space left on device\n", "")
    assert type(source.explain(full, tree, linux)) is RigError
    dirty = command.Completed(("make",), 2, "***\n*** The source tree is not clean, please run 'make mrproper'\n", "")
    error = source.explain(dirty, tree, linux)
    assert isinstance(error, source.BuildFailed)
    assert "make -C" in str(error)
    silent = source.explain(command.Completed(("make",), 7, "", ""), tree, linux)
    assert "make ended with status 7" in str(silent)


def test_the_options_of_a_build_are_all_of_the_fragment(linux: Path) -> None:
    config = (source.build(linux) / "config").read_text()
    wanted = [one for one in fragment.requested() if isinstance(one, Option)]
    assert all(f"{one}\n" in config for one in wanted)
