"""The random crash test of a seed: it is legal for its stack, and always the same."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.errors import RequestError
from raidproof.disk.cache import CacheMode
from raidproof.fault import FAULTS, Degraded, Fault, MemberFails, NetworkCut, PowerCut, Resyncing, Scrubbing
from raidproof.fault.schedule import Schedule, ScheduledFault, after_recovery, at
from raidproof.plan.faults import read_fault
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.run.storm.case import Case, draw, survives, why_not
from raidproof.storage.array import MdSpec
from raidproof.storage.array.btrfs import BtrfsRaidSpec
from raidproof.storage.stack import StackSpec

PPL = stack_of().model_copy(
    update={"array": MdSpec(level="5", members=("disk0", "disk1", "disk2", "disk3"), consistency_policy="ppl")}
)
STACKS = [stack_of(), stack_of("6"), stack_of("10"), stack_of("1", members=2), stack_of("0"), PPL]
seeds = st.integers(0, 1 << 32)
stacks = st.sampled_from(STACKS)


@given(seeds, stacks, st.booleans())
def test_each_drawn_schedule_is_accepted_and_possible_in_its_stack(seed: int, stack: StackSpec, beyond: bool) -> None:
    case = draw(seed, [stack], beyond=beyond)
    Schedule.of(case.faults, case.stack).refuse(case.stack)
    assert why_not(case, beyond=beyond) is None
    assert tuple(read_fault(table)[0] for table in case.tables()) == case.faults
    assert case.cache_mode is not CacheMode.LYING


@given(seeds, stacks)
def test_no_more_members_are_lost_than_the_array_survives(seed: int, stack: StackSpec) -> None:
    case = draw(seed, [stack])
    assert len(frozenset().union(*(one.fault.lacked for one in case.faults))) <= survives(stack.array)


@given(seeds)
def test_a_seed_always_draws_the_same(seed: int) -> None:
    assert draw(seed, STACKS) == draw(seed, STACKS)


@given(seeds, st.sets(st.sampled_from(["power-cut", "network-cut", "member-fails"]), min_size=1))
def test_only_the_requested_kinds_are_drawn(seed: int, kinds: set[str]) -> None:
    if kinds == {"member-fails"}:
        with pytest.raises(RequestError, match="no schedule of member-fails is legal"):
            draw(seed, [stack_of("10")], sorted(kinds))
        return
    assert {one.fault.name for one in draw(seed, [stack_of("10")], sorted(kinds)).faults} <= kinds


def test_seeds_draw_every_fault_that_can_be_drawn_and_every_stack() -> None:
    cases = [draw(seed, STACKS) for seed in range(600)]
    possible = {name for name, kind in FAULTS.items() if kind.drawn(Random(1), stack_of()) is not None}
    assert {one.fault.name for case in cases for one in case.faults} == possible
    assert {"power-cut", "member-fails", "network-cut", "nfsd-killed", "scrubbing"} <= possible
    assert {case.stack.model_dump_json() for case in cases} == {one.model_dump_json() for one in STACKS}
    assert {len(case.faults) for case in cases} == {1, 2, 3, 4}


def test_a_partial_parity_log_is_tested_on_disks_without_a_cache() -> None:
    assert {draw(seed, [PPL]).cache_mode for seed in range(20)} == {CacheMode.NONE}
    assert len({draw(seed, [stack_of()]).cache_mode for seed in range(20)}) == 3


FAILS, CUT = at(1, MemberFails("disk1")), at(2, PowerCut())


@pytest.mark.parametrize(
    ("stack", "faults", "reason"),
    [
        (stack_of("10"), [FAILS, CUT], None),
        (PPL, [FAILS, CUT], None),
        (stack_of(), [FAILS, CUT], "dirty and degraded"),
        (stack_of("6"), [FAILS, CUT], "dirty and degraded"),
        (stack_of("6"), [CUT, after_recovery(1, MemberFails("disk1"))], None),
        (stack_of("6"), [FAILS, at(1, Degraded("disk2")), at(2, NetworkCut())], None),
        (stack_of(), [FAILS, at(1, Degraded("disk2")), at(2, NetworkCut())], "lacks 2 members, and survives the loss"),
        (stack_of("6"), [FAILS, at(1, Degraded("disk1")), at(2, NetworkCut())], "lost twice"),
        (stack_of("10"), [FAILS, at(1, Scrubbing()), CUT], "background work"),
        (stack_of("10"), [CUT, after_recovery(1, Resyncing())], "may resync after a crash"),
        (stack_of("0"), [FAILS, CUT], "no redundancy"),
        (stack_of("10"), [FAILS], "only faults that stay in effect"),
    ],
)  # fmt: skip
def test_what_a_stack_does_not_promise_is_not_legal(
    stack: StackSpec, faults: list[ScheduledFault], reason: str | None
) -> None:
    found = why_not(Case(stack, CacheMode.NONE, ("fsync",), tuple(faults)))
    assert found is None if reason is None else reason in str(found)


def test_beyond_permits_what_the_level_does_not_survive() -> None:
    faults = (FAILS, at(1, Degraded("disk2")), CUT)
    assert why_not(Case(stack_of(), CacheMode.NONE, ("fsync",), faults), beyond=True) is None


def test_an_array_that_is_not_of_md_loses_no_members() -> None:
    btrfs = BtrfsRaidSpec(level="1", members=("disk0", "disk1"))
    stack = stack_of().model_copy(update={"array": btrfs})
    drawn: list[Fault | None] = [
        FAULTS[name].drawn(Random(1), stack) for name in ("member-fails", "degraded", "scrubbing")
    ]
    assert drawn == [None, None, None]
