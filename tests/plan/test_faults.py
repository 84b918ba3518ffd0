"""The tables ``[[fault]]`` of a plan: moments, repetitions, the way back, and what is refused."""

import json
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from raidproof.core.errors import RequestError
from raidproof.core.registry import is_built_in
from raidproof.disk.cache import CutPolicy
from raidproof.fault import FAULTS, Degraded, MemberFails, NetworkCut, PowerCut
from raidproof.fault.schedule import (
    ScheduledFault,
    after_recovery,
    after_replies,
    at,
    in_recovery,
    when_served,
)
from raidproof.plan.cell import Matrix
from raidproof.plan.dry_run import dry_run
from raidproof.plan.faults import read_fault, read_faults, table_of
from raidproof.plan.forecast import cut_s, describe, expect
from raidproof.plan.free_axes import free_of
from raidproof.plan.plan import Plan
from raidproof.plan.schema import fault_tables, plan_schema

CUT = {"kind": "power-cut", "at": 5}


def test_each_moment_has_a_key() -> None:
    text = """
        fault = [
            { kind = "member-fails", serial = "disk1", at = "1s", lasts = 2 },
            { kind = "power-cut", policy = "torn", seed = 3, at = 2.5 },
            { kind = "power-cut", in_recovery = "assemble" },
            { kind = "network-cut", held_s = 1, when_served = true },
            { kind = "power-cut", after_replies = 200 },
            { kind = "power-cut", after_recovery = "300ms" },
        ]
    """
    assert read_faults(tomllib.loads(text)["fault"]) == (
        at(1.0, MemberFails("disk1"), lasts_s=2.0),
        at(2.5, PowerCut(CutPolicy.TORN, 3)),
        in_recovery("assemble", PowerCut()),
        when_served(NetworkCut(held_s=1.0)),
        after_replies(200, PowerCut()),
        after_recovery(0.3, PowerCut()),
    )


def test_a_fault_at_an_instant_is_repeated_until_the_next_one_begins() -> None:
    flaps = {"kind": "network-cut", "held_s": 1, "at": 1, "every": "2s"}
    seconds = [one.moment.seconds for one in read_faults([flaps, CUT])]  # type: ignore[union-attr]
    assert seconds == [1.0, 3.0, 5.0]


def test_repetitions_with_a_number_mix_with_later_faults_in_the_order_of_time() -> None:
    flaps = {"kind": "network-cut", "at": 1, "every": 3, "times": 3}
    assert [str(one) for one in read_faults([flaps, CUT])] == [
        "at 1 s network-cut",
        "at 4 s network-cut",
        "at 5 s power-cut",
        "at 7 s network-cut",
    ]


def test_a_moment_without_an_instant_is_repeated_by_its_number() -> None:
    again = {"kind": "power-cut", "in_recovery": "boot", "times": 2}
    assert read_faults([CUT, again]) == (at(5, PowerCut()), *[in_recovery("boot", PowerCut())] * 2)


