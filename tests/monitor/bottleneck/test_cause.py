from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.units import KIB, MIB
from raidproof.monitor import Derived, DiskUse, EngineUse, MachineUse, RpcUse
from raidproof.monitor.bottleneck import Cause, Limit, find_cause
from raidproof.storage.array import MdSpec

MEMBERS = ("disk0", "disk1", "disk2", "disk3")
RAID5 = MdSpec(level=5, members=MEMBERS, chunk_size=64 * KIB)
RAID0 = MdSpec(level=0, members=MEMBERS, chunk_size=64 * KIB)
GIGABIT = 125e6


def disk(busy: float = 0.3, mean_bytes: float = 16 * KIB, in_flight: float = 0.5) -> DiskUse:
    return DiskUse(
        reads=0,
        writes=100,
        read_bytes=0,
        written_bytes=int(100 * mean_bytes),
        busy=busy,
        in_flight=in_flight,
        mean_bytes=mean_bytes,
        mean_ms=8.0,
        flushes=0,
    )


def calls(number: int = 0, each_ms: float | None = None, waiting: float = 0.0, sent_again: int = 0) -> RpcUse:
    mean = each_ms if number else None
    return RpcUse(
        calls=number,
        sent_again=sent_again,
        mean_queue_ms=0.0 if number else None,
        mean_rtt_ms=mean,
        mean_exec_ms=mean,
        waiting=waiting,
    )


def machine(cpu: float | None = 0.2, received: float = 10e6) -> MachineUse:
    return MachineUse(
        cpu=cpu, memory=768 * MIB, dirty_peak=0, writeback_peak=0, received_bytes_s=received, sent_bytes_s=1e6
    )


def derived(busy: tuple[float, ...] = (0.3, 0.3, 0.3, 0.3), **changed: Any) -> Derived:
    """Return a cell in which nothing is full or waits, except for the given changes."""
    usual: dict[str, Any] = {
        "seconds": 5.0,
        "server": "server",
        "read_bytes": 0,
        "written_bytes": 100 * MIB,
        "wire_read_bytes": 0,
        "wire_written_bytes": 100 * MIB,
        "array": disk(mean_bytes=256 * KIB),
        "members": {serial: disk(share) for serial, share in zip(MEMBERS, busy, strict=True)},
        "request_limit": MIB,
        "member_reads_per_written": 0.0,
        "write_amplification": 1.34,
        "read_amplification": None,
        "splitting": 1.0,
        "slowest": None,
        "spread": None,
        "writes": calls(100, 3.0, 0.1),
        "reads": calls(),
        "commits": calls(1, 3.0, 0.01),
        "calls": calls(101, 3.0, 0.1),
        "mean_write_bytes": float(MIB),
        "mean_read_bytes": None,
        "calls_per_mb": 1.0,
        "machines": {"server": machine(), "client1": machine()},
        "host_cpu": 0.4,
        "syncing": (),
        "unknown": {},
    }
    return Derived.model_validate(usual | changed)


def engine(cpu: float = 0.2, late: float = 1e4, **busy: dict[str, float]) -> EngineUse:
    return EngineUse(cpu_share=cpu, late_ns_mean=late, service_ns_mean=8e6, **busy)


def local(**changed: Any) -> Derived:
    """Return a workload on the server itself."""
    none: dict[str, Any] = dict.fromkeys(("writes", "reads", "commits", "calls", "mean_write_bytes", "calls_per_mb"))
    return derived(machines={"server": machine()}, **none | changed)


def test_the_limit_of_an_idle_cell_is_unknown_and_the_values_are_given() -> None:
    cause = find_cause(derived(), RAID5)
    assert cause == (
        Limit.UNKNOWN,
        "no measured resource is full: the busiest member 30 %, server's CPU 20 %, client1's CPU 20 %",
    )


def test_without_monitors_the_limit_is_unknown() -> None:
    cause = find_cause(None, RAID5, engine=engine(0.99))
    assert cause.limit is Limit.UNKNOWN
    assert "not monitored" in cause.sentence


