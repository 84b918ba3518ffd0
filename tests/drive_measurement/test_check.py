"""A measurement of a simulated drive, of which it knows nothing, predicts workloads that the fit has not used."""

from statistics import median, quantiles

import pytest

from raidproof.disk.profile import Profile
from raidproof.drive_measurement.check import HELD_BACK, checked
from raidproof.drive_measurement.result import fitted
from raidproof.drive_measurement.sample import usual
from tests.drive_measurement.drives import DRIVES, facts, measured

MEDIAN, NINE_OF_TEN = 0.05, 0.12
"""Greatest accepted deviations of the prediction."""


def deviations(profile: Profile) -> list[float]:
    samples = measured(profile)
    made, _ = fitted(facts(profile), samples)
    return [abs(cell.deviation) for cell in checked(made, usual(samples)).cells]


# `python -m benchmarks.drive_measurement` does the same with all drives, and prints the deviations.
@pytest.mark.parametrize("profile", DRIVES[2::4], ids=lambda profile: profile.name)
def test_the_profile_of_a_measured_drive_predicts_twenty_workloads(profile: Profile) -> None:
    found = deviations(profile)
    assert len(found) == len(HELD_BACK) == 20
    assert median(found) <= MEDIAN
    assert quantiles(found, n=10)[-1] <= NINE_OF_TEN
