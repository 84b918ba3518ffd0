import re
from pathlib import Path

import pytest

from raidproof.core import command
from raidproof.core.command import Completed
from raidproof.core.errors import RequirementMissing, RigError
from raidproof.image import apt

MIRROR = "http://deb.example/debian"
DATA = Path(__file__).parents[1] / "data"


def failed(text: str) -> Completed:
    return Completed(("mmdebstrap",), 1, text, "")


@pytest.mark.parametrize(
    ("uris", "mirror"),
    [
        ("http://deb.example/debian/\nhttp://deb.example/debian-security/\n", MIRROR),
        ("https://mirror.example/pub/debian/\n", "https://mirror.example/pub/debian"),
        ("http://archive.example/ubuntu/\nhttp://security.example/ubuntu/\n", None),
        ("file:/srv/debian/\n", None),
        ("", None),
    ],
)
def test_the_hosts_own_debian_mirror_is_taken(uris: str, mirror: str | None) -> None:
    assert apt.debian_mirror(uris) == mirror


@pytest.mark.parametrize(("script", "mirror"), [("my $mirror    = 'http://deb.example/debian';", MIRROR), ("", None)])
def test_without_one_mmdebstraps_own_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, mirror: str | None
) -> None:
    (tmp_path / "mmdebstrap").write_text(f"#!/usr/bin/perl\n{script}\n")
    (tmp_path / "mmdebstrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    if mirror is None:
        with pytest.raises(RequirementMissing, match="no Debian mirror"):
            apt.mmdebstraps_mirror()
    else:
        assert apt.mmdebstraps_mirror() == mirror


def test_of_the_hosts_settings_only_those_of_downloads_are_kept() -> None:
    kept = apt.of_acquire((DATA / "apt" / "config-dump.txt").read_text())
    assert 'Acquire::http::Proxy "http://proxy.example:3128";' in kept
    assert not [line for line in kept if "Invoke" in line or "IndexTargets" in line or "Languages" in line]


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("unreachable", RigError, "download failed: E: Failed to fetch .*Connection refused.*check the network"),
        ("full", RigError, "file system of /scratch is full .*RAIDPROOF_CACHE"),
        ("no-subuid", RequirementMissing, "no subordinate user ids .*usermod"),
    ],
)
def test_a_failed_build_is_reported_in_one_line(name: str, kind: type[Exception], says: str) -> None:
    text = (DATA / "mmdebstrap" / f"{name}.txt").read_text()
    error = apt.explain(failed(text), "building", Path("/scratch"))
    assert type(error) is kind
    assert "\n" not in str(error)
    with pytest.raises(kind, match=says):
        raise error


def test_a_signature_that_cannot_be_checked_names_the_package() -> None:
    said = "W: GPG error: http://mirror.example/debian sid InRelease: NO_PUBKEY 6ED0E7B82643E131"
    assert "debian-archive-keyring" in str(apt.explain(failed(said), "building", Path("/scratch")))


def test_no_password_of_a_mirror_is_shown() -> None:
    said = "E: Failed to fetch http://user:secret@mirror.example/debian/x.deb  Hash Sum mismatch"
    assert "secret" not in str(apt.explain(failed(said), "building", Path("/scratch")))


@pytest.mark.parametrize("said", ["", "something odd\n"])
def test_an_unexpected_error_is_reported(said: str) -> None:
    error = apt.explain(failed(said), "building", Path("/scratch"))
    assert isinstance(error, RigError)
    assert (said.strip() or "status 1") in str(error)


def test_without_debians_keys_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apt, "KEYRINGS", (Path("/nonexistent"),))
    with pytest.raises(RequirementMissing, match="debian-archive-keyring"):
        apt.source("sid")


class FakeApt:
    """A fake apt that answers and writes files as apt does."""

    def __init__(self, files: tuple[str, ...], fails_at: str = "") -> None:
        self.files = files
        self.fails_at = fails_at
        self.configuration = ""
        self.depends = ""
        self.offers: dict[str, tuple[str, ...]] = {}
        """Versions of every package, by suite."""
        self.fetched: list[str] = []

    def __call__(self, argv: list[str], *, environment: dict[str, str] | None = None, **_: object) -> Completed:
        if "indextargets" in argv:
            return Completed(tuple(argv), 0, f"{MIRROR}/\n", "")
        configuration = Path((environment or {})["APT_CONFIG"])
        self.configuration = configuration.read_text()
        if self.fails_at in argv:
            return Completed(tuple(argv), 100, "", "E: Failed to fetch http://mirror.example/x  Hash Sum mismatch\n")
        if "madison" in argv:
            suite = (configuration.parent / "sources.list").read_text().split()[-2]
            lines = [f" {argv[-1]} | {one} | {MIRROR} {suite}/main Packages" for one in self.offers.get(suite, ())]
            return Completed(tuple(argv), 0, "\n".join(lines), "")
        if "depends" in argv:
            return Completed(tuple(argv), 0, self.depends, "")
        if "download" in argv:
            self.fetched += argv[argv.index("download") + 1 :]
            for name in self.files:
                (configuration.parent / "archives" / name).touch()
        return Completed(tuple(argv), 0, "", "")


