"""The profiles give the figures of their data sheets and of arithmetic."""

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest

from raidproof.core.units import GIB, KIB, MIB
from raidproof.disk.profile import load_profile, profile_names
from raidproof.disk.timing.hardware import Hardware, drive
from raidproof.disk.timing.request import Op, Request
from raidproof.disk.timing.rotational import Placement

TIMED = [name for name in profile_names() if load_profile(name).timed]
ROTATIONAL = [name for name in TIMED if load_profile(name).rotational]
FLASH = [name for name in TIMED if load_profile(name).flash]
BLOCK = 4 * KIB
LONG = 128 * KIB


def disk(name: str, size: int | None = None, placement: Placement = Placement.SPREAD) -> Hardware:
    profile = load_profile(name)
    return Hardware([(profile, size or profile.capacity, placement, None)])


def scattered(op: Op, within: int, length: int, number: int, *, fua: bool = False) -> list[Request]:
    chance = random.Random(7)
    return [Request(op, chance.randrange(within // length) * length, length, fua=fua) for _ in range(number)]


def in_sequence(op: Op) -> Iterator[Request]:
    return (Request(op, number * LONG, LONG) for number in count())


def per_s(done: list[Request], skip: int = 0) -> float:
    first, last = done[skip].done_ns, done[-1].done_ns
    assert first is not None
    assert last is not None
    return (len(done) - skip - 1) / (last - first) * 1e9


@pytest.mark.parametrize("name", ROTATIONAL)
def test_a_random_read_takes_a_seek_half_a_revolution_and_the_transfer(name: str) -> None:
    profile = load_profile(name)
    mechanics = profile.rotational
    assert mechanics is not None
    rate = (mechanics.media_rate_rim_mb_s + mechanics.media_rate_hub_mb_s) / 2
    expected_ms = mechanics.average_seek_ms + mechanics.turn_ms / 2 + BLOCK / rate / 1e3
    expected_ms += profile.command_overhead_us / 1e3
    done = drive(disk(name), scattered(Op.READ, profile.capacity, BLOCK, 4000), 1)
    assert per_s(done) == pytest.approx(1e3 / expected_ms, rel=0.05)


@pytest.mark.parametrize("name", TIMED)
def test_sequential_reads_as_hdparm_makes_them(name: str) -> None:
    done = drive(disk(name), in_sequence(Op.READ), 2, until_ns=3 * 10**9)
    assert len(done) * LONG / 3 / 1e6 == pytest.approx(load_profile(name).sequential_mb_s, rel=0.03)


@pytest.mark.parametrize("name", ROTATIONAL)
@pytest.mark.parametrize("depth", [1, 16])
def test_sequential_writes_settle_at_the_media_rate(name: str, depth: int) -> None:
    profile = load_profile(name)
    assert profile.rotational is not None
    rate = profile.rotational.media_rate_rim_mb_s
    # The cache fills as fast as writes come faster than the medium takes them.
    each_us = LONG / profile.interface_mb_s + profile.command_overhead_us
    full_s = profile.cache.size / 1e6 / (LONG / each_us - rate)
    done = drive(disk(name), in_sequence(Op.WRITE), depth, until_ns=round((full_s * 3 + 2) * 1e9))
    assert per_s(done, len(done) * 2 // 3) * LONG / 1e6 == pytest.approx(rate, rel=0.03)


@pytest.mark.parametrize("name", FLASH)
def test_flash_writes_settle_at_the_rate_of_its_chips_or_its_interface(name: str) -> None:
    profile = load_profile(name)
    flash = profile.flash
    assert flash is not None
    page_us = flash.program_us + flash.erase_us * flash.page / flash.erase_block
    rate = min(flash.channels * flash.page / page_us, profile.interface_mb_s)
    done = drive(disk(name), in_sequence(Op.WRITE), 16, until_ns=10**9)
    assert per_s(done, len(done) // 2) * LONG / 1e6 == pytest.approx(rate, rel=0.03)


@pytest.mark.parametrize(
    ("name", "shallow", "depth", "deep"), [("ssd-sata", 13_000, 32, 98_000), ("nvme-plp", 13_000, 128, 1_000_000)]
)
def test_flash_gives_the_random_reads_of_its_data_sheet(name: str, shallow: float, depth: int, deep: float) -> None:
    within = 64 * GIB
    one = per_s(drive(disk(name), scattered(Op.READ, within, BLOCK, 2000), 1))
    many = per_s(drive(disk(name), scattered(Op.READ, within, BLOCK, 20_000), depth), 4000)
    assert one == pytest.approx(shallow, rel=0.3)
    assert many == pytest.approx(deep, rel=0.5)


def test_cached_writes_gain_as_little_by_sorting_as_measured() -> None:
    """5,400 rpm: 90 writes for 66 reads of 8 KiB (Chung and others, "Windows 2000 Disk IO Performance")."""
    name = "ide-5400-4gb"
    profile = load_profile(name)
    reads = per_s(drive(disk(name), scattered(Op.READ, profile.capacity, 2 * BLOCK, 1500), 1))
    filled = profile.cache.size // (2 * BLOCK)
    writes = per_s(drive(disk(name), scattered(Op.WRITE, profile.capacity, 2 * BLOCK, 1500 + filled), 4), filled)
    assert writes / reads == pytest.approx(90 / 66, rel=0.1)


def test_writes_within_8_gib_as_measured_at_10_000_rpm() -> None:
    """1.63 MB/s in requests of 4 KiB, depth 3 (AnandTech, The SSD Anthology)."""
    # That drive was a SATA one, which sorts, with much the same mechanics.
    scsi = load_profile("atlas-10k5")
    profile = replace(scsi, cache=replace(scsi.cache, sorted=4))
    filled = profile.cache.size // BLOCK
    load = scattered(Op.WRITE, 8 * GIB, BLOCK, 3000 + filled)
    hardware = Hardware([(profile, 8 * GIB, Placement.OUTER, None)])
    writes = per_s(drive(hardware, load, 3), filled)
    assert writes == pytest.approx(1.63 * MIB / BLOCK, rel=0.2)


def test_a_scsi_drive_gains_nothing_by_its_cache_as_measured() -> None:
    """105 reads and 105 cached writes of 8 KiB a second at 10,000 rpm (Chung and others)."""
    profile = load_profile("atlas-10k5")
    reads = per_s(drive(disk(profile.name), scattered(Op.READ, profile.capacity, 2 * BLOCK, 1500), 1))
    filled = profile.cache.size // (2 * BLOCK)
    writes = per_s(
        drive(disk(profile.name), scattered(Op.WRITE, profile.capacity, 2 * BLOCK, 1500 + filled), 4), filled
    )
    assert writes / reads == pytest.approx(1.0, rel=0.1)


def test_forced_writes_of_a_15_000_rpm_disk_are_seek_rotation_and_transfer() -> None:
    load = scattered(Op.WRITE, 4 * GIB, LONG, 2000, fua=True)
    assert per_s(drive(disk("scsi-15k-72gb", 4 * GIB, Placement.OUTER), load, 1)) == pytest.approx(200, rel=0.1)


@pytest.mark.parametrize("name", ROTATIONAL)
def test_a_burst_of_writes_goes_into_the_cache_at_the_speed_of_the_interface(name: str) -> None:
    profile = load_profile(name)
    number = min(profile.cache.size // 2, 8 * MIB) // (16 * KIB)
    done = drive(disk(name), scattered(Op.WRITE, profile.capacity, 16 * KIB, number), 4)
    needed_us = 16 * KIB / profile.interface_mb_s + profile.command_overhead_us
    assert per_s(done) > 0.9e6 / needed_us
