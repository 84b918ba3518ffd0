from typing import Any

import pytest

from raidproof.existing.client_facts import ClientFacts, client_facts
from raidproof.existing.given import Given
from raidproof.existing.reports import reports_of


def facts(*lines: str) -> ClientFacts:
    return client_facts(reports_of([], [Given("fstab", "\n".join(lines))]), "/srv/data")


def values(*lines: str) -> dict[str, Any]:
    return {name: fact.value for name, fact in facts(*lines).settings.items()}


@pytest.mark.parametrize(
    ("type_", "options", "version"),
    [
        ("nfs", "vers=3", "3"),
        ("nfs", "nfsvers=4.1", "4.1"),
        ("nfs", "vers=4", "4.2"),
        ("nfs", "vers=4,minorversion=1", "4.1"),
        ("nfs4", "defaults", "4.2"),
        ("nfs", "defaults", "4.2"),
        ("nfs", "vers=2", "3"),
    ],
)
def test_every_way_to_write_the_version(type_: str, options: str, version: str) -> None:
    assert values(f"s:/srv/data /d {type_} {options} 0 0")["vers"] == version


@pytest.mark.parametrize(
    ("written", "effective"), [("8388608", 1048576), ("65537", 65536), ("1500", 1024), ("100", None), ("1m", 1048576)]
)
def test_a_size_is_what_the_client_makes_of_it(written: str, effective: int | None) -> None:
    assert values(f"s:/srv/data /d nfs wsize={written} 0 0").get("wsize") == effective


def test_the_mount_of_the_export_is_chosen() -> None:
    lines = (
        "s:/other /o nfs vers=3",
        "s:/data /d nfs vers=4.0",
        "t:/else /e nfs vers=4.1",
        "/dev/sda / ext4 defaults",
    )
    assert values(*lines)["vers"] == "4.0"
    assert values("s:/other /o nfs vers=3", "s:/third /d nfs vers=4.0") == {"vers": "4.2"}
    assert values("s:/alone /o nfs vers=3")["vers"] == "3"


def test_what_a_plan_cannot_express_is_named_and_known_to_the_rules() -> None:
    found = facts("s:/srv/data /d nfs soft,udp,intr,nolock,noac,wsize=4096,vers=3", "s:/srv/data /e nfs vers=3")
    assert [one.what for one in found.left_out] == [
        *(f"mount option {option}" for option in ("soft", "udp", "intr", "nolock", "noac")),
        "other options in fstab:2",
    ]
    assert found.configuration == {
        "vers": "3",
        "udp": True,
        "recovery": "soft",
        "wsize": 4096,
        "sends_at_once": True,
        "interruptible": True,
        "nolock": True,
    }


def test_without_a_mount_nothing_is_known() -> None:
    found = facts("/dev/sda / ext4 defaults")
    assert found.configuration == {}
    assert found.settings["vers"].why_default


def test_a_mount_that_is_async_by_default_says_so() -> None:
    sources = [
        facts(f"s:/srv/data /d nfs {options} 0 0").settings["mount"].source for options in ("rw", "async", "sync")
    ]
    assert sources == ["implied: no option sync in fstab:1", "fstab:1", "fstab:1"]
