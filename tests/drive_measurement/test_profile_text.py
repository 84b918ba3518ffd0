"""The text of a profile gives the same profile again."""

from dataclasses import replace
from pathlib import Path

import pytest

from raidproof.disk.profile import Measured, Profile, load_profile
from raidproof.drive_measurement.profile_text import profile_text
from tests.drive_measurement.drives import SHIPPED


@pytest.mark.parametrize("profile", SHIPPED, ids=lambda profile: profile.name)
def test_a_profile_is_read_as_it_was_written(profile: Profile, tmp_path: Path) -> None:
    measured = Measured('a "drive"\\ of Köln', 1.5, -21.0, "reads", "cache.size", "line\nbreak")
    path = tmp_path / f"{profile.name}.toml"
    for one in (profile, replace(profile, measured=measured)):
        path.write_text(profile_text(one))
        assert load_profile(str(path)) == one
