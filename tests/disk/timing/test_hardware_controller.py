"""Limits that several disks share, and the effect of the controller's cache."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest

from raidproof.core.units import KIB, MIB
from raidproof.disk.profile import load_profile
from raidproof.disk.timing.hardware import _DESTAGED as DESTAGED
from raidproof.disk.timing.hardware import Battery, Controller, ControllerSpec, Hardware, drive
from raidproof.disk.timing.request import Calendar, Op, Request, Usage
from raidproof.disk.timing.rotational import Placement

PROFILE = load_profile("scsi-15k-72gb")
RATE = PROFILE.sequential_mb_s
LONG = 128 * KIB
SECONDS = 3


def behind(controllers: list[ControllerSpec], homes: list[str | None]) -> Hardware:
    """Return one disk for each controller in the list."""
    return Hardware([(PROFILE, PROFILE.capacity, Placement.SPREAD, home) for home in homes], controllers)


def streams(op: Op, members: list[int]) -> Iterator[Request]:
    """Read several disks sequentially at the same time."""
    return (Request(op, number * LONG, LONG, member=member) for number in count() for member in members)


def mb_s(hardware: Hardware, op: Op, members: list[int]) -> float:
    """Return the total rate of all disks with full caches."""
    done = drive(hardware, streams(op, members), 2 * len(members), until_ns=SECONDS * 10**9)
    late = [request for request in done if (request.done_ns or 0) > 10**9]
    return len(late) * LONG / (SECONDS - 1) / 1e6


@pytest.mark.parametrize("op", [Op.READ, Op.WRITE])
@pytest.mark.parametrize("disks", [2, 4])
def test_a_shared_path_is_shared(op: Op, disks: int) -> None:
    hardware = behind([ControllerSpec("c0", RATE)], ["c0"] * disks)
    assert mb_s(hardware, op, list(range(disks))) == pytest.approx(RATE, rel=0.03)


@pytest.mark.parametrize("op", [Op.READ, Op.WRITE])
def test_a_path_as_fast_as_its_one_disk_does_not_slow_it(op: Op) -> None:
    alone = mb_s(behind([], [None]), op, [0])
    assert mb_s(behind([ControllerSpec("c0", RATE)], ["c0"]), op, [0]) == pytest.approx(alone, rel=0.03)


def test_disks_assigned_round_robin_use_both_controllers() -> None:
    """Two busy disks halve the rate of each other on one controller, and do not on two."""
    controllers = [ControllerSpec("c0", RATE), ControllerSpec("c1", RATE)]
    in_turn = mb_s(behind(controllers, ["c0", "c1", "c0", "c1"]), Op.READ, [0, 1])
    grouped = mb_s(behind(controllers, ["c0", "c0", "c1", "c1"]), Op.READ, [0, 1])
    assert in_turn == pytest.approx(2 * RATE, rel=0.03)
    assert grouped == pytest.approx(RATE, rel=0.03)


@pytest.mark.parametrize("op", [Op.READ, Op.WRITE])
def test_commands_are_limited_whatever_their_length(op: Op) -> None:
    hardware = behind([ControllerSpec("c0", None, commands_per_s=1000)], ["c0"])
    load = (Request(op, number * 512, 512) for number in count())
    done = drive(hardware, load, 8, until_ns=2 * 10**9)
    assert len(done) == pytest.approx(2000, rel=0.02)
    _, (controller,) = hardware.busy(2 * 10**9)
    assert controller.busy_ns == pytest.approx(2 * 10**9, rel=0.02)
    assert controller.requests == pytest.approx(len(done), abs=1)


def synced_ms(battery: Battery, cache: int = 64 * MIB) -> float:
    """Return the duration of a write and its flush at distant places, as fsync causes them."""
    hardware = behind([ControllerSpec("c0", 300.0, cache=cache, battery=battery)], ["c0"])
    load: list[Request] = []
    for number in range(100):
        load += [Request(Op.WRITE, number * 600 * MIB, 4 * KIB), Request(Op.FLUSH)]
    done = drive(hardware, load, 1)
    assert len(done) == len(load)
    return (done[-1].done_ns or 0) / 100 / 1e6


def test_a_battery_is_worth_the_wait_for_the_medium() -> None:
    assert synced_ms(Battery.GOOD) < 0.1
    assert synced_ms(Battery.UNNOTICED) == synced_ms(Battery.GOOD)
    assert synced_ms(Battery.FAILED) > 2
    assert synced_ms(Battery.FAILED) == synced_ms(Battery.GOOD, cache=0)


def test_its_cache_takes_at_the_speed_of_the_path_and_then_at_that_of_the_disk() -> None:
    cache = 64 * MIB
    hardware = behind([ControllerSpec("c0", 300.0, cache=cache)], ["c0"])
    done = drive(hardware, streams(Op.WRITE, [0]), 4, until_ns=4 * 10**9)
    early = [request for request in done if (request.done_ns or 0) < 2e8]
    late = [request for request in done if (request.done_ns or 0) > 2e9]
    assert len(early) * LONG / 0.2 / 1e6 == pytest.approx(300, rel=0.03)
    assert len(late) * LONG / 2 / 1e6 == pytest.approx(RATE, rel=0.1)


def test_all_that_its_cache_holds_goes_to_the_disks_by_itself() -> None:
    hardware = behind([ControllerSpec("c0", 300.0, cache=64 * MIB)], ["c0", "c0"])
    # Far more than goes to a disk at once.
    writes = [Request(Op.WRITE, number * 600 * MIB, LONG, member=number % 2) for number in range(60)]
    drive(hardware, writes, 60)
    hardware.advance(60 * 10**9)
    assert hardware.next_ns is None
    disks, _ = hardware.busy(60 * 10**9)
    assert [disk.bytes for disk in disks] == [30 * LONG, 30 * LONG]


class Patient:
    """A disk that replies when the test requests it."""

    def __init__(self) -> None:
        self.usage = Usage()
        self.waiting: list[Request] = []

    def submit(self, request: Request, now: int) -> None:
        self.waiting.append(request)


def test_each_disk_always_has_the_same_number_of_requests_as_long_as_the_cache_holds_more() -> None:
    calendar, disks = Calendar(), [Patient(), Patient()]
    controller = Controller(ControllerSpec("c0", 300.0, cache=64 * MIB), calendar)
    for member, disk in enumerate(disks):
        controller.attach(member, disk)
    for number in range(100):
        controller.submit(Request(Op.WRITE, number * 600 * MIB, LONG, member=number % 2), 0)
    calendar.advance(10**9)
    assert [len(disk.waiting) for disk in disks] == [DESTAGED, DESTAGED]
    for left in range(50 - 1, -1, -1):
        done = disks[0].waiting.pop(0)
        assert done.then is not None
        done.then(done, 10**9)
        assert [len(disk.waiting) for disk in disks] == [min(left, DESTAGED), DESTAGED]


def test_its_cache_takes_no_more_than_it_has_room_for() -> None:
    room = 2 * MIB
    hardware = behind([ControllerSpec("c0", 300.0, cache=room)], ["c0"])
    writes = [Request(Op.WRITE, number * 600 * MIB, LONG) for number in range(100)]
    for write in writes:
        hardware.submit(write, 0)
    taken = 0
    while (upcoming := hardware.next_ns) is not None:
        taken += len(hardware.advance(upcoming)) * LONG
        (disk,), _ = hardware.busy(upcoming)
        assert taken <= disk.bytes + room
    assert taken == len(writes) * LONG


def test_what_its_cache_holds_is_read_from_it() -> None:
    hardware = behind([ControllerSpec("c0", 300.0, cache=64 * MIB)], ["c0"])
    # More pieces than go to the disk at once: the last one waits in the cache.
    writes = [Request(Op.WRITE, number * 600 * MIB, LONG) for number in range(20)]
    for write in writes:
        hardware.submit(write, 0)
    while writes[-1].done_ns is None:
        hardware.advance(hardware.next_ns or 0)
    read = Request(Op.READ, writes[-1].offset, LONG)
    hardware.submit(read, writes[-1].done_ns)
    while read.done_ns is None:
        hardware.advance(hardware.next_ns or 0)
    assert read.done_ns - read.submitted_ns == pytest.approx(LONG / 300 * 1e3, rel=0.01)


def test_a_slow_disk_does_not_hold_up_another_behind_the_same_path() -> None:
    slow = load_profile("ide-5400-4gb")
    size = slow.capacity
    fast = replace(PROFILE, capacity=size)
    members = [(slow, size, Placement.OUTER, "c0"), (fast, size, Placement.OUTER, "c0")]
    hardware = Hardware(members, [ControllerSpec("c0", 300.0)])
    for number in range(64):
        hardware.submit(Request(Op.READ, number * 60 * MIB, 4 * KIB, member=0), 0)
    done = drive(hardware, (Request(Op.READ, n * LONG, LONG, member=1) for n in count()), 66, until_ns=10**9)
    assert sum(request.member for request in done) * LONG / 1e6 == pytest.approx(RATE, rel=0.05)
