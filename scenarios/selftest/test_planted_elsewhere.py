"""Planted defects that only packets or an exploration show: locks after a restart, lies hidden by later flushes."""

from bisect import bisect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from raidproof.crash.exploration import Budget
from raidproof.crash.sampler import Choice, Choices, Order, Policy
from raidproof.disk.writelog import Flag, Kind
from raidproof.fault import NfsdRestart
from raidproof.fault.network import port_of
from raidproof.guest.ledger_format import METADATA
from raidproof.namespace.network import Way
from raidproof.record.outcome import Outcome, Verdict
from raidproof.run import crash_states
from raidproof.run.crash_states import Options
from raidproof.run.exploration import explore_cycle
from raidproof.run.source import Source, source_of
from raidproof.verdict.contract import PROMISES
from raidproof.verdict.wire import judge_locks_kept
from scenarios.crash.known_findings import others
from scenarios.nfs.two_clients import LOCKD_GRACE, Clients, TwoClients
from scenarios.selftest.test_planted import Cycles, cycles

END_GRACE = "/proc/fs/nfsd/v4_end_grace"
RECLAIM_FAILED = "reclaim failed"
STATES = 60
"""Number of crash states to check, in less than a minute."""
STATES_AFTER_A_LIE = 20
"""Number of crash states to check: few, as each of them is broken, and fsck of a broken file system is slow."""
__all__ = ["cycles"]


def after_a_restart(clients: Clients, plant: Callable[[TwoClients], None]) -> Verdict:
    """Call ``plant`` and restart nfsd while a client holds a lock; return the verdict on the captured packets."""
    with clients(may_say=RECLAIM_FAILED) as two:
        two.end_grace()
        held, wanted = two.two.open(two.path("locked")), two.one.open(two.path("locked"))
        two.two.do("lock", held, "write").require("lock")
        plant(two)
        two.suffer(NfsdRestart())
        two.one.do("lock", wanted, "write")
        two.two.do("write", held, "mine")
        two.two.do("fsync", held)
    return judge_locks_kept(two.exchanges)


def grace_is_skipped(clients: TwoClients) -> None:
    """Make nfsd end its grace period right after each restart, before the holder of the lock can reach nfsd."""
    export, server = clients.context.stack.export, clients.server
    restart, holder = export.restart, port_of(clients.context, clients.context.lab.clients[1])

    def skipping() -> None:
        holder.cut(Way.BOTH)
        restart()
        for path in (END_GRACE, LOCKD_GRACE):
            server.put("Y", path)
        holder.mend()

    setattr(export, "restart", skipping)  # noqa: B010  mypy knows it as a method


@pytest.mark.plants
def test_a_skipped_grace_period_is_found(cycles: Cycles) -> None:
    verdict = after_a_restart(Clients(cycles.current_run, "grace-skipped"), grace_is_skipped)
    assert verdict.outcome is Outcome.FAIL, verdict
    assert str(verdict.blame) == "nfsd"
    assert "held" in verdict.reason


def test_a_kept_grace_period_is_not(cycles: Cycles) -> None:
    verdict = after_a_restart(Clients(cycles.current_run, "grace-kept"), lambda _: None)
    assert verdict.outcome is Outcome.PASS, verdict


def in_danger(source: Source) -> Iterator[int]:
    """Yield for each dropped flush the last cut at which an acknowledged operation may lack it, if there is one.

    This cut is before the next flush of the same member, and after an acknowledgement.
    """
    acknowledged_ns = sorted(one.promised_ns or 0 for one in source.oracle.history.acknowledged())
    lied_ns: dict[int, int] = {}
    for number, record in enumerate(source.recording.records):
        if record.kind is not Kind.FLUSH:
            continue
        since_ns, now_ns = lied_ns.pop(record.member, None), source.recording.instant_ns(number)
        if since_ns is not None and bisect(acknowledged_ns, since_ns) < bisect(acknowledged_ns, now_ns):
            yield number
        if record.flags & Flag.LIED:
            lied_ns[record.member] = record.completed_ns


@pytest.mark.plants
def test_a_lost_close_under_a_delegation_is_no_measured_loss(cycles: Cycles) -> None:
    record, _ = cycles.planted("careless-close")
    assert record.outcome is Outcome.INCONCLUSIVE, record.reason
    source = source_of(cycles.current_run.store, record.name)
    explored, page = explore_cycle(source, Options(Budget(STATES, None), explained=1, cold=False, crash_page=False))
    assert explored.outcome is Outcome.INCONCLUSIVE or explored.failures, (explored.reason, page)
    assert not others(explored), (explored.reason, page)
    assert explored.undecided is not None
    assert "under a write delegation" in explored.undecided.reason
    assert explored.loss is None


@pytest.mark.plants
def test_a_dropped_flush_that_a_later_one_repaired_does_not_hide_a_broken_stack(cycles: Cycles) -> None:
    record, places = cycles.planted("careless-after-a-lie")
    source = source_of(cycles.current_run.store, record.name)
    explored, page = explore_cycle(
        source, Options(Budget(STATES_AFTER_A_LIE, None), explained=1, cold=False, crash_page=False)
    )
    assert explored.outcome is Outcome.FAIL, (explored.reason, page)
    blames = [str(one.blame) for one in explored.failures]
    assert any(one.startswith(places["careless-after-a-lie"]) for one in blames), (blames, page)


@pytest.mark.plants
def test_a_control_with_a_lying_disk_does_not_hide_a_broken_stack(cycles: Cycles) -> None:
    record, _ = cycles.planted("careless-control")
    assert record.outcome is Outcome.FAIL, record.reason
    assert "the stack" in record.reason or record.not_recovered is not None


@pytest.mark.plants
def test_a_dropped_flush_is_found_by_exploration(cycles: Cycles, monkeypatch: pytest.MonkeyPatch) -> None:
    record, places = cycles.planted("flush-dropped")
    source = source_of(cycles.current_run.store, record.name)

    class InDanger(Choices):
        """Choices of crash states in which all unflushed data are lost, at the cuts in danger only.

        A sample of all states would have too few of them.
        """

        def __init__(self, *args: Any, **named: Any) -> None:
            super().__init__(*args, **named)
            self.order = Order(Choice(cut, Policy.DROP_ALL) for cut in in_danger(source))

    monkeypatch.setattr(crash_states, "Choices", InDanger)
    # One reproduced failure is enough; the other failures get a blame too.
    explored, page = explore_cycle(source, Options(Budget(STATES, None), explained=1, cold=False, crash_page=False))
    assert explored.outcome is Outcome.FAIL, (explored.reason, page)
    assert {str(one.blame) for one in others(explored)} == {places["flush-dropped"]}
    assert {one.promise for one in explored.failures} & {PROMISES[kind] for kind in METADATA}, explored.failures