def test_only_observed_parts_are_reported_as_not_full() -> None:
    blind = derived(members=None, calls=calls(500, 8.0, 0.8), unknown={"disks": "could not be read"})
    cause = find_cause(blind, RAID5)
    assert cause.limit is Limit.UNKNOWN
    assert "not measured: disks" in cause.sentence


FULL = (0.95, 0.95, 0.95, 0.95)
WAITING: dict[str, Any] = {"calls": calls(600, 8.0, 0.96), "writes": calls(600, 8.0, 0.96), "mean_write_bytes": 4096.0}

APPLIES: list[tuple[Cause, Limit, str]] = [
    (find_cause(derived(FULL), RAID5, engine=engine(0.9)), Limit.ENGINE, "the disk engine used 90 % of a core"),
    (find_cause(derived(), RAID5, engine=engine(late=1e6)), Limit.ENGINE, "1.00 ms late on average"),
    (find_cause(derived(host_cpu=0.97), RAID5), Limit.HOST_CPU, "busy 97 % of the time"),
    (
        find_cause(derived(), RAID5, engine=engine(controllers_busy={"c0": 0.97, "c1": 0.4})),
        Limit.CONTROLLER,
        "controller c0 is busy 97 % of the time, its disks 30 %",
    ),
    (
        find_cause(derived((0.61, 0.98, 0.6, 0.62)), RAID5),
        Limit.ONE_DISK,
        "disk1 is busy 98 % of the time, the other members 61 %",
    ),
    (find_cause(derived(FULL), RAID5), Limit.DISKS, "the members are busy 95 % of the time, with requests of 16 KiB"),
    (
        find_cause(derived(machines={"server": machine(received=117e6)}), RAID5, link_bytes_s=GIGABIT),
        Limit.NETWORK,
        "network link is full: 117 of 125 MB/s",
    ),
    (
        find_cause(derived(read_bytes=200 * MIB, written_bytes=0, wire_read_bytes=20 * MIB), RAID5),
        Limit.CLIENT_CACHE,
        "90 % of the bytes read came from the client's cache",
    ),
    (
        find_cause(derived(machines={"server": machine(0.96), "client1": machine(0.95)}, calls_per_mb=128.0), RAID5),
        Limit.SERVER_CPU,
        "the server's CPU is busy 96 % of the time, with 128 NFS calls per MB",
    ),
    (
        find_cause(derived(machines={"server": machine(0.5), "client1": machine(0.95)}), RAID5),
        Limit.CLIENT_CPU,
        "the client's CPU is busy 95 %",
    ),
    (
        find_cause(derived(FULL, member_reads_per_written=0.9, array=disk(mean_bytes=8192)), RAID5, wsize=8 * KIB),
        Limit.DISKS,
        "RAID5 reads 0.9 blocks for each block written: wsize 8 KiB never fills a 192 KiB stripe",
    ),
    (
        find_cause(derived(FULL, member_reads_per_written=0.5, array=disk(mean_bytes=65536)), RAID5, wsize=8 * KIB),
        Limit.DISKS,
        "a request to the array has 64 KiB, a stripe has 192 KiB",
    ),
    (
        find_cause(derived(FULL, member_reads_per_written=0.5), RAID5, wsize=MIB),
        Limit.DISKS,
        "not aligned to the stripes of 192 KiB",
    ),
    (
        find_cause(derived(commits=calls(20, 33.0, 0.8), calls=calls(40, 20.0, 0.9)), RAID5),
        Limit.LATENCY,
        "each fsync waits 33 ms for its COMMIT: 4 COMMITs per second",
    ),
    (
        find_cause(derived(**WAITING, write_amplification=34.0), RAID5),
        Limit.LATENCY,
        "the members write 34.0 bytes per byte that the workload writes, where RAID5 needs 1.3",
    ),
    (
        find_cause(derived(FULL, splitting=8.0, array=disk(mean_bytes=128 * KIB), request_limit=128 * KIB), RAID5),
        Limit.DISKS,
        "in 8 pieces of 128 KiB; the array accepts at most 128 KiB per request",
    ),
    (
        find_cause(derived(**WAITING), RAID5),
        Limit.LATENCY,
        "each WRITE of 4 KiB waits for the disks and takes 8.0 ms: 120 WRITEs per second",
    ),
    (
        find_cause(derived(**WAITING), RAID5, sync=False),
        Limit.LATENCY,
        "each WRITE of 4 KiB is acknowledged from memory",
    ),
    (
        find_cause(
            derived(calls=calls(9000, 3.0, 24.0), writes=calls(9000, 3.0, 24.0), mean_write_bytes=8192.0), RAID5
        ),
        Limit.LATENCY,
        "each MB takes 122 round trips of 3.0 ms: a WRITE carries 8 KiB",
    ),
    (
        find_cause(derived(calls=calls(900, 20.0, 3.6), writes=calls(900, 20.0, 3.6)), RAID5),
        Limit.LATENCY,
        "no resource is full: 3.6 calls are in flight, each for 20 ms",
    ),
    (
        find_cause(local(array=disk(in_flight=0.9)), RAID5),
        Limit.LATENCY,
        "no resource is full: 0.9 requests wait for the array, each for 8.0 ms",
    ),
    (
        find_cause(derived(calls=calls(9000, 3.0, 24.0), host_cpu=0.8), RAID5),
        Limit.HOST_CPU,
        "this host's cores are busy 80 % of the time",
    ),
    (
        find_cause(derived(FULL, write_amplification=34.0, member_reads_per_written=0.7), RAID5),
        Limit.DISKS,
        "the members write 34.0 bytes",
    ),
    (find_cause(derived(syncing=("resync",)), RAID5), Limit.UNKNOWN, "a resync of the array ran"),
    (
        find_cause(derived(calls=calls(100, 3.0, 0.1, sent_again=9)), RAID5),
        Limit.UNKNOWN,
        "9 of 100 calls were retransmitted",
    ),
]