@pytest.mark.parametrize(
    ("tables", "reason"),
    [
        ([{"at": 1}], "kind is missing .*power-cut"),
        ([{"kind": "powr-cut", "at": 1}], "no fault is named 'powr-cut'; did you mean 'power-cut'"),
        ([CUT | {"polcy": "drop"}], "fault power-cut: unknown key 'polcy'; did you mean 'policy'"),
        ([CUT | {"policy": "tear"}], "fault power-cut: policy: .*'torn'"),
        ([{"kind": "member-fails", "at": 1}], "fault member-fails: serial: is missing"),
        ([{"kind": "power-cut"}], "has no moment; write exactly one of at, after_replies"),
        ([CUT | {"after_replies": 3}], "has at and after_replies; write exactly one"),
        ([CUT | {"times": 2}], "times = 2 at the same instant; write every"),
        ([CUT | {"every": 2}], "every = 2 has no end.*write times"),
        ([CUT | {"every": 0.001, "times": 1001}], "times: .*1000"),
        ([CUT | {"at": 0, "every": 0.001}, CUT], "more than 1,000 repetitions"),
        ([CUT, {"kind": "power-cut", "after_recovery": 1, "every": 3}], "table 2 of 2: .*every needs at"),
        ([CUT, {"kind": "power-cut", "in_recovery": "resync"}], "in_recovery: .*'assemble'"),
        ([CUT, {"kind": "power-cut", "in_recovery": "boot", "lasts": 1}], "lasts is not possible with in_recovery"),
        ([CUT, CUT | {"at": 1}], "at 1 s is earlier than the fault before, at 5 s"),
        ([CUT | {"lasts": -1}], "lasts: .*greater than or equal to 0"),
    ],
)
def test_what_cannot_be_is_refused(tables: list[dict[str, Any]], reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        read_faults(tables)


FAULTS_WITH = [PowerCut(CutPolicy.RANDOM, 7), NetworkCut(held_s=1.5), MemberFails("disk1"), Degraded("disk2")]


@given(
    st.sampled_from(FAULTS_WITH),
    st.one_of(
        st.builds(at, st.floats(0, 100), st.just(PowerCut())),
        st.builds(after_replies, st.integers(1, 1000), st.just(PowerCut())),
        st.builds(after_recovery, st.floats(0, 100), st.just(PowerCut())),
        st.just(in_recovery("mount", PowerCut())),
        st.just(when_served(PowerCut())),
    ),
    st.none() | st.floats(0, 100),
)
def test_a_fault_survives_the_way_through_a_table(fault: Any, moment: ScheduledFault, lasts_s: float | None) -> None:
    lasts_s = None if str(moment.moment).startswith("in the recovery") else lasts_s
    scheduled = ScheduledFault(fault, moment.moment, lasts_s)
    assert read_fault(json.loads(json.dumps(table_of(scheduled))))[0] == scheduled


def test_a_plan_has_faults_only_with_crash_tests(read: Callable[..., Plan]) -> None:
    with pytest.raises(RequestError, match=r'fault: the plan has no crash tests; write cut = "power" under \[run\]'):
        read(fault=[CUT])
    with pytest.raises(RequestError, match="explore_members is not possible"):
        read(fault=[CUT], run={"cut": "explore", "explore_members": ["lost"]})
    with pytest.raises(RequestError, match=r"fault: fault power-cut: unknown key"):
        read(fault=[CUT | {"x": 1}], run={"cut": "power"})
    assert read(fault=CUT, run={"cut": "power"}).faults == (at(5, PowerCut()),)


def test_a_fault_that_a_cell_cannot_have_makes_the_cell_impossible(make: Callable[..., Matrix]) -> None:
    fails = {"kind": "member-fails", "serial": "disk3", "at": 1}
    matrix = make({"level": [0, 5], "members": [3, 4]}, fault=[fails, CUT], run={"cut": "power"})
    assert [cell.name for cell in matrix.cells] == ["level=5 members=4"]
    reasons = {one.name: one.reason for one in matrix.impossible}
    assert "RAID0 has no redundancy" in reasons["level=0 members=4"]
    assert "fault member-fails: member: unknown value 'disk3'" in reasons["level=5 members=3"]
    with pytest.raises(RequestError, match="only faults that stay in effect"):
        make(fault=[fails], run={"cut": "power"})


def test_faults_are_part_of_what_a_resumed_run_must_share(make: Callable[..., Matrix]) -> None:
    digests = {make(run={"cut": "power"}, fault=faults).digest for faults in ([], [CUT], [CUT | {"at": 6}])}
    assert len(digests) == 3


def test_a_description_has_the_faults_and_their_time(make: Callable[..., Matrix]) -> None:
    again = {"kind": "power-cut", "after_recovery": 30}
    one, two = make(run={"cut": "power"}), make(run={"cut": "power"}, fault=[CUT, again])
    assert cut_s(two.plan, two.cells[0]) >= cut_s(one.plan, one.cells[0]) + 35
    assert expect(two).cut_s > expect(one).cut_s
    console = Console(width=300)
    with console.capture() as printed:
        console.print(describe(two))
    assert "faults: at 5 s power-cut; 30 s after the recovery power-cut; once for each" in printed.get()
    assert dry_run(two, two.plan.run.platform).faults == ["at 5 s power-cut", "30 s after the recovery power-cut"]


def test_advice_is_refused(read: Callable[..., Plan]) -> None:
    with pytest.raises(RequestError, match=r"the plan has tables \[\[fault\]\] \(remove"):
        free_of(read({"chunk": ["64KiB", "128KiB"]}, fault=[CUT], run={"cut": "power"}))


def test_the_schema_lacks_a_fault_whose_arguments_no_file_can_have() -> None:
    @dataclass(frozen=True)
    class Called(PowerCut):
        """A power cut with a function as argument."""

        call: Callable[[], None] = print

    tables = list(fault_tables({"called": Called, "power-cut": PowerCut}))
    assert [one["properties"]["kind"]["const"] for one in tables] == ["power-cut"]


def test_the_schema_has_each_kind_of_fault() -> None:
    schema = plan_schema("plan", "plans", built_in=True)
    kinds = {one["properties"]["kind"]["const"] for one in schema["$defs"]["Fault"]["anyOf"]}
    assert kinds == {name for name, kind in FAULTS.items() if is_built_in(kind)}
    document = {"workload": [{"tool": "dd"}], "run": {"cut": "power"}}
    flap = {"kind": "network-cut", "held_s": 1, "at": "1s", "every": 10, "times": 3, "way": "both"}
    jsonschema.validate(document | {"fault": [flap, CUT]}, schema)
    for wrong in ({"kind": "power-cut", "serial": "disk1", "at": 1}, {"kind": "no-such", "at": 1}, {"at": 1}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(document | {"fault": [wrong]}, schema)
