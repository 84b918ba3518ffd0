"""The kinds of worker of scenarios that take turns."""

from collections import defaultdict
from collections.abc import Mapping

import pytest

from raidproof.workload.ledger import KINDS, LedgerSpec
from scenarios import core
from scenarios.rotation import DATA, FOLDERS, GROUPS, ledger_of

NAMES = ("scenarios/faults/test_disks.py::test_one", "/a/b/scenarios/faults/test_disks.py::test_one[x/y]")


@pytest.fixture
def by_folder() -> Mapping[str, set[str]]:
    """The kinds of worker of all recorded scenarios of each folder that takes turns."""
    found: dict[str, set[str]] = defaultdict(set)
    for name in core.load():
        if (folder := name.split("/")[1]) in FOLDERS:
            found[folder].update(ledger_of(name).kinds)
    return found


def test_data_and_the_groups_are_all_kinds() -> None:
    assert sorted((*DATA, *(kind for group in GROUPS for kind in group))) == sorted(KINDS)


def test_each_folder_has_all_kinds(by_folder: Mapping[str, set[str]]) -> None:
    assert by_folder.keys() == FOLDERS
    assert {folder: kinds for folder, kinds in by_folder.items() if kinds != set(KINDS)} == {}


@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_has_data_and_one_group(name: str) -> None:
    kinds = sorted(ledger_of(name).kinds)
    assert kinds in [sorted(DATA + group) for group in GROUPS]
    assert sorted(ledger_of(name).kinds) == kinds


def test_other_scenarios_have_all_kinds() -> None:
    assert ledger_of("scenarios/durability/test_power_cut.py::test_one") == LedgerSpec()
