"""The verdict on the work of each client: enough operations of each kind of worker could have shown a loss."""

from raidproof.record.outcome import Outcome
from raidproof.verdict.balance import Balance
from raidproof.verdict.checks.work import judge_work
from raidproof.workload.ledger import LedgerSpec


def short(spec: LedgerSpec, counts: dict[str, int], lost: tuple[str, ...] = ()) -> list[str]:
    """Judge the work of two clients; ``counts``: number of judged operations by path, 3 if the path is not there."""
    workers = spec.workers(["client1", "client2"])
    parts = {}
    for worker in workers:
        name = f"{worker.client} {worker.path}"
        parts[worker.number] = part = Balance()
        part.judged[worker.kinds[0]] = next((count for key, count in counts.items() if key in name), 3)
        part.lost[worker.kinds[0]] += sum(one in name for one in lost)
        part.lost = +part.lost
    found = judge_work(workers, parts, "here")
    assert {one.outcome for one in found} <= {Outcome.INCONCLUSIVE}
    return [one.reason.partition(": ")[2].partition(";")[0] for one in found]


def test_each_client_must_have_shown_enough_by_each_kind_of_worker() -> None:
    spec = LedgerSpec(kinds=("fsync", "shared", "metadata", "metadata", "extents", "close_pages"))
    assert short(spec, {}) == []
    assert short(spec, {"client2-0-fsync": 2}) == ["2 of fsync on client2"]
    assert short(spec, {"client2 shared": 0}) == ["0 of shared on client2"]
    assert short(spec, {"client1-4-extents": 0, "client2-5-close_pages": 1}) == [
        "0 of extents on client1, 1 of close_pages on client2"
    ]
    assert short(spec, {"client2": 0}) == [
        "0 of fsync on client2, 0 of shared on client2, 0 of metadata on client2, 0 of extents on client2, "
        "0 of close_pages on client2"
    ]


def test_workers_of_one_kind_on_a_client_count_together() -> None:
    spec = LedgerSpec(kinds=("metadata", "metadata"))
    assert short(spec, {"client1-0-metadata": 0}) == []
    assert short(spec, {"client1": 1}) == ["2 of metadata on client1"]


def test_a_lost_operation_and_a_limit_of_operations_need_no_minimum() -> None:
    spec = LedgerSpec(kinds=("fsync",))
    assert short(spec, {"client2": 1}, lost=("client2",)) == []
    assert short(spec.model_copy(update={"operations": 1}), {"client": 1}) == []
    assert short(spec.model_copy(update={"operations": 1}), {"client": 0}) == [
        "0 of fsync on client1, 0 of fsync on client2"
    ]


def test_a_worker_with_few_blocks_shows_no_more_losses_than_it_has_blocks() -> None:
    spec = LedgerSpec(kinds=("fsync", "metadata"), blocks=2)
    assert short(spec, {"fsync": 2}) == []
    assert short(spec, {"fsync": 1}) == ["1 of fsync on client1, 1 of fsync on client2"]
    assert short(spec, {"metadata": 2}) == ["2 of metadata on client1, 2 of metadata on client2"]