@pytest.fixture
def _keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "keys").touch()
    monkeypatch.setattr(apt, "KEYRINGS", (tmp_path / "keys",))
    monkeypatch.setattr(apt, "acquire_options", list[str])


@pytest.mark.usefixtures("_keys")
def test_packages_are_fetched_apart_from_the_hosts_apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeApt(("libc6_2.43-7_amd64.deb", "user-mode-linux_7.2um1_amd64.deb"))
    monkeypatch.setattr(command, "run", fake)
    found = apt.download("sid", ["user-mode-linux", "libc6"], tmp_path)
    assert {name: path.name for name, path in found.items()} == {
        "user-mode-linux": "user-mode-linux_7.2um1_amd64.deb",
        "libc6": "libc6_2.43-7_amd64.deb",
    }
    assert 'Dir::Etc::parts "/dev/null";' in fake.configuration
    assert f'Dir::State::Lists "{tmp_path}/lists";' in fake.configuration
    assert f"signed-by={tmp_path}/keys target=Packages] {MIRROR} sid main" in (tmp_path / "sources.list").read_text()


@pytest.mark.usefixtures("_keys")
@pytest.mark.parametrize(
    ("offers", "fetched"),
    [
        ({"trixie": ("6.12.117-1", "6.12.113-1"), "trixie-security": ("6.12.113-2",)}, "6.12.113-1"),
        ({"trixie": ("6.12.117-1", "6.12.107-1"), "trixie-security": ("6.12.113-1",)}, "6.12.113-1"),
        ({"trixie": ("6.12.117-1", "6.12.107-1")}, "6.12.117-1"),
    ],
)
def test_the_version_nearest_to_a_release_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offers: dict[str, tuple[str, ...]], fetched: str
) -> None:
    fake = FakeApt(("linux-source-6.12_x_all.deb",))
    fake.offers = offers
    monkeypatch.setattr(command, "run", fake)
    apt.download_nearest("trixie", "linux-source-6.12", "6.12.113", tmp_path)
    assert fake.fetched == [f"linux-source-6.12={fetched}"]


@pytest.mark.usefixtures("_keys")
def test_a_package_without_versions_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "run", FakeApt(()))
    with pytest.raises(RigError, match=r"Debian sid has no package linux-source-7\.2"):
        apt.download_nearest("sid", "linux-source-7.2", "7.2.1", tmp_path)


@pytest.mark.usefixtures("_keys")
@pytest.mark.parametrize("at", ["update", "download"])
def test_a_broken_download_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    monkeypatch.setattr(command, "run", FakeApt((), fails_at=at))
    with pytest.raises(RigError, match=r"download failed.*Hash Sum mismatch"):
        apt.download("sid", ["libc6"], tmp_path)


@pytest.mark.usefixtures("_keys")
def test_a_package_that_was_not_installed_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "run", FakeApt(()))
    with pytest.raises(RigError, match="0 files that match libc6"):
        apt.download("sid", ["libc6"], tmp_path)


@pytest.mark.usefixtures("_keys")
def test_the_dependencies_of_a_metapackage_are_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeApt(("linux-image-7.2-cloud_7.2_amd64.deb", "linux-modules-7.2-cloud_7.2_amd64.deb"))
    monkeypatch.setattr(command, "run", fake)
    fake.depends = (
        "linux-image-cloud-amd64\n  Depends: linux-image-7.2-cloud\nlinux-image-7.2-cloud\n"
        "linux-modules-7.2-cloud\n<linux-initramfs-tool>\n  dracut\nlinux-base\n"
    )
    wanted = re.compile(r"linux-(?:image|modules)-\d.*")
    found = apt.download_behind("sid", "linux-image-cloud-amd64", wanted, tmp_path / "a")
    assert list(found) == ["linux-image-7.2-cloud", "linux-modules-7.2-cloud"]
    fake.depends = "linux-image-cloud-amd64\n"
    with pytest.raises(RigError, match="depends on no package"):
        apt.download_behind("sid", "linux-image-cloud-amd64", wanted, tmp_path / "b")
