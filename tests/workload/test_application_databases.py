"""The databases of scenarios/applications, on a directory of this host: what their check commands see and say."""

import sqlite3
import sys
from pathlib import Path

import pytest

from raidproof.workload.application import ApplicationSpec
from scenarios.applications.databases import sqlite
from tests.workload.test_application import House, acknowledged


def here(spec: ApplicationSpec) -> ApplicationSpec:
    """Return the application with the Python of this host."""
    words = {name: (sys.executable, *getattr(spec, name)[1:]) for name in ("prepare", "run", "check")}
    return spec.model_copy(update=words)


@pytest.fixture(params=["delete", "wal"])
def house(request: pytest.FixtureRequest, tmp_path: Path) -> House:
    made = House(tmp_path, here(sqlite(request.param, "FULL")))
    made.work()
    return made


def database(house: House) -> Path:
    return house.records.with_name("entries.db")


def test_every_committed_transaction_is_seen(house: House) -> None:
    evidence = house.evidence()
    assert house.status == 0, house.errors
    assert evidence.acknowledged_total == len(acknowledged(house)) > 3
    assert (evidence.lost, evidence.invented, evidence.damaged, evidence.unchecked) == ({}, [], [], [])


def test_a_transaction_that_was_rolled_back_is_missing(house: House) -> None:
    with sqlite3.connect(database(house)) as connection:
        connection.execute("DELETE FROM entry WHERE number = 3")
        connection.execute("UPDATE total SET entries = entries - 1")
    connection.close()
    evidence = house.evidence()
    assert evidence.lost_total == 1
    assert evidence.damaged == []


def test_half_a_transaction_and_another_text_are_damage(house: House) -> None:
    with sqlite3.connect(database(house)) as connection:
        connection.execute("UPDATE entry SET text = 'x' WHERE number = 3")
        connection.execute("DELETE FROM entry WHERE number = 2")
    connection.close()
    evidence = house.evidence()
    assert evidence.lost_total == 2
    assert evidence.damaged == [
        "client1-0-application: operation 3: other-text",
        "client1-0-application: half-a-transaction",
    ]


def test_a_file_that_is_no_database_is_damage_and_a_missing_one_a_loss(house: House) -> None:
    for path in database(house).parent.glob("entries.db*"):
        path.unlink()
    database(house).write_bytes(b"no database " * 1000)
    evidence = house.evidence()
    assert evidence.damaged == ["client1-0-application: malformed"]
    assert evidence.lost_total == evidence.acknowledged_total
    database(house).unlink()
    assert house.evidence().damaged == []
    assert house.evidence().lost_total == evidence.acknowledged_total
