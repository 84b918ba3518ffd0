"""The recovery times and the lost work of a server's outages, from a history and the records of the faults."""

import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.fault.fault import FaultEffects
from raidproof.record import RunStore
from raidproof.record.observation import SoloSeen
from raidproof.record.outage import Outage, Rto, Work
from raidproof.record.run import FaultRecord, Recovery, ScanResult
from raidproof.verdict.crash_test import judge_crash_test
from raidproof.verdict.outage import acknowledgements, outages_of
from raidproof.workload.history import Ended, History, Operation, WorkerSpec

RECORDED = Path(__file__).resolve().parents[1] / "data" / "run"
S = 1_000_000_000
AT_S, OFF_S, RESUMED_S = 100.0, 100.5, 104.0
WORKERS = [
    WorkerSpec(number=0, client="client1", kind="fsync", path="a", file=1),
    WorkerSpec(number=1, client="client2", kind="fsync", path="b", file=2),
    WorkerSpec(number=2, client="client1", kind="metadata", path="c", file=3),
    WorkerSpec(number=3, client="client1", kind="locks", path="d", file=4),
    WorkerSpec(number=4, client="server", kind="application", path="e", file=5, local=True),
]


def operation(
    at_s: float, worker: int = 0, kind: str = "fsync", *, replied_s: float | None = None, ended: Ended = Ended.OK
) -> Operation:
    at_ns = int(at_s * S)
    replied_ns = None if replied_s is None else int(replied_s * S)
    return Operation(worker, at_ns, kind, 0, 1, at_ns - 1, at_ns, ended, 0, None, replied_ns)


def fault(*, away: bool = True, scan: ScanResult | None = None) -> FaultRecord:
    return FaultRecord(
        fault="takeover",
        target="server",
        proof="",
        effects=FaultEffects(server_away=away),
        at_ns=int(AT_S * S),
        ended_ns=int(OFF_S * S),
        resumed_ns=int(RESUMED_S * S),
        recovery=Recovery(assemble_s=1.0),
        on_server=scan,
    )


def outage(operations: Iterable[Operation], steps: Iterable[Operation] = (), *, paused: bool = False) -> Outage:
    (found,) = outages_of(History(operations, steps=steps), WORKERS, [fault()], paused=paused)
    return found


def rto(found: Outage, client: str = "client1", work: Work = Work.WRITES) -> Rto:
    (one,) = (one for one in found.rto if (one.client, one.work) == (client, work))
    return one


def test_the_time_without_service_is_from_the_last_acknowledgement_to_the_next_one() -> None:
    found = outage([operation(99.0), operation(99.8), operation(106.0), operation(107.0)])
    assert (found.fault, found.target, found.down_s) == ("takeover", "server", 3.5)
    one = rto(found)
    assert [one.last_s, one.seconds] == pytest.approx([-0.2, 6.2])
    assert not one.dated


def test_each_client_and_each_class_of_work_has_its_own_time() -> None:
    found = outage(
        [
            *(operation(at_s) for at_s in (99.9, 105.0)),
            *(operation(at_s, 1) for at_s in (99.8, 109.0)),
            *(operation(at_s, 2, "mkdir") for at_s in (99.7, 106.0)),
        ],
        steps=[*(operation(at_s, 3, "claim") for at_s in (98.0, 115.0)), operation(104.5, 3, "release")],
    )
    assert {(one.client, one.work): round(one.seconds or 0, 6) for one in found.rto} == {
        ("client1", Work.WRITES): 5.1,
        ("client1", Work.METADATA): 6.3,
        ("client1", Work.LOCKS): 17.0,
        ("client2", Work.WRITES): 9.2,
    }


def test_a_refused_lock_and_a_failed_operation_are_not_served() -> None:
    found = outage(
        [operation(99.0), operation(105.0, ended=Ended.FAILED), operation(106.0)],
        steps=[operation(99.0, 3, "claim"), operation(105.0, 3, "claim", ended=Ended.FAILED)],
    )
    assert rto(found).seconds == pytest.approx(7.0)
    assert rto(found, work=Work.LOCKS).seconds is None


def test_a_client_that_is_not_served_again_has_no_time() -> None:
    assert rto(outage([operation(99.0)])).seconds is None


def test_a_client_without_an_acknowledgement_before_is_left_out() -> None:
    assert outage([operation(105.0)]).rto == []


def test_an_application_on_the_server_itself_is_no_client() -> None:
    assert outage([operation(at_s, 4, "application") for at_s in (99.0, 105.0)]).rto == []


