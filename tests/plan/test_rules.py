"""Each rule: a configuration for which it fires, and one for which it does not."""

from typing import Any

import pytest

from raidproof.core.units import GIB, KIB, MIB
from raidproof.disk.profile import load_profile
from raidproof.plan.configuration import Configuration, without_barriers, write_cache_of
from raidproof.plan.rules import RULES, Severity, firing

RAID5 = {"level": "5", "members": 4, "chunk_size": 64 * KIB, "policy": "bitmap"}
RAID6 = RAID5 | {"level": "6", "members": 6}
MIRROR = {"level": "1", "members": 2, "policy": "bitmap"}
TB = 10**12

CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "async-export": ({"sync": False}, {"sync": True}),
    "cache-without-barriers": (
        {"write_cache": "volatile", "barriers": False},
        {"write_cache": "protected", "barriers": False},
    ),
    "no-barriers": ({"barriers": False}, {"barriers": True}),
    "soft-mount": ({"recovery": "softerr"}, {"recovery": "hard"}),
    "udp": ({"udp": True}, {"udp": False}),
    "degraded": ({**RAID5, "degraded": 1}, {**RAID5, "degraded": 0}),
    "mismatches": ({**RAID5, "mismatches": 8}, {"level": "0", "members": 4, "mismatches": 8}),
    "no-redundancy": ({"level": "0", "members": 4}, RAID5),
    "no-bitmap": (RAID5 | {"policy": "resync"}, RAID5 | {"policy": "ppl"}),
    "write-hole": (RAID5, RAID5 | {"policy": "journal"}),
    "single-parity-large-drives": (RAID5 | {"member_size": 4 * TB}, RAID6 | {"member_size": 4 * TB}),
    "slow-rebuild": (
        RAID6 | {"member_size": 4 * TB, "sync_speed_max": 10 * MIB},
        RAID6 | {"member_size": 4 * TB, "sync_speed_max": 200 * MIB},
    ),
    "log-on-member-disk": (
        {"log_place": "member's disk", "rotational": True},
        {"log_place": "own disk", "rotational": True},
    ),
    "log-between-data": (
        {"log_place": "members", "rotational": True, "write_cache": "volatile", "sync": True},
        {"log_place": "members", "rotational": True, "write_cache": "protected", "sync": True},
    ),
    "log-on-one-disk": (
        RAID5 | {"log_place": "own disk", "log_mirrored": False},
        RAID5 | {"log_place": "own disk", "log_mirrored": True},
    ),
    "no-journal": ({"log_place": "none"}, {"log_place": "members"}),
    "data-writeback": ({"data_mode": "writeback"}, {"data_mode": "ordered"}),
    "misaligned": (RAID5 | {"su": 64 * KIB, "sw": 4}, RAID5 | {"su": 64 * KIB, "sw": 3}),
    "not-aligned": (RAID5 | {"su": 0, "sw": 0}, MIRROR | {"su": 0, "sw": 0}),
    "odd-chunk": ({"level": "0", "members": 2, "chunk_size": 96 * KIB}, RAID5),
    "small-wsize": (RAID5 | {"wsize": 128 * KIB}, RAID5 | {"wsize": 192 * KIB}),
    "no-wdelay": ({"wdelay": False, "sync": True}, {"wdelay": False, "sync": True, "write_cache": "protected"}),
    "no-wdelay-without-effect": ({"wdelay": False, "sync": False}, {"wdelay": False, "sync": True}),
    "short-grace": ({"grace_s": 30, "lease_s": 90}, {"grace_s": 90, "lease_s": 90}),
    "subtree-check": ({"subtree_check": True}, {"subtree_check": False}),
    "space-before-options": ({"open_to_all": True}, {"open_to_all": False}),
    "mount-sync": ({"sends_at_once": True}, {"sends_at_once": False}),
    "intr": ({"interruptible": True}, {"interruptible": False}),
    "nolock": ({"nolock": True, "vers": "3"}, {"nolock": True, "vers": "4.2"}),
}


def fired(**values: Any) -> set[str]:
    return {rule.name for rule in firing(Configuration(**values))}


def test_every_rule_has_a_case_and_a_name_of_its_own() -> None:
    assert [rule.name for rule in RULES] == list(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_rule_fires(name: str) -> None:
    assert name in fired(**CASES[name][0])


@pytest.mark.parametrize("name", CASES)
def test_a_rule_does_not_fire(name: str) -> None:
    assert name not in fired(**CASES[name][1])


def test_nothing_is_warned_of_what_is_not_known() -> None:
    assert fired() == set()
    assert fired(level="5", members=4) == set()


def test_the_most_severe_warning_is_the_first() -> None:
    rules = firing(Configuration(sync=False, udp=True, interruptible=True, degraded=1, **RAID5))
    order = [list(Severity).index(rule.severity) for rule in rules]
    assert order == sorted(order)
    assert rules[0].severity is Severity.LOSS


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_the_texts_of_a_rule_can_stand_in_a_sentence(rule: Any) -> None:
    assert all(text and not text.endswith(".") for text in (rule.reason, rule.source, rule.remedy))


@pytest.mark.parametrize(
    ("options", "without"),
    [((), False), (("nobarrier",), True), (("barrier=0", "noatime"), True), (("nobarrier", "barrier=1"), False)],
)
def test_the_last_option_decides_about_barriers(options: tuple[str, ...], without: bool) -> None:
    assert without_barriers(options) is without


def test_a_protected_controller_does_not_protect_the_caches_of_the_drives() -> None:
    drive, flash, none = (load_profile(name) for name in ("hdd-7200-sata", "nvme-plp", "none"))
    assert write_cache_of((drive, drive), protected=True) == "volatile"
    assert write_cache_of((flash,)) == "protected"
    assert write_cache_of((none,)) == "none"
    assert write_cache_of((none,), protected=True) == "protected"
    assert write_cache_of((flash, drive)) == "volatile"


def test_a_log_that_the_file_system_can_do_without_is_no_risk() -> None:
    own = RAID5 | {"log_place": "own disk", "log_mirrored": False}
    assert "log-on-one-disk" not in fired(**own, log_needed=False)


def test_a_stripe_of_one_gib_is_no_error() -> None:
    assert "small-wsize" in fired(**(RAID5 | {"chunk_size": GIB, "wsize": MIB}))
