"""Several faults together excuse what one of them excuses, each in its own time, and no more."""

from errno import EIO, ENOSPC, ETIMEDOUT
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.blame import Blame, Culprit
from raidproof.disk.cache import CutPolicy
from raidproof.fault.fault import FaultEffects, combined
from raidproof.record.outcome import Outcome
from raidproof.record.run import CrashTestRecord, FaultRecord, Recovery
from raidproof.verdict.checks.errors import judge_errors
from raidproof.verdict.conditions import Conditions, exactly_once
from raidproof.verdict.window import Window, combined_by, first_ns, windows_of
from raidproof.workload.history import Ended, History, Operation

FLAGS = [name for name, field in FaultEffects.model_fields.items() if field.annotation is bool]
ERRNOS = (EIO, ENOSPC, ETIMEDOUT)
EFFECTS = st.builds(
    FaultEffects,
    **{name: st.booleans() for name in FLAGS},
    caches=st.none() | st.sampled_from(CutPolicy),
    errors=st.frozensets(st.sampled_from(ERRNOS)),
    kernel_messages=st.lists(st.sampled_from(["a", "b"]), unique=True).map(tuple),
    explanation=st.none() | st.sampled_from(Culprit).map(lambda culprit: Blame(culprit=culprit)),
)
INSTANTS = st.none() | st.integers(0, 100)
WINDOWS = st.builds(
    Window,
    EFFECTS,
    begun_ns=INSTANTS,
    at_ns=INSTANTS,
    served_until_ns=INSTANTS,
    served_ns=INSTANTS,
    healed_ns=INSTANTS,
)
OPERATIONS = st.builds(
    lambda kind, begun, took, error: Operation(0, 0, kind, 0, 0, begun, begun + took, Ended.FAILED, error, begun),
    st.sampled_from(["fsync", "mkdir", "o_append"]),
    st.integers(0, 100),
    st.integers(0, 50),
    st.sampled_from(ERRNOS),
)


def allows(more: FaultEffects, less: FaultEffects) -> bool:
    """Return whether some effects excuse at least what others excuse."""
    return (
        all(getattr(more, name) >= getattr(less, name) for name in FLAGS)
        and more.errors >= less.errors
        and {*more.kernel_messages} >= {*less.kernel_messages}
        and (more.explanation is not None) >= (less.explanation is not None)
        and (more.caches is CutPolicy.TORN) >= (less.caches is CutPolicy.TORN)
    )


@given(st.lists(EFFECTS, max_size=4), EFFECTS)
def test_a_further_fault_makes_no_promise_stricter(effects: list[FaultEffects], more: FaultEffects) -> None:
    assert allows(combined([*effects, more]), combined(effects))
    assert allows(combined([*effects, more]), more)


@given(st.lists(EFFECTS, min_size=1, max_size=4), st.data())
def test_two_equal_faults_excuse_no_more_than_one(effects: list[FaultEffects], data: st.DataObject) -> None:
    again = data.draw(st.sampled_from(effects))
    assert combined([*effects, again]) == combined(effects)


@given(EFFECTS)
def test_one_fault_excuses_what_it_declares(effects: FaultEffects) -> None:
    assert combined([effects]) == effects
    assert combined([]) == FaultEffects()


@given(st.lists(EFFECTS, max_size=4), st.randoms(use_true_random=False))
def test_the_order_of_the_faults_does_not_matter_but_for_the_blame(effects: list[FaultEffects], random: Any) -> None:
    other = random.sample(effects, len(effects))
    both = [
        combined(many).model_copy(update={"explanation": None, "kernel_messages": ()}) for many in (effects, other)
    ]
    assert both[0] == both[1]


@given(st.lists(WINDOWS, max_size=3), WINDOWS, st.lists(OPERATIONS, max_size=4))
def test_a_further_fault_turns_no_excused_error_into_a_failure(
    windows: list[Window], more: Window, failed: list[Operation]
) -> None:
    def fails(known: list[Window]) -> bool:
        conditions = Conditions(export_sync=True, windows=tuple(known))
        return judge_errors(History(failed), conditions).outcome is Outcome.FAIL

    assert fails(windows) >= fails([*windows, more])
    assert fails([*windows, more]) == fails([*windows, more, more])


