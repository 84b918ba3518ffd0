import io
import tarfile
from pathlib import Path

import pytest

from raidproof.core.errors import RequestError
from raidproof.image import image, recipe
from raidproof.image.recipe import ImageRecipe


def written(folder: Path, text: str) -> ImageRecipe:
    (folder / "recipe.toml").write_text(text)
    return recipe.load(recipe.find(str(folder)))


@pytest.mark.parametrize("name", image.names())
def test_every_image_of_ours_holds_our_files_and_names_its_suite(name: str) -> None:
    declared = recipe.load(recipe.find(name))
    assert declared.suite == name.removeprefix("debian/").partition("-")[0]
    assert {"mdadm", "nfs-kernel-server", "xfsprogs"} <= set(declared.packages)
    assert declared.size == 1 << 30
    with tarfile.open(fileobj=io.BytesIO(declared.content())) as archive:
        modes = {member.name: member.mode for member in archive}
    assert modes["usr/sbin/raidproof-init"] == 0o755
    assert modes["etc/ssh/sshd_config"] == 0o644


def test_the_default_is_one_of_them() -> None:
    assert image.DEFAULT in image.names()


def test_what_only_others_extend_is_no_image() -> None:
    assert not {"guest", "debian"} & set(image.names())


@pytest.mark.parametrize(
    ("asked", "says"),
    [("debian/trixei", "did you mean 'debian/trixie'"), ("debian", "valid: debian/bookworm"), (".", "no recipe.toml")],
)
def test_a_typo_names_the_nearest(asked: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RequestError, match=says):
        recipe.find(asked)


def test_a_folder_extends_an_image_with_files_that_lie_beside_its_recipe(tmp_path: Path) -> None:
    (tmp_path / "nfs.conf").write_text("[nfsd]\n")
    (tmp_path / "sshd").write_text("# another one\n")
    declared = written(
        tmp_path,
        'extends = "debian/sid"\npackages = ["strace", "mdadm"]\nsize = "2GiB"\n'
        '[files]\n"nfs.conf" = { to = "etc/nfs.conf", mode = 0o644 }\n'
        '"sshd" = { to = "etc/ssh/sshd_config", mode = 0o600 }\n',
    )
    sid = recipe.load(recipe.find("debian/sid"))
    assert declared.suite == "sid"
    assert declared.size == 2 << 30
    assert declared.packages == (*sid.packages, "strace")
    with tarfile.open(fileobj=io.BytesIO(declared.content())) as archive:
        # The last one of a name is what is unpacked.
        files = {member.name: member.mode for member in archive}
    assert files["etc/nfs.conf"] == 0o644
    assert files["etc/ssh/sshd_config"] == 0o600
    assert "usr/sbin/raidproof-init" in files


def test_a_root_needs_nothing_of_debians_and_gets_our_files(tmp_path: Path) -> None:
    (tmp_path / "root.tar").touch()
    declared = written(tmp_path, 'root = "root.tar"\n')
    assert declared.root == tmp_path / "root.tar"
    assert not declared.packages
    assert "sshd" in declared.programs
    assert any(file.to == "usr/sbin/raidproof-init" for file in declared.files.values())


def test_what_goes_in_is_the_same_wherever_it_lies(tmp_path: Path) -> None:
    contents = set()
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "own").write_text("same")
        text = 'extends = "debian/sid"\n[files]\n"own" = { to = "etc/own", mode = 0o644 }\n'
        contents.add(written(tmp_path / name, text).content())
    assert len(contents) == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "either suite .* or root"),
        ('suite = "sid"\nroot = "root.tar"', "either suite .* or root"),
        ('root = "root.tar"\npackages = ["a"]', "not to a root"),
        ('root = "other.tar"', r"no file .*other\.tar"),
        ('suite = "sid"\npackage = 1', "package: Extra inputs"),
        ('suite = "sid"\n[files]\n"own" = { to = "etc/own", mode = 0o644 }', "no file .*own"),
        ('suite = "sid"\n[files]\n"root.tar" = { to = "/etc/own", mode = 0o644 }', "files.*to"),
        ('extends = "debain"', "extends: did you mean 'debian'"),
        ("suite =", r"recipe\.toml is not a valid TOML file: "),
    ],
)
def test_an_error_in_a_recipe_is_reported_with_its_place(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "root.tar").touch()
    with pytest.raises(RequestError, match=says) as raised:
        written(tmp_path, text)
    assert "recipe.toml" in str(raised.value)
