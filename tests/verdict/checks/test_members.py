"""Each check says no to what it is there for, and yes to what a fault may do."""

from pathlib import Path
from typing import Any

import pytest

from raidproof.record.observation import MembersSeen
from raidproof.record.outcome import Outcome
from raidproof.storage.array import parse_examine, serial_of
from raidproof.verdict.checks.members import judge_members
from raidproof.verdict.conditions import Conditions

DATA = Path(__file__).parents[2] / "data" / "mdadm"
SYNC = Conditions(export_sync=True)
EVERYBODY = ["disk0", "disk1", "disk2", "disk3"]
Said = dict[str, dict[str, Any]]


def said(name: str = "whole") -> Said:
    found = parse_examine((DATA / f"examine-4.4-{name}.txt").read_text())
    return {serial_of(path): one.model_dump() for path, one in found.items()}


def judged(before: Said | None = None, end: Said | None = None, **changes: Any) -> tuple[Outcome, str]:
    check: dict[str, Any] = {"start": said(), "before": said(), "end": said(), "active": EVERYBODY, "renewed": []}
    looks = {when: look for when, look in (("before", before), ("end", end)) if look is not None}
    verdict = judge_members(MembersSeen.model_validate(check | looks | changes), SYNC)
    return verdict.outcome, verdict.reason


def test_the_same_array_passes() -> None:
    assert judged()[0] is Outcome.PASS


@pytest.mark.parametrize("when", ["before", "end"])
@pytest.mark.parametrize("field", ["array_uuid", "created"])
def test_an_array_that_was_re_created_fails(when: str, field: str) -> None:
    other = {serial: one | {field: "another"} for serial, one in said().items()}
    outcome, reason = judged(**{when: other})
    assert outcome is Outcome.FAIL
    assert "the array was re-created instead of assembled" in reason


@pytest.mark.parametrize("when", ["before", "end"])
def test_swapped_serials_fail(when: str) -> None:
    look = said()
    look["disk1"], look["disk2"] = look["disk2"], look["disk1"]
    outcome, reason = judged(**{when: look})
    assert outcome is Outcome.FAIL
    assert "serials swapped: disk1 carries the md metadata of disk2" in reason


def test_a_member_in_the_place_of_another_fails() -> None:
    look = said()
    look["disk1"] |= {"role": "Active device 3"}
    assert judged(end=look) == (
        Outcome.FAIL,
        "serials swapped: disk1 was Active device 1 and is Active device 3 (read at the end)",
    )


def test_metadata_that_nobody_asked_to_renew_fails() -> None:
    look = said()
    look["disk1"] |= {"device_uuid": "another"}
    assert judged(end=look)[0] is Outcome.FAIL
    assert judged(end=look, renewed=["disk1"])[0] is Outcome.PASS
    assert judged(before=look, renewed=["disk1"])[0] is Outcome.FAIL


def test_lost_metadata_fails() -> None:
    look = said()
    del look["disk3"]
    assert "disk3 has lost its md metadata" in judged(before=look)[1]
    assert judged(before=look, absent=["disk2"])[0] is Outcome.FAIL
    assert judged(before=look, absent=["disk3"])[0] is Outcome.PASS
    assert judged(end=look, absent=["disk3"])[0] is Outcome.FAIL


def test_a_stale_member_taken_in_as_current_fails() -> None:
    assert judged(before=said("member-out"), start=said("member-out"), end=said("member-out"))[0] is Outcome.FAIL
    look = said()
    look["disk0"]["events"] += 9
    for serial in ("disk2", "disk3"):
        look[serial]["events"] += 9
    outcome, reason = judged(before=look)
    assert (outcome, reason) == (Outcome.FAIL, "md activated the stale member disk1: its event count was 9 behind")


def test_a_stale_member_that_is_left_out_or_rebuilt_passes() -> None:
    look = said()
    look["disk1"]["events"] -= 1
    for serial in EVERYBODY:
        look[serial]["events"] += 9 * (serial != "disk1")
    assert judged(before=look, active=["disk0", "disk2", "disk3"])[0] is Outcome.PASS


def test_a_member_that_falls_out_keeps_its_own_identity() -> None:
    look = said()
    look["disk1"] |= {"role": "spare"}
    assert judged(end=look)[0] is Outcome.PASS


def test_where_the_server_stayed_up_start_and_end_are_enough() -> None:
    check = {"start": said(), "end": said(), "renewed": []}
    assert judge_members(MembersSeen.model_validate(check), SYNC).outcome is Outcome.PASS


@pytest.mark.parametrize("check", [{}, {"start": said()}, {"start": {}, "end": {}, "renewed": []}])
def test_what_was_not_looked_at_has_not_passed(check: dict[str, Any]) -> None:
    assert judge_members(MembersSeen.model_validate(check), SYNC).outcome is Outcome.INCONCLUSIVE


def test_legs_of_a_nested_array_are_looked_at_only_while_they_are_online() -> None:
    legs = said() | {"/dev/md1": said()["disk0"] | {"device_uuid": "leg"}}
    assert judged(start=legs, end=legs)[0] is Outcome.PASS
    assert judged(start=legs)[0] is Outcome.FAIL
    again = legs | {"/dev/md1": legs["/dev/md1"] | {"array_uuid": "another"}}
    assert "/dev/md1: the array was re-created" in judged(start=legs, end=again)[1]


def test_lying_disks_are_named() -> None:
    lying = Conditions(export_sync=True, lying_disks=("disk3",))
    look = said()
    del look["disk3"]
    check = {"start": said(), "before": look, "end": said(), "renewed": []}
    assert "disk3" in str(judge_members(MembersSeen.model_validate(check), lying).blame)


def test_each_assembly_of_a_server_that_went_down_several_times_is_judged() -> None:
    behind = said()
    for serial in EVERYBODY:
        behind[serial]["events"] += 9 * (serial != "disk1")
    earlier = {"before": behind, "active": [one for one in EVERYBODY if one != "disk1"]}
    assert judged(earlier=[earlier])[0] is Outcome.PASS
    outcome, reason = judged(earlier=[earlier | {"active": EVERYBODY}])
    assert outcome is Outcome.FAIL
    assert "md activated the stale member disk1" in reason
    swapped = said()
    swapped["disk1"], swapped["disk2"] = swapped["disk2"], swapped["disk1"]
    assert "(read before assembly 1)" in judged(earlier=[{"before": swapped}])[1]


def test_a_drive_that_was_replaced_before_an_assembly_has_new_metadata() -> None:
    look = said()
    look["disk1"] |= {"device_uuid": "another"}
    assert judged(before=look, end=look, renewed=["disk1"], replaced=["disk1"])[0] is Outcome.PASS
    assert judged(before=look, end=look, renewed=["disk1"], replaced=[])[0] is Outcome.FAIL
