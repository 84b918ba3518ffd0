import gzip
from pathlib import Path

import pytest

from raidproof.core import command
from raidproof.core.errors import RequirementMissing, RigError
from raidproof.image import apt
from raidproof.image.kernel import catalogue, rebuild, uml
from raidproof.image.kernel.rebuild import SourceEdit

RELEASE = "6.12.101"
EDIT = SourceEdit("fs/x/x.c", "static int planted;\n", ())
MODULES = f"usr/lib/uml/modules/{RELEASE}/modules.dep"
CONFIG = "usr/share/doc/user-mode-linux/config.gz"


class FakeHost:
    """Fake packages without a network, and a fake compiler."""

    def __init__(self) -> None:
        self.made: list[list[str]] = []
        self.edited = ""
        self.layout = {MODULES: b"", CONFIG: gzip.compress(b"CONFIG_X=y\n")}

    def download(self, suite: str, packages: list[str], work: Path) -> dict[str, Path]:
        assert suite == "trixie"
        return {name: work / f"{name}.deb" for name in packages}

    def download_nearest(self, suite: str, package: str, release: str, work: Path) -> Path:
        assert (suite, release) == ("trixie", RELEASE)
        return work / f"{package}.deb"

    def run(self, argv: list[str | Path], **_: object) -> command.Completed:
        words = list(map(str, argv))
        said = ""
        match words:
            case ["dpkg-deb", "--extract", package, target] if "user-mode" in package:
                for name, content in self.layout.items():
                    path = Path(target) / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content)
            case ["dpkg-deb", "--field", *_]:
                said = "6.12.107-1"
            case ["tar", "-C", scratch, "--anchored", *excluded, "-xf", archive]:
                assert "--exclude=linux-source-6.12/drivers/*.[ch]" in excluded
                assert archive.endswith("/usr/src/linux-source-6.12.tar.xz")
                source = Path(scratch) / "linux-source-6.12" / EDIT.file
                source.parent.mkdir(parents=True)
                source.write_text("#include <a.h>\nint a;\n")
            case ["make", *rest]:
                self.made.append(rest)
                self._make(rest)
            case ["rm", *_]:
                return REAL_RUN(words)
        return command.Completed(tuple(words), 0, said, "")

    def _make(self, words: list[str]) -> None:
        objects = Path(next(word for word in words if word.startswith("O=")).removeprefix("O="))
        assert (objects / ".config").read_text() == "CONFIG_X=y\n"
        self.edited = (Path(words[words.index("-C") + 1]) / EDIT.file).read_text()
        if words[-1].endswith(".ko"):
            (objects / words[-1]).parent.mkdir(parents=True)
            (objects / words[-1]).write_text("the module")


REAL_RUN = command.run


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeHost:
    fake = FakeHost()
    monkeypatch.setenv("RAIDPROOF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(command, "run", fake.run)
    monkeypatch.setattr(apt, "download", fake.download)
    monkeypatch.setattr(apt, "download_nearest", fake.download_nearest)
    monkeypatch.setattr(rebuild, "require_tools", lambda: None)
    known = catalogue.Kernel("debian/trixie", RELEASE, tmp_path, tmp_path)
    monkeypatch.setattr(uml, "get", lambda _: known)
    return fake


def test_a_module_is_built_once_as_of_the_kernels_release(host: FakeHost) -> None:
    folder = rebuild.rebuilt("debian/trixie", "fs/x/x.ko", EDIT)
    assert sorted(path.name for path in folder.iterdir()) == ["versions", "x.ko"]
    assert (folder / "x.ko").read_text() == "the module"
    assert host.edited == "#include <a.h>\nstatic int planted;\nint a;\n"
    assert [words[-1] for words in host.made] == ["olddefconfig", "modules_prepare", "fs/x/x.ko"]
    assert all({"ARCH=um", "SUBLEVEL=101"} <= set(words) for words in host.made)
    host.made.clear()
    assert rebuild.rebuilt("debian/trixie", "fs/x/x.ko", EDIT) == folder
    assert not host.made
    other = SourceEdit(EDIT.file, "static int other;\n", ())
    assert rebuild.rebuilt("debian/trixie", "fs/x/x.ko", other) != folder


def test_the_configuration_of_another_release_is_not_taken(host: FakeHost, tmp_path: Path) -> None:
    host.layout[MODULES.replace("101", "107")] = host.layout.pop(MODULES)
    with pytest.raises(RigError, match=r"6\.12\.107, and raidproof's cache has 6\.12\.101 .*remove"):
        rebuild.rebuilt("debian/trixie", "fs/x/x.ko", EDIT)
    assert not list((tmp_path / "cache" / "module").iterdir())


@pytest.mark.parametrize("missing", [MODULES, CONFIG])
def test_a_package_of_another_layout_is_refused(host: FakeHost, missing: str) -> None:
    del host.layout[missing]
    with pytest.raises(RigError, match="package user-mode-linux lacks"):
        rebuild.rebuilt("debian/trixie", "fs/x/x.ko", EDIT)


def test_the_source_of_a_modules_neighbours_is_kept() -> None:
    drivers = [one for one in rebuild.unneeded("drivers/md/md-mod.ko") if one.startswith("drivers")]
    assert drivers == ["drivers/[!m]*/*.[ch]"]
    assert "sound/*.[ch]" in rebuild.unneeded("drivers/md/md-mod.ko")
    assert rebuild.unneeded("fs/nfsd/nfsd.ko") == list(rebuild.UNNEEDED)


@pytest.mark.parametrize("release", ["6.12", "6.12.101+deb13", "7.0-rc1"])
def test_a_release_that_make_would_not_build_is_refused(release: str) -> None:
    with pytest.raises(RigError, match="not of the form"):
        rebuild.make_words(release)


def test_missing_programs_are_named_with_the_line_that_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None if name in {"xz", "flex"} else f"/bin/{name}")
    with pytest.raises(RequirementMissing, match=r"needs flex, xz, .*apt-get install .* flex xz-utils\)"):
        rebuild.require_tools()
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    rebuild.require_tools()