@pytest.mark.parametrize(("cause", "limit", "said"), APPLIES)
def test_rule_applies(cause: Cause, limit: Limit, said: str) -> None:
    assert cause.limit is limit
    assert said in cause.sentence


DOES_NOT: list[tuple[Cause, Limit, str]] = [
    # Late answers cost nothing while the disks have work.
    (find_cause(derived(FULL), RAID5, engine=engine(0.5, late=1e6)), Limit.DISKS, "engine"),
    # Disks without mechanics have no time to be late for.
    (find_cause(derived(), RAID5, engine=EngineUse(0.2, 1e5, 0.0)), Limit.UNKNOWN, "late"),
    # The disks are the slow ones, whatever else the host does meanwhile.
    (
        find_cause(derived(host_cpu=0.97), RAID5, engine=engine(members_busy=dict.fromkeys(MEMBERS, 0.95))),
        Limit.DISKS,
        "host's cores",
    ),
    (
        find_cause(derived((0.6,) * 4, calls=calls(9000, 3.0, 24.0), host_cpu=0.8), RAID5),
        Limit.LATENCY,
        "host's cores",
    ),
    (find_cause(derived(host_cpu=0.8), RAID5), Limit.UNKNOWN, "host's cores"),
    (
        find_cause(derived(FULL, write_amplification=3.0, member_reads_per_written=0.7), RAID5),
        Limit.DISKS,
        "padding",
    ),
    (find_cause(derived(host_cpu=None), RAID5), Limit.UNKNOWN, "host"),
    (find_cause(derived(), RAID5, engine=engine(controllers_busy={"c0": 0.8})), Limit.UNKNOWN, "controller"),
    (find_cause(derived((0.95, 0.85, 0.85, 0.85)), RAID5), Limit.UNKNOWN, "others"),
    # What the simulated disks say counts, not what the kernel makes of its jiffies.
    (find_cause(derived(FULL), RAID5, engine=engine(members_busy=dict.fromkeys(MEMBERS, 0.4))), Limit.UNKNOWN, "95 %"),
    (
        find_cause(derived(machines={"server": machine(received=90e6)}), RAID5, link_bytes_s=GIGABIT),
        Limit.UNKNOWN,
        "link",
    ),
    (find_cause(derived(machines={"server": machine(received=117e6)}), RAID5), Limit.UNKNOWN, "link"),
    (find_cause(derived(read_bytes=MIB, wire_read_bytes=MIB, written_bytes=0), RAID5), Limit.UNKNOWN, "memory"),
    (find_cause(derived(machines={"server": machine(None), "client1": machine(None)}), RAID5), Limit.UNKNOWN, "busy"),
    (
        find_cause(derived(machines={"server": machine(), "client1": machine(0.99), "client2": machine(0.3)}), RAID5),
        Limit.UNKNOWN,
        "the client's CPU",
    ),
    (find_cause(derived(FULL, member_reads_per_written=0.9), RAID0, wsize=8 * KIB), Limit.DISKS, "stripe"),
    (find_cause(derived(FULL, member_reads_per_written=None), RAID5, wsize=8 * KIB), Limit.DISKS, "stripe"),
    (find_cause(derived(FULL, member_reads_per_written=0.05), RAID5, wsize=8 * KIB), Limit.DISKS, "stripe"),
    (find_cause(derived(commits=calls(20, 33.0, 0.1)), RAID5), Limit.UNKNOWN, "fsync"),
    (find_cause(derived(write_amplification=1.5), RAID5), Limit.UNKNOWN, "padding"),
    (find_cause(derived(FULL, splitting=2.0), RAID5), Limit.DISKS, "pieces"),
    (find_cause(derived(FULL, splitting=8.0, array=disk(mean_bytes=KIB)), RAID5), Limit.DISKS, "no more than"),
    (find_cause(derived(FULL, **WAITING), RAID5), Limit.DISKS, "each WRITE"),
    (
        find_cause(derived(calls=calls(900, 20.0, 3.6), writes=calls(900, 20.0, 3.6)), RAID5),
        Limit.LATENCY,
        "round trips",
    ),
    (find_cause(derived(syncing=None), RAID5), Limit.UNKNOWN, "of the array ran"),
    (find_cause(derived(calls=calls(9000, 3.0, 0.1, sent_again=9)), RAID5), Limit.UNKNOWN, "retransmitted"),
    (find_cause(local(array=disk(in_flight=0.2)), RAID5), Limit.UNKNOWN, "wait for the array"),
]


