"""What the page says that each promise rests on."""

from raidproof.record.observation import RepliesSeen, ReportDelay
from raidproof.record.run import RunRecord
from raidproof.report.terminal import dated, rows


def test_writes_are_shown_by_their_stability_where_they_were_captured(run: RunRecord) -> None:
    cycle = run.cycles[0].model_copy(deep=True)
    assert cycle.on_server is not None
    cycle.observed.calls = {"client1": {"WRITE": 12, "COMMIT": 0}}
    cycle.observed.replies = RepliesSeen()
    assert {one.calls for one in rows(cycle, cycle.on_server)} == {"12 WRITE", "0 OPEN"}
    cycle.observed.replies = RepliesSeen(writes={"UNSTABLE": 2, "FILE_SYNC": 1010})
    assert "12 WRITE (1,010 FILE_SYNC, 2 UNSTABLE)" in {one.calls for one in rows(cycle, cycle.on_server)}


def test_it_is_said_how_much_later_the_clients_reported(run: RunRecord) -> None:
    cycle = run.cycles[0].model_copy(deep=True)
    cycle.observed.replies = RepliesSeen(why_not="host tool not found: tshark")
    assert dated(cycle) == ""
    later_ms = ReportDelay(least=0.2, median=4.5, most=30.0)
    cycle.observed.replies = RepliesSeen(dated=1490, of=1500, reported_later_ms=later_ms)
    assert "for 1,490 of 1,500 operations" in dated(cycle)
    assert "4.5 ms later (median; least 0.2 ms, greatest 30.0 ms)" in dated(cycle)


def test_it_is_said_that_a_capture_dated_nothing(run: RunRecord) -> None:
    cycle = run.cycles[0].model_copy(deep=True)
    cycle.observed.replies = RepliesSeen(dated=0, of=9000)
    assert "dated none of 9,000 operations" in dated(cycle)
    cycle.observed.replies = RepliesSeen(dated=0, of=0)
    assert dated(cycle) == ""
