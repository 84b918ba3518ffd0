"""The example of docs/applications.md works, and its plan is valid."""

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from raidproof.guest import application as guest
from raidproof.plan.cell import matrix_of
from raidproof.plan.plan import read_plan
from raidproof.run.plan_runner import cut_of, key_of
from raidproof.workload.application import ApplicationSpec
from raidproof.workload.command import CommandSpec
from tests.workload.test_application import House, acknowledged

HOME = Path(__file__).resolve().parents[2]
PAGE = (HOME / "docs" / "applications.md").read_text()
PROGRAM, SCENARIO = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
(PLAN,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "orders.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def spec_of_the_scenario() -> ApplicationSpec:
    scope: dict[str, Any] = {}
    exec(SCENARIO, scope)  # noqa: S102  the page's own words
    found = scope["ORDERS"]
    assert isinstance(found, ApplicationSpec)
    python = {"run": (sys.executable, *found.run[1:]), "check": (sys.executable, *found.check[1:])}
    return found.model_copy(update=python)


def test_the_example_works(folder: Path) -> None:
    house = House(folder, spec_of_the_scenario())
    house.work()
    evidence = house.evidence()
    assert len(acknowledged(house)) > 3
    assert (evidence.lost, evidence.invented, evidence.unchecked) == ({}, [], [])
    orders = house.records.with_name("orders")
    orders.write_bytes(orders.read_bytes().replace(b"order 00000002\n", b""))
    assert house.evidence().lost_total == 1


def test_the_example_is_short() -> None:
    assert len([line for line in PROGRAM.splitlines() if line]) <= 20


def test_the_plan_of_the_example_cuts_the_power_of_the_application(folder: Path) -> None:
    matrix = matrix_of(read_plan(tomllib.loads(PLAN), source="orders.toml", name="orders"))
    sync, asynchronous = matrix.cells
    spec = cut_of(matrix.plan, sync, "cut")
    assert spec.ledger.application is not None
    assert spec.ledger.application.run == ("python3", "orders.py", "run")
    assert "orders.py" in spec.ledger.application.content()
    assert key_of(sync) != key_of(asynchronous)
    assert isinstance(sync.workload, CommandSpec)


def test_cells_with_different_applications_have_power_cuts_of_their_own(folder: Path) -> None:
    document = tomllib.loads(PLAN)
    other = {**document["workload"][0], "name": "other", "run": ["python3", "orders.py", "run", "fast"]}
    faster = {**document["workload"][0], "name": "longer", "seconds": 9}
    document |= {"workload": [*document["workload"], other, faster], "axes": {"export": ["sync"]}}
    keys = [key_of(cell) for cell in matrix_of(read_plan(document, source="x", name="x")).cells]
    assert keys[0] != keys[1]
    assert keys[0] == keys[2]


def test_the_page_has_the_words_and_limits_of_the_protocol() -> None:
    for word in (guest.BEGUN, guest.ACKNOWLEDGED):
        assert f"    {word} ID\n" in PAGE
    for word in (guest.PRESENT, guest.WRONG, guest.DAMAGED):
        assert f"| `{word} " in PAGE
    for variable in (guest.DESCRIPTOR, guest.DIRECTORY, guest.SEED):
        assert f"| `{variable}` |" in PAGE
    assert f"from 0 to {guest.GREATEST} " in PAGE
    assert f"at most {guest.LONGEST_REASON} printable" in PAGE
    assert f"at most {guest.LARGEST >> 20} MiB" in PAGE


def test_the_page_describes_every_setting() -> None:
    fields = {*ApplicationSpec.model_fields, *CommandSpec.model_fields} - {"tool"}
    assert {name for name in fields if f"`{name}`" not in PAGE} == set()
