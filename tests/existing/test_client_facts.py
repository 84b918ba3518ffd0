from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.existing.client_facts import ClientFacts, client_facts
from raidproof.existing.given import Given
from raidproof.existing.reports import reports_of
from raidproof.plan.axes import axis_of, read_value
from raidproof.storage.mount import MountSpec

OPTIONS = [
    *(
        "soft",
        "softerr",
        "hard",
        "timeo=14",
        "retrans=5",
        "noac",
        "actimeo=7",
        "acregmin=100",
        "acregmax=200",
        "nocto",
    ),
    *("nolock", "local_lock=all", "local_lock=flock", "lookupcache=pos", "nosharecache", "softreval", "write=wait"),
    *("max_connect=4", "noatime", "nosuid", "fsc", "sec=krb5", "sync", "acdirmax=8", "max_connect=99", "quux"),
]


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
    assert [(one.what, one.why.partition(" ")[0]) for one in found.left_out] == [
        *(("mount option udp", "distributions"), ("mount option intr", "the")),
        ("other options in fstab:2", "this"),
    ]
    taken = {name: fact.value for name, fact in found.settings.items()}
    assert taken == {"vers": "3", "wsize": 4096, "mount": True, "recovery": "soft", "lock": False, "noac": True}
    assert found.configuration == {
        "vers": "3",
        "udp": True,
        "recovery": "soft",
        "wsize": 4096,
        "sends_at_once": True,
        "interruptible": True,
        "nolock": True,
    }


@pytest.mark.parametrize(
    ("options", "settings", "left_out"),
    [
        ("soft,hard,timeo=600,retrans=2", {}, []),
        ("softerr,timeo=14,retrans=5", {"recovery": "softerr", "timeo": "1.4s", "retrans": 5}, []),
        ("timeo=14,timeo=600", {}, []),
        ("acregmin=100,acregmax=200", {"acregmin": 100, "acregmax": 200}, []),
        ("acdirmax=8,acdirmin=4", {"acdirmin": 4, "acdirmax": 8}, []),
        ("acregmin=100", {}, ["acregmin = 100 s is more than acregmax = 60 s; request both"]),
        ("actimeo=600,nocto,nosharecache", {"actimeo": 600, "cto": False, "sharecache": False}, []),
        ("lookupcache=pos,write=eager", {"lookupcache": "positive", "write": "eager"}, []),
        ("softreval,max_connect=4", {"softreval": True, "max_connect": 4}, []),
        ("noatime,nosuid,nordirplus", {"mount_options_client": "noatime,nosuid,nordirplus"}, []),
        ("nolock", {}, ["nolock: NFSv4 clients ignore it, as locks are a part of NFSv4; request vers = 3"]),
        ("timeo=0", {}, ["timeo_s: Input should be greater than 0"]),
        ("fsc", {}, ["no client of a lab has cachefilesd, so that there is no cache on its disk"]),
        ("sec=krb5,sec=krb5p", {"sec": "krb5p"}, []),
        ("sec=krb5p,sec=sys", {}, []),
        ("sec=lkey", {}, ["sec: value: unknown value 'lkey'; valid: krb5, krb5i, krb5p, sys"]),
        ("proto=rdma", {}, ["the lab's machines have no RDMA device"]),
        ("noresvport", {}, ["a plan has no setting for it"]),
        ("write=never", {}, ["write: value: unknown value 'never'; did you mean 'eager'? valid: eager, lazy, wait"]),
    ],
)
def test_options_are_settings_or_have_a_reason(options: str, settings: dict[str, Any], left_out: list[str]) -> None:
    found = facts(f"s:/srv/data /d nfs {options},vers=4.2 0 0")
    taken = {name: fact.value for name, fact in found.settings.items() if name not in {"vers", "mount"}}
    assert taken == settings
    assert [one.why for one in found.left_out] == left_out
    assert all(fact.was_read for fact in found.settings.values())


@given(st.lists(st.sampled_from(OPTIONS), max_size=8), st.sampled_from(["3", "4.0", "4.1", "4.2"]))
def test_each_option_is_in_a_possible_mount_or_has_a_reason(options: list[str], vers: str) -> None:
    """A plan's mount is possible, whatever the options: an impossible one has a reason."""
    found = facts(f"s:/srv/data /d nfs {','.join([*options, f'vers={vers}'])} 0 0")
    fields = {
        axis_of(name).field.removeprefix("mount."): read_value(name, fact.value)
        for name, fact in found.settings.items()
        if name != "mount"
    }
    spec = MountSpec.model_validate({**fields, "sync": "sync" in options or "noac" in options or None})
    named = {one.what.removeprefix("mount option ") for one in found.left_out}
    last = next((one for one in reversed(options) if one in {"hard", "soft", "softerr"}), "hard")
    assert spec.recovery == last
    for option in set(options) - {"hard", "soft", "softerr"}:
        name = option.partition("=")[0]
        written = {one for one in spec.options() if one.partition("=")[0] == name}
        assert written or option in named, (option, spec.options(), named)


def test_without_a_mount_nothing_is_known() -> None:
    found = facts("/dev/sda / ext4 defaults")
    assert found.configuration == {}
    assert found.settings["vers"].why_default


def test_a_mount_that_is_async_by_default_says_so() -> None:
    sources = [
        facts(f"s:/srv/data /d nfs {options} 0 0").settings["mount"].source for options in ("rw", "async", "sync")
    ]
    assert sources == ["implied: no option sync in fstab:1", "fstab:1", "fstab:1"]
