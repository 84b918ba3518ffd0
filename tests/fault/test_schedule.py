"""The order of the faults of a crash test: which is the main one, and which orders are refused."""

import pytest

from raidproof.core.errors import RequestError
from raidproof.disk.cache import CutPolicy
from raidproof.fault import (
    FAULTS,
    CleanReboot,
    ClientPowerCut,
    Degraded,
    Fault,
    FilesystemFull,
    KernelPanic,
    MemberFails,
    NetworkCut,
    NfsdRestart,
    PowerCut,
    SlowMember,
)
from raidproof.fault.schedule import (
    InRecovery,
    RecoveryStage,
    Schedule,
    ScheduledFault,
    after_recovery,
    after_replies,
    at,
    in_recovery,
    when_served,
)
from raidproof.pytest_plugin.fixtures import stack_of

STACK = stack_of()


def names(schedule: Schedule) -> tuple[list[str], str | None, list[str]]:
    main = schedule.main
    return (
        [one.scheduled.fault.name for one in schedule.earlier],
        None if main is None else main.scheduled.fault.name,
        [one.scheduled.fault.name for one in schedule.later],
    )


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        ([at(1, MemberFails("disk1")), at(2, PowerCut())], (["member-fails"], "power-cut", [])),
        ([at(1, PowerCut()), after_recovery(1, PowerCut())], ([], "power-cut", ["power-cut"])),
        ([at(1, NetworkCut()), at(3, NetworkCut())], ([], "network-cut", ["network-cut"])),
        ([at(1, NetworkCut()), at(3, PowerCut())], (["network-cut"], "power-cut", [])),
        ([at(1, CleanReboot()), after_recovery(0, KernelPanic())], (["clean-reboot"], "kernel-panic", [])),
        ([after_replies(9, NfsdRestart()), at(1, ClientPowerCut())], (["nfsd-restart"], "client-power-cut", [])),
        ([at(1, PowerCut()), at(1, SlowMember("disk1"))], ([], "power-cut", ["slow-member"])),
    ],
)
def test_the_main_fault_is_the_first_that_loses_memory_or_the_first_that_ends(
    faults: list[ScheduledFault], expected: tuple[list[str], str, list[str]]
) -> None:
    assert names(Schedule.of(faults, STACK)) == expected


def test_power_cuts_in_a_recovery_belong_to_the_fault_before() -> None:
    faults = [
        at(1, PowerCut()),
        in_recovery("assemble", PowerCut()),
        in_recovery("boot", PowerCut()),
        at(9, PowerCut()),
    ]
    schedule = Schedule.of(faults, STACK)
    assert names(schedule) == ([], "power-cut", ["power-cut"])
    assert schedule.main is not None
    moments = [one.moment for one in schedule.main.interruptions]
    assert moments == [InRecovery(RecoveryStage.ASSEMBLE), InRecovery(RecoveryStage.BOOT)]
    assert len(schedule.faults) == 4


def test_the_short_form_is_a_schedule() -> None:
    schedule = Schedule.short([Degraded("disk1")], PowerCut(CutPolicy.TORN))
    assert (names(schedule), schedule.conditions) == (([], "power-cut", []), (Degraded("disk1"),))
    assert schedule.is_short
    assert Schedule.short([], None).is_short
    assert not Schedule.of([at(1, PowerCut())], STACK).is_short


def refused(*faults: ScheduledFault) -> str:
    with pytest.raises(RequestError) as raised:
        Schedule.of(faults, STACK)
    return str(raised.value)


def test_an_impossible_order_is_refused() -> None:
    assert "at 1 s is earlier than the fault before, at 2 s" in refused(at(2, PowerCut()), at(1, PowerCut()))
    assert "at -1 s is earlier" in refused(at(-1, PowerCut()))
    assert "after_recovery needs a fault before it" in refused(after_recovery(1, PowerCut()))
    assert "after_recovery needs a fault before it" in refused(
        at(1, MemberFails("disk1")), after_recovery(1, PowerCut())
    )
    assert "needs a power cut of the server before it" in refused(in_recovery("mount", PowerCut()))
    assert "needs a power cut of the server before it" in refused(
        at(1, KernelPanic()), in_recovery("boot", PowerCut())
    )
    assert "only a power cut" in refused(at(1, PowerCut()), in_recovery("boot", ClientPowerCut()))
    for other in (NetworkCut(), ClientPowerCut()):
        assert "when_served needs a fault of the server's machine" in refused(at(1, other), when_served(PowerCut()))
    assert "when_served needs a fault that ends" in refused(at(1, PowerCut()), when_served(MemberFails("disk1")))
    assert "only faults that stay in effect" in refused(at(1, MemberFails("disk1")))
    with pytest.raises(RequestError, match="has no stage 'resync'"):
        in_recovery("resync", PowerCut())
    with pytest.raises(RequestError, match="lasts_s is -1"):
        at(1, PowerCut(), lasts_s=-1)


def test_a_file_system_stays_full_while_the_schedule_continues_if_it_says_how_long() -> None:
    full = FilesystemFull(held_s=0)
    assert at(1, full, lasts_s=2).stays
    assert not at(1, full).stays
    assert not at(1, PowerCut(), lasts_s=2).stays
    assert {name for name, kind in FAULTS.items() if kind.may_last} == {"filesystem-full", "inodes-exhausted"}


def test_only_a_fault_of_members_or_of_their_work_stays_in_effect() -> None:
    def stays(kind: type[Fault]) -> bool:
        return kind.lasting

    assert {name for name, kind in FAULTS.items() if stays(kind)} == {
        "defective-drives",
        "degraded",
        "flushes-dropped",
        "member-fails",
        "member-vanishes",
        "rebuilding",
        "reshaping",
        "resyncing",
        "scrubbing",
        "second-member-fails",
        "slow-member",
    }