@given(st.lists(WINDOWS, max_size=4), st.integers(0, 100))
def test_a_fault_excuses_nothing_before_it_begins(windows: list[Window], instant: int) -> None:
    begun = [one for one in windows if one.begun_ns is not None and one.begun_ns <= instant]
    assert combined_by(windows, instant) == combined(one.effects for one in begun)
    assert allows(combined_by(windows, None), combined_by(windows, instant))


def test_an_error_must_be_of_the_fault_in_whose_time_it_falls() -> None:
    full = Window(FaultEffects(errors=frozenset({ENOSPC})), begun_ns=100, healed_ns=200)
    soft = Window(FaultEffects(errors=frozenset({EIO})), begun_ns=300, served_ns=400)
    conditions = Conditions(export_sync=True, windows=(full, soft))

    def outcome(error: int, begun: int, ended: int) -> Outcome:
        one = Operation(0, 0, "fsync", 0, 0, begun, ended, Ended.FAILED, error, begun + 10_000_000)
        return judge_errors(History([one]), conditions).outcome

    assert outcome(ENOSPC, 110, 120) is outcome(EIO, 310, 320) is Outcome.PASS
    assert outcome(EIO, 110, 120) is Outcome.FAIL
    assert outcome(ENOSPC, 310, 320) is Outcome.FAIL
    assert outcome(ENOSPC, 90, 99) is outcome(ENOSPC, 250, 260) is Outcome.FAIL


def record(**fields: Any) -> CrashTestRecord:
    common = {"name": "x", "title": "x", "asked": {}, "cache_mode": "volatile", "fault": "power-cut", "seed": 1}
    return CrashTestRecord.model_validate(common | {"effects": FaultEffects()} | fields)


def other(name: str, begun_ns: int, **fields: Any) -> FaultRecord:
    return FaultRecord(fault=name, target="server", proof="", begun_ns=begun_ns, **fields)


def test_the_faults_of_a_record_are_in_the_order_of_their_injection() -> None:
    during = [other("degraded", 0), other("network-cut", 50), other("clean-reboot", 300)]
    cycle = record(fault_begun_ns=100, fault_at_ns=110, resumed_ns=200, during=during)
    assert [one.fault for one in cycle.injected] == ["degraded", "network-cut", "power-cut", "clean-reboot"]
    assert [one.begun_ns for one in windows_of(cycle)] == [0, 50, 100, 300]
    assert [one.fault for one in record(during=during[:1]).injected] == ["degraded", "power-cut"]
    assert cycle.last_resumed_ns == 200


def test_only_a_fault_that_took_the_server_down_ends_what_it_executes() -> None:
    down = other("power-cut", 10, ended_ns=20, resumed_ns=30, recovery=Recovery(assemble_s=1.0))
    assert (down.seen_ns, down.served_until_ns) == (20, 20)
    away = other("network-cut", 10, ended_ns=20, resumed_ns=30)
    assert (away.seen_ns, away.served_until_ns) == (None, 30)


def test_the_first_instant_of_an_effect() -> None:
    missing = FaultEffects(member_missing=True)
    windows = [Window(FaultEffects(), 5), Window(missing, 70), Window(missing, 40), Window(missing, None)]
    assert first_ns([Window(missing, None, at_ns=9)], "member_missing") == 9
    assert first_ns(windows, "member_missing") == 40
    assert first_ns(windows[:1], "member_missing") is first_ns(windows[3:], "member_missing") is None


@pytest.mark.parametrize(
    ("later", "once"),
    [
        ({"begun_ns": 0, "resumed_ns": 10**9}, True),
        ({"begun_ns": 0, "resumed_ns": 100 * 10**9}, False),
        ({"begun_ns": 0, "effects": FaultEffects(nfsd_restarted=True)}, False),
    ],
)
def test_each_fault_must_leave_the_sessions_alive(later: dict[str, Any], once: bool) -> None:
    again = FaultRecord(fault="x", target="server", proof="", **later)
    cycle = record(effective={"mounts": {"client1": {"vers": "4.2"}}}, during=[again])
    assert exactly_once(cycle) is once
