import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from raidproof.core import command
from raidproof.core.command import Completed
from raidproof.core.errors import RequestError, RequirementMissing, RigError
from raidproof.core.topology import SoftwareSpec
from raidproof.image import apt, cache, image, origin, recipe
from raidproof.image.apt import Package
from raidproof.image.recipe import ImageRecipe

DATA = Path(__file__).parents[1] / "data"
STATUS = (
    "Package: nfs-common\nStatus: install ok installed\nSource: nfs-utils\nVersion: 1:2.8.3-1\n\n"
    "Package: mdadm\nStatus: install ok installed\nVersion: 4.4-11\n"
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAIDPROOF_CACHE", str(tmp_path / "cache"))
    (tmp_path / "keys").touch()
    monkeypatch.setattr(
        apt,
        "source",
        lambda suite, components=(): apt.Source("http://deb.example/debian", suite, tmp_path / "keys", components),
    )
    monkeypatch.setattr(apt, "acquire_options", list[str])
    monkeypatch.setattr(origin, "mmdebstrap_version", lambda: "mmdebstrap 1.3.5")
    monkeypatch.setattr(image, "mkfs_version", lambda: "mke2fs 1.47.0")
    return tmp_path / "cache"


@pytest.fixture
def declared() -> ImageRecipe:
    return recipe.load(recipe.find("debian/trixie"))


class FakeTools:
    """A fake that writes the files of mmdebstrap and of the following script; either can fail."""

    def __init__(self, fails: str = "", said: str = "I: success\n") -> None:
        self.fails = fails
        self.said = said
        self.ran: list[list[str]] = []

    def __call__(
        self,
        argv: list[str],
        on_line: Callable[[str], None],
        *,
        environment: dict[str, str],
        pass_fds: tuple[int, ...] = (),
        deadline_s: float,
    ) -> Completed:
        self.ran.append(argv)
        for line in self.said.splitlines():
            on_line(line)
        tool = "mmdebstrap" if "mmdebstrap" in argv else "assemble"
        if tool == self.fails:
            return Completed(tuple(argv), 1, self.said, "")
        if tool == "mmdebstrap":
            with tarfile.open(next(word for word in argv if word.endswith("root.tar")), "w") as archive:
                member = tarfile.TarInfo("./var/lib/dpkg/status")
                member.size = len(STATUS)
                archive.addfile(member, io.BytesIO(STATUS.encode()))
        else:
            os.write(pass_fds[1], b"image")
            os.write(pass_fds[2], b"nfs-common 1:2.8.3-1\nmdadm 4.4-11\n")
        return Completed(tuple(argv), 0, self.said, "")


def test_a_changed_recipe_or_file_or_tool_is_another_image(
    declared: ImageRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = {image.address(declared), image.address(declared)}
    assert len(seen) == 1
    seen.add(image.address(declared.model_copy(update={"packages": (*declared.packages, "strace")})))
    seen.add(image.address(declared.model_copy(update={"size": 2 << 30})))
    seen.add(image.address(declared.model_copy(update={"programs": (*declared.programs, "strace")})))
    copies = {}
    for number, (path, file) in enumerate(declared.files.items()):
        copy = tmp_path / str(number)
        copy.write_bytes(path.read_bytes())
        copies[copy] = file
    elsewhere = declared.model_copy(update={"files": copies})
    assert image.address(elsewhere) in seen
    (tmp_path / "0").write_text("exit\n")
    seen.add(image.address(elsewhere))
    monkeypatch.setattr(image, "mkfs_version", lambda: "mke2fs 1.47.4")
    seen.add(image.address(declared))
    monkeypatch.setattr(origin, "mmdebstrap_version", lambda: "mmdebstrap 1.5.7")
    seen.add(image.address(declared))
    assert len(seen) == 7


def test_a_changed_file_of_ours_fetches_nothing_anew(declared: ImageRecipe, tmp_path: Path) -> None:
    fewer = dict(list(declared.files.items())[1:])
    changed = declared.model_copy(update={"files": fewer})
    assert image.address(changed) != image.address(declared)
    assert origin.address(changed) == origin.address(declared)


def test_the_content_of_a_package_is_part_of_the_address(declared: ImageRecipe, tmp_path: Path) -> None:
    one = Package(tmp_path / "one.deb", "nfs-common", "1:2.8.4-1", "nfs-utils")
    seen = {image.address(declared)}
    for content in ("a", "b"):
        one.path.write_text(content)
        seen.add(image.address(declared, [one]))
    assert len(seen) == 3


def test_an_image_is_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeTools()
    monkeypatch.setattr(command, "follow", fake)
    built = image.get()
    assert built.name == "debian/trixie"
    assert built.packages == {"nfs-common": "1:2.8.3-1", "mdadm": "4.4-11"}
    assert built.path.read_bytes() == b"image"
    assert not built.path.stat().st_mode & 0o222
    assert sorted(path.name for path in built.path.parent.iterdir()) == ["packages.json", "root.ext4"]
    assert image.get() == image.get(SoftwareSpec()) == image.get(SoftwareSpec(image="debian/trixie")) == built
    assert len(fake.ran) == 2


def test_two_machines_with_other_packages_have_other_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeTools()
    monkeypatch.setattr(command, "follow", fake)
    deb = tmp_path / "x.deb"
    deb.write_text("new")
    monkeypatch.setattr(apt, "read", lambda path: Package(path, "nfs-common", "1:2.8.4-1", "nfs-utils"))
    old, new = image.get(SoftwareSpec()), image.get(SoftwareSpec(packages=(str(deb),)))
    assert old.path != new.path
    assert new.replaced == {"nfs-common": "1:2.8.4-1"}
    assert new.name == "debian/trixie + nfs-common 1:2.8.4-1"
    # Both start from one root, which is fetched once.
    assert ["mmdebstrap" in argv for argv in fake.ran] == [True, False, False]


def test_a_package_that_replaces_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "follow", FakeTools())
    monkeypatch.setattr(apt, "read", lambda path: Package(path, "nfs-comon", "1", "other"))
    with pytest.raises(RequestError, match=r"'nfs-comon', .*; did you mean 'nfs-common'"):
        image.get(SoftwareSpec(packages=("x.deb",)))


@pytest.mark.parametrize("fails", ["mmdebstrap", "assemble"])
@pytest.mark.parametrize(
    ("name", "kind"), [("unreachable", RigError), ("full", RigError), ("no-subuid", RequirementMissing)]
)
def test_a_failed_build_leaves_nothing(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch, fails: str, name: str, kind: type[Exception]
) -> None:
    said = (DATA / "mmdebstrap" / f"{name}.txt").read_text()
    monkeypatch.setattr(command, "follow", FakeTools(fails, said))
    with pytest.raises(kind):
        image.get()
    assert not list(own_cache.glob(f"*/*{cache.PARTIAL}"))
    assert not list(own_cache.glob("image/*"))


def test_a_root_that_lacks_programs_is_refused_with_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "follow", FakeTools("assemble", "lacks: mdadm\nlacks: sshd\n"))
    with pytest.raises(RequestError, match="debian/trixie lacks mdadm, sshd"):
        image.get()


