"""Profiles: shipped profiles are valid, impossible drives are refused."""

from dataclasses import asdict
from pathlib import Path

import pytest

from raidproof.core.errors import RequestError
from raidproof.disk.profile import load_profile, profile_names

SHIPPED = {
    *("none", "atlas-10k4", "atlas-10k5", "seagate-st3146707lc", "scsi-15k-72gb", "ide-5400-4gb", "ide-7200-4gb"),
    *("ide-7200-2001", "hdd-7200-sata", "ssd-sata", "nvme-plp"),
}
MEBI = 2**20 / 1e6

GOOD = """
source = "a test"
capacity = 1_000_000_000
interface_mb_s = 100
[rotational]
rpm = 7200
track_to_track_ms = 1.0
average_seek_ms = 8.0
full_stroke_ms = 16.0
write_seek_extra_ms = 1.0
head_switch_ms = 1.0
media_rate_rim_mb_s = 50.0
media_rate_hub_mb_s = 25.0
zones = 10
"""


def written(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text)
    return str(path)


def test_all_are_shipped() -> None:
    assert set(profile_names()) == SHIPPED


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_each_profile_names_its_sources(name: str) -> None:
    profile = load_profile(name)
    assert profile.name == name
    assert profile.source
    assert profile.timed is (name != "none")


@pytest.mark.parametrize(
    ("name", "mebibytes_s"), [("atlas-10k5", 84), ("atlas-10k4", 67), ("seagate-st3146707lc", 75)]
)
def test_rate_is_that_of_the_single_disk(name: str, mebibytes_s: int) -> None:
    assert load_profile(name).sequential_mb_s == pytest.approx(mebibytes_s * MEBI, rel=0.01)


def test_protection_is_as_sold() -> None:
    assert load_profile("nvme-plp").cache.protected
    assert not load_profile("ssd-sata").cache.protected


def test_own_file(tmp_path: Path) -> None:
    profile = load_profile(written(tmp_path, GOOD))
    assert profile.name == "mine"
    assert isinstance(profile.interface_mb_s, float)
    assert asdict(profile)["rotational"]["zones"] == 10


def test_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(RequestError, match="atlas-10k5"):
        load_profile("atlas-10k55")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("rpm = 7200\n", "", "missing key: rpm"),
        ("rpm =", "rmp =", "unknown key 'rmp'.*rpm"),
        ("rpm = 7200", "rpm = 0", "rpm must be more than 0"),
        ("rpm = 7200", 'rpm = "fast"', "expected float"),
        ("capacity = 1_000_000_000", "capacity = 0", "must be more than 0"),
        ("interface_mb_s = 100", "interface_mb_s = 0", "must be more than 0"),
        ("average_seek_ms = 8.0", "average_seek_ms = 20.0", "average_seek_ms .20"),
        ("media_rate_hub_mb_s = 25.0", "media_rate_hub_mb_s = 75.0", "media_rate_hub_mb_s .75"),
        ("[rotational]", "[rotational", "not a valid TOML file"),
    ],
)
def test_what_no_disk_can_be_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        load_profile(written(tmp_path, GOOD.replace(old, new)))


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="cannot be read"):
        load_profile(str(tmp_path / "none.toml"))
