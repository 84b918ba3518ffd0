# Under data/dpkg is what dpkg and apt said in an image of bookworm or trixie that was given nfs-common of trixie, its
# version changed; dpkg's status file is shortened to a few packages.
import shutil
from pathlib import Path

import pytest

from raidproof.core import command
from raidproof.core.command import Completed
from raidproof.core.errors import RequestError
from raidproof.image import apt
from raidproof.image.apt import Installed, Package

DATA = Path(__file__).parents[1] / "data" / "dpkg"
INSTALLED = apt.parse_status((DATA / "status-bookworm.txt").read_text())


def a_package(name: str, source: str = "") -> Package:
    return Package(Path(f"{name}.deb"), name, "1", source or name)


def test_what_is_installed_is_known_with_its_source() -> None:
    assert INSTALLED["nfs-common"] == Installed("1:2.6.2-4+deb12u1", "nfs-utils")
    assert INSTALLED["mdadm"].source == "mdadm"
    # "Source: e2fsprogs (1.47.0-2)": the version of the source is another one.
    assert INSTALLED["libcom-err2"].source == "e2fsprogs"


def test_what_was_removed_is_not_installed() -> None:
    removed = "Package: strace\nStatus: deinstall ok config-files\nVersion: 6.1\n"
    text = f"{removed}\nPackage: x\nStatus: purge ok not-installed\n"
    assert apt.parse_status(text) == {}
    assert apt.parse_status("") == {}


@pytest.mark.parametrize(
    "one", [a_package("nfs-common", "nfs-utils"), a_package("mdadm"), a_package("libnfsidmap-regex", "nfs-utils")]
)
def test_what_replaces_something_is_taken(one: Package) -> None:
    apt.refuse_strangers([one], INSTALLED, "debian/bookworm")


@pytest.mark.parametrize(
    ("name", "says"),
    [("nfs-comon", "no package 'nfs-comon', .*did you mean 'nfs-common'"), ("postgresql", "no package has a similar")],
)
def test_a_package_that_replaces_none_is_refused(name: str, says: str) -> None:
    with pytest.raises(RequestError, match=says):
        apt.refuse_strangers([a_package(name)], INSTALLED, "debian/bookworm")


def test_one_package_twice_is_refused() -> None:
    with pytest.raises(RequestError, match="mdadm is given twice"):
        apt.refuse_strangers([a_package("mdadm"), a_package("mdadm")], INSTALLED, "debian/bookworm")


def test_a_root_without_dpkg_can_have_nothing_replaced() -> None:
    with pytest.raises(RequestError, match="no dpkg packages"):
        apt.refuse_strangers([a_package("mdadm")], {}, "own/fedora")


def test_name_and_version_are_read_from_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.deb").touch()
    text = (DATA / "field-nfs-common.txt").read_text()
    monkeypatch.setattr(command, "run", lambda argv: Completed(tuple(map(str, argv)), 0, text, ""))
    read = apt.read(tmp_path / "x.deb")
    assert (read.name, read.version, read.source) == ("nfs-common", "1:2.8.3-1+raidproof1", "nfs-utils")
    text = text.replace("amd64", "arm64")
    with pytest.raises(RequestError, match=r"for architecture 'arm64', and the machines accept amd64 or all"):
        apt.read(tmp_path / "x.deb")


def test_what_is_no_package_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="there is no file"):
        apt.read(tmp_path / "none.deb")
    if shutil.which("dpkg-deb") is None:
        pytest.skip("no dpkg-deb on this host")
    (tmp_path / "text.deb").write_text("no archive, however long one reads in it")
    with pytest.raises(RequestError, match=r"not a Debian package.*not a Debian format archive"):
        apt.read(tmp_path / "text.deb")


def test_a_package_that_was_just_built_is_read(tmp_path: Path) -> None:
    if shutil.which("dpkg-deb") is None:
        pytest.skip("no dpkg-deb on this host")
    control = tmp_path / "tree" / "DEBIAN" / "control"
    control.parent.mkdir(parents=True)
    control.write_text(
        "Package: mdadm\nVersion: 4.5~rc1-1\nArchitecture: all\nMaintainer: A <a@b>\nDescription: d\n x\n"
    )
    command.succeed(["dpkg-deb", "--build", tmp_path / "tree", tmp_path / "x.deb"])
    assert apt.read(tmp_path / "x.deb") == Package(tmp_path / "x.deb", "mdadm", "4.5~rc1-1", "mdadm")


def test_unmet_dependencies_are_named() -> None:
    said = apt.unmet((DATA / "unmet.txt").read_text())
    assert said == "nfs-kernel-server: Depends: nfs-common (= 1:2.8.3-1) but 1:2.8.3-1+raidproof1 is installed"
    assert apt.refused((DATA / "unmet.txt").read_text()) is None


def test_several_unmet_dependencies_are_all_named() -> None:
    said = apt.unmet((DATA / "unmet-several.txt").read_text())
    assert said is not None
    assert said.startswith("nfs-common: Depends: libc6 (>= 2.38) but 2.36-9+deb12u14 is installed; Depends: libdevm")
    assert "; nfs-kernel-server: Depends: libc6 (>= 2.38) but" in said


def test_a_conflict_is_named() -> None:
    said = (DATA / "conflict.txt").read_text()
    assert apt.refused(said) == "nfs-common conflicts with nfs-kernel-server (<< 1:2.8.2-2~exp1~)"
    assert apt.unmet(said) is None


@pytest.mark.parametrize("said", ["", "The following packages have unmet dependencies:\n", "dpkg"])
def test_a_cut_off_answer_invents_nothing(said: str) -> None:
    assert apt.unmet(said) is None
    assert apt.refused(said) is None
