"""The tables of a server's outages."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from raidproof.record import RunStore
from raidproof.record.outage import Outage, Rto, Work
from raidproof.record.run import CrashTestRecord, RunRecord
from raidproof.report.columns import columns
from raidproof.report.html import render
from raidproof.report.outages import greatest_rto, outage_table
from raidproof.report.terminal import show

RECORDED = Path(__file__).resolve().parents[1] / "data" / "run"


def time(client: str, work: Work, seconds: float | None, *, dated: bool = True) -> Rto:
    return Rto(client=client, work=work, last_s=-0.1, seconds=seconds, dated=dated)


@pytest.fixture
def run() -> RunRecord:
    return RunStore(RECORDED).load()


@pytest.fixture
def cycle(run: RunRecord) -> CrashTestRecord:
    cycle = run.cycles[0]
    times = [
        time("client1", Work.WRITES, 4.25),
        time("client1", Work.LOCKS, 12.5, dated=False),
        time("client2", Work.WRITES, 5.75),
    ]
    first = Outage(fault="takeover", target="server", down_s=3.5, rto=times, lost=17, lost_s=1.25)
    second = Outage(fault="nfsd-restart", target="server2", down_s=1.5, rto=[time("client1", Work.WRITES, None)])
    cycle.outages = [first, second]
    return cycle


def test_each_row_has_the_times_of_a_client(cycle: CrashTestRecord) -> None:
    table = outage_table(cycle)
    assert [one.title for one in table.fields] == [
        "fault", "client", "server down", "writes", "locks", "lost", "work lost",
    ]  # fmt: skip
    assert [[one.cell(row).words for one in table.fields] for row in table.rows] == [
        ["takeover (server)", "client1", "3.50", "4.25", "12.5*", "17", "1.25"],
        ["takeover (server)", "client2", "3.50", "5.75", "-", "17", "1.25"],
        ["nfsd-restart (server2)", "client1", "1.50", "-", "-", "-", "-"],
    ]
    assert table.fields[-2].cell(table.rows[0]).loss


def test_the_greatest_time_says_of_how_many_clients_it_is_not_known(cycle: CrashTestRecord) -> None:
    assert greatest_rto(cycle, Work.WRITES) == "5.75 (1 of 3 not known)"
    assert greatest_rto(cycle, Work.LOCKS) == "12.5"
    assert greatest_rto(cycle, Work.METADATA) == "-"
    cycle.outages = cycle.outages[1:]
    assert greatest_rto(cycle, Work.WRITES) == "-"


def test_page_and_terminal_show_them(run: RunRecord, cycle: CrashTestRecord) -> None:
    cycle.outages = cycle.outages[:1]
    page = render(run)
    assert "Outages of the server" in page
    assert "12.5*" in page
    said = StringIO()
    show(run, Console(file=said, width=200))
    assert "RTO" in said.getvalue()
    assert "5.75" in said.getvalue()
    assert {"RTO writes", "RTO metadata", "RTO locks"} <= {one.title for one in columns()}


def test_a_record_without_outages_shows_none(run: RunRecord) -> None:
    for one in run.cycles:
        one.outages = []
    assert "Outages of the server" not in render(run)