def test_too_little_room_for_the_image_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "mkfs.ext4: Could not allocate block in ext2 filesystem while populating file system\n"
    monkeypatch.setattr(command, "follow", FakeTools("assemble", said))
    with pytest.raises(RequestError, match=r"more space than its size .*larger size"):
        image.get()


def test_root_builds_where_nothing_stays_mounted(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeTools()
    monkeypatch.setattr(command, "follow", fake)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    image.get()
    assert all(argv[:2] == ["unshare", "--mount"] for argv in fake.ran)
    assert "--mode=root" in fake.ran[0]


def test_others_build_where_their_subordinate_ids_can_reach(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeTools()
    monkeypatch.setattr(command, "follow", fake)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    image.get()
    fetched, assembled = fake.ran
    assert fetched[0] == "mmdebstrap"
    assert "--mode=unshare" in fetched
    assert assembled[:4] == ["unshare", "--user", "--map-root-user", "--map-auto"]
    script = Path(next(word for word in assembled if word.endswith("/assemble")))
    assert own_cache not in script.parents
    assert not script.parent.exists()


def test_too_little_room_for_the_build_is_reported_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(origin, "ROOM_BYTES", 1 << 62)
    with pytest.raises(RequirementMissing, match="no room to build the guest image"):
        image.get()


def test_what_is_known_of_an_image_is_kept_with_it(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "follow", FakeTools())
    image.get()
    [known] = own_cache.glob("root/*/packages.json")
    assert json.loads(known.read_text())["nfs-common"] == {"version": "1:2.8.3-1", "source": "nfs-utils"}