@pytest.mark.parametrize(("cause", "limit", "unsaid"), DOES_NOT)
def test_rule_does_not_apply(cause: Cause, limit: Limit, unsaid: str) -> None:
    assert cause.limit is limit
    assert unsaid not in cause.sentence


def test_limits_of_the_rig_are_not_ranked() -> None:
    unranked = {limit for limit in Limit if not limit.rankable}
    assert {Limit.ENGINE, Limit.HOST_CPU, Limit.SERVER_CPU, Limit.CLIENT_CPU, Limit.CLIENT_CACHE} == unranked
    assert not find_cause(derived(host_cpu=1.0), RAID5).rankable
    assert find_cause(derived(FULL), RAID5).rankable


share = st.floats(0, 1)


@given(
    busy=st.tuples(share, share, share, share),
    cpu=st.one_of(st.none(), share),
    host=st.one_of(st.none(), share),
    waiting=st.floats(0, 100),
    back=st.one_of(st.none(), st.floats(0, 4)),
    use=st.one_of(st.none(), st.builds(EngineUse, share, st.floats(0, 1e9), st.floats(0, 1e9))),
    level=st.sampled_from([0, 1, 5, 6, 10, "1+0"]),
    hidden=st.sets(st.sampled_from(["members", "array", "writes", "calls", "commits", "splitting", "read_bytes"])),
)
def test_every_cell_gets_a_sentence(
    busy: tuple[float, ...],
    cpu: float | None,
    host: float | None,
    waiting: float,
    back: float | None,
    use: EngineUse | None,
    level: object,
    hidden: set[str],
) -> None:
    array = MdSpec.model_validate({"level": level, "members": MEMBERS})
    seen = derived(
        busy,
        machines={"server": machine(cpu), "client1": machine(cpu)},
        host_cpu=host,
        calls=calls(100, 3.0, waiting),
        member_reads_per_written=back,
    )
    cause = find_cause(
        seen.model_copy(update=dict.fromkeys(hidden)), array, wsize=8 * KIB, engine=use, link_bytes_s=1e8
    )
    assert cause.sentence
    assert "None" not in cause.sentence
