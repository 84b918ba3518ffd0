from pathlib import Path

import pytest

from raidproof.core.units import GIB, MIB
from raidproof.run.doctor import (
    Outcome,
    cpu_check,
    free_bytes,
    image_is_built,
    memory_check,
    memory_for_tests_check,
    room_check,
    shared_memory_check,
)


@pytest.mark.parametrize(
    ("available", "outcome"), [(8 * GIB, Outcome.OK), (2 * GIB, Outcome.WARNING), (512 * MIB, Outcome.MISSING)]
)
def test_memory(available: int, outcome: Outcome) -> None:
    check = memory_check(available)
    assert check.outcome is outcome
    assert bool(check.remedy) is (outcome is not Outcome.OK)


@pytest.mark.parametrize(("available", "outcome"), [(5 * GIB, Outcome.OK), (5 * GIB - 1, Outcome.WARNING)])
def test_memory_for_the_projects_tests(available: int, outcome: Outcome) -> None:
    check = memory_for_tests_check(available)
    assert check.outcome is outcome
    assert bool(check.remedy) is (outcome is not Outcome.OK)


@pytest.mark.parametrize(("free", "outcome"), [(GIB, Outcome.OK), (GIB - 1, Outcome.MISSING)])
def test_room(free: int, outcome: Outcome) -> None:
    check = room_check("labs", Path("/x"), free, GIB)
    assert (check.outcome, check.name) == (outcome, "room for labs")


@pytest.mark.parametrize(("free", "outcome"), [(3 * GIB, Outcome.OK), (64 * MIB, Outcome.WARNING)])
def test_shared_memory_of_a_container_is_small(free: int, outcome: Outcome) -> None:
    check = shared_memory_check(Path("/dev/shm"), free)
    assert (check.outcome, bool(check.remedy)) == (outcome, outcome is Outcome.WARNING)


def test_one_processor_is_enough_but_slow() -> None:
    assert [cpu_check(cpus).outcome for cpus in (1, 2)] == [Outcome.WARNING, Outcome.OK]


def test_room_of_a_directory_that_is_still_to_be_made(tmp_path: Path) -> None:
    assert free_bytes(tmp_path / "not" / "yet") > 0


def test_a_built_image_needs_no_more_room(tmp_path: Path) -> None:
    assert not image_is_built(tmp_path)
    half = tmp_path / "image" / "abc.partial"
    half.mkdir(parents=True)
    assert not image_is_built(tmp_path)
    built = tmp_path / "image" / "abc"
    half.rename(built)
    (built / "root.ext4").touch()
    assert image_is_built(tmp_path)