def test_replies_on_the_network_date_the_acknowledgements() -> None:
    # The report of the second one arrived after service could resume; the third one needed no reply.
    found = outage([operation(99.0, replied_s=98.9), operation(104.2, replied_s=99.9), operation(104.3),
                    operation(106.0, replied_s=105.9)])  # fmt: skip
    assert rto(found).dated
    assert [rto(found).last_s, rto(found).seconds] == pytest.approx([-0.1, 6.0])


def test_a_reply_while_the_server_was_down_shows() -> None:
    found = outage([operation(99.0, replied_s=99.0), operation(103.0, replied_s=103.0),
                    operation(105.0, replied_s=105.0)])  # fmt: skip
    assert (rto(found).seconds or 0) < found.down_s


def test_a_pause_of_the_workers_before_the_fault_does_not_count() -> None:
    one = rto(outage([operation(90.0), operation(106.0)], paused=True))
    assert [one.last_s, one.seconds] == pytest.approx([0.0, 6.0])


def test_a_fault_that_leaves_the_server_available_is_no_outage() -> None:
    assert outages_of(History([operation(99.0)]), WORKERS, [fault(away=False)]) == []
    assert outages_of(History([operation(99.0)]), WORKERS, [fault().model_copy(update={"resumed_ns": None})]) == []


def test_a_service_that_stops_without_its_machine_is_down_from_the_fault_on() -> None:
    (found,) = outages_of(History([]), WORKERS, [fault().model_copy(update={"recovery": Recovery()})])
    assert found.down_s == pytest.approx(RESUMED_S - AT_S)


def test_an_older_record_does_not_say_when_the_machine_was_off() -> None:
    (found,) = outages_of(History([]), WORKERS, [fault().model_copy(update={"ended_ns": None})])
    assert found.down_s == pytest.approx(RESUMED_S - AT_S)


@pytest.mark.parametrize(
    ("scan", "lost", "seconds"),
    [
        (None, None, None),
        (ScanResult(), 0, 0.0),
        (ScanResult(lost={"fsync": 3, "mkdir": 1}, first_lost_ns=int(98.5 * S)), 4, 1.5),
        (ScanResult(lost={"fsync": 1}, first_lost_ns=int(101 * S)), 1, 0.0),
    ],
)
def test_lost_work_is_that_of_the_scan_after_the_fault(
    scan: ScanResult | None, lost: int | None, seconds: float | None
) -> None:
    (found,) = outages_of(History([]), WORKERS, [fault(scan=scan)])
    assert (found.lost, found.lost_s) == (lost, seconds)


@pytest.mark.parametrize("struck", [False, True])
def test_a_judged_crash_test_has_its_outages(tmp_path: Path, *, struck: bool) -> None:
    store = RunStore(Path(shutil.copytree(RECORDED, tmp_path / "run")))
    cycle = store.load().cycles[0]
    fault_ns = cycle.fault_at_ns or 0
    cycle.resumed_ns = fault_ns + S
    cycle.observed.solo = SoloSeen(begun_ns=fault_ns - 1, ended_ns=fault_ns, struck=struck)
    judge_crash_test(cycle, store.path)
    (found,) = cycle.outages
    assert (found.fault, found.down_s, found.lost, found.lost_s) == ("power-cut", 1.0, 0, 0.0)
    assert {one.client for one in found.rto} == {worker["client"] for worker in cycle.workers}
    assert all(one.last_s >= 0 for one in found.rto) is struck, "the clients paused before the fault"
    judge_crash_test(cycle, store.path)
    assert cycle.outages == [found]


INSTANTS = st.lists(st.integers(0, 200), min_size=1, max_size=30)


@given(INSTANTS, st.booleans())
def test_no_acknowledgement_lies_within_the_time_without_service(seconds: list[int], dated: bool) -> None:
    operations = [operation(one, replied_s=one if dated else None) for one in seconds]
    found = outage(operations)
    before, after = ([one for one in seconds if (one >= RESUMED_S) is late] for late in (False, True))
    if not before:
        assert found.rto == []
        return
    one = rto(found)
    assert one.dated is dated
    assert one.last_s == pytest.approx(max(before) - AT_S)
    assert one.seconds == (pytest.approx(min(after) - max(before)) if after else None)


@given(INSTANTS, INSTANTS)
def test_more_acknowledgements_never_make_the_time_longer(seconds: list[int], more: list[int]) -> None:
    first, both = outage(map(operation, seconds)), outage(map(operation, [*seconds, *more]))
    if first.rto and (known := rto(first).seconds) is not None:
        shorter = rto(both).seconds
        assert shorter is not None
        assert shorter <= known + 1e-9


@given(INSTANTS)
def test_acknowledgements_are_sorted_and_complete(seconds: list[int]) -> None:
    found = acknowledgements(History(map(operation, seconds)), WORKERS)
    assert found["client1", Work.WRITES].instants_ns == sorted(one * S for one in seconds)
