"""The verdict on sizes: a class of sizes that was not written, or not received by the server, is not passed."""

from collections.abc import Iterable

from raidproof.record.observation import RepliesSeen
from raidproof.record.outcome import Outcome, Verdict
from raidproof.verdict.checks.sizes import judge_sizes
from raidproof.verdict.contract import PROMISES
from raidproof.workload.history import Ended, Operation, WorkerSpec
from raidproof.workload.ledger import LedgerSpec
from raidproof.workload.ledger_sizes import SIZE_CLASSES

WSIZE = 1 << 20
ALL = dict.fromkeys(SIZE_CLASSES, 1)


def workers() -> list[WorkerSpec]:
    return LedgerSpec(kinds=("sizes",)).workers(["client1", "client2"])


def operations(worker: WorkerSpec, places: Iterable[int]) -> list[Operation]:
    return [
        Operation(worker.number, number, worker.pieces[place].kind, place, 1, 0, 1, Ended.OK, 0)
        for number, place in enumerate(places)
    ]


def judged(places: Iterable[int], seen: dict[int, int] | None = ALL, wsize: int = WSIZE) -> Verdict:
    one, other = workers()
    (verdict,) = judge_sizes([one, other], operations(one, places), RepliesSeen(stable_writes=seen), [wsize, WSIZE])
    return verdict


def test_a_ledger_without_such_workers_is_not_judged() -> None:
    spec = LedgerSpec(kinds=("fsync",)).workers(["client1"])
    assert judge_sizes(spec, [], None, [WSIZE]) == []


def test_all_combinations() -> None:
    count = len(workers()[0].pieces)
    verdict = judged(range(count))
    assert (verdict.outcome, verdict.reason) == (
        Outcome.PASS, f"{count} of {count} combinations of size, position and way of writing",
    )  # fmt: skip


def test_what_was_not_written_is_named() -> None:
    pieces = workers()[0].pieces
    verdict = judged(range(1, len(pieces)))
    assert verdict.outcome is Outcome.PASS
    assert verdict.reason.endswith(f"not written: {pieces[0].size} bytes by {PROMISES[pieces[0].kind]}")
    assert judged(range(20)).reason.endswith(f", and {len(pieces) - 25} more")


def test_a_class_that_was_not_written_is_inconclusive() -> None:
    pieces = workers()[0].pieces
    verdict = judged(place for place, one in enumerate(pieces) if one.size < 65_536)
    assert (verdict.outcome, verdict.reason) == (Outcome.INCONCLUSIVE, "no data of at least 64 KiB were written")


def test_a_class_of_which_the_server_received_no_stable_write_is_inconclusive() -> None:
    count = len(workers()[0].pieces)
    verdict = judged(range(count), ALL | {65_536: 0})
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.reason == "the server received no stable WRITE of at least 64 KiB"
    assert judged(range(count), ALL | {4_096: 0}).outcome is Outcome.INCONCLUSIVE


def test_a_class_that_the_client_must_divide_is_not_needed_on_the_wire() -> None:
    count = len(workers()[0].pieces)
    assert judged(range(count), {1: 1, 4_096: 1, 65_536: 0}, 32_768).outcome is Outcome.PASS
    assert judged(range(count), None).outcome is Outcome.PASS
