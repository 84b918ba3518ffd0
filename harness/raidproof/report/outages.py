"""The outages of a server in tables: the times without service of each client (RTO), and lost work (RPO)."""

from functools import partial
from typing import NamedTuple

from raidproof.record.outage import Outage, Rto, Work
from raidproof.record.run import CrashTestRecord
from raidproof.report.table import Cell, Field, Table
from raidproof.report.words import UNKNOWN, count, number


class Row(NamedTuple):
    """The times of one client in one outage."""

    outage: Outage
    client: str
    times: dict[Work, Rto]


def greatest_rto(cycle: CrashTestRecord, work: Work) -> str:
    """Return the greatest time without service of a class of work as text, with the number of those not known."""
    times = [one.seconds for outage in cycle.outages for one in outage.rto if one.work is work]
    known = [one for one in times if one is not None]
    if not known:
        return UNKNOWN
    lacking = len(times) - len(known)
    return number(max(known)) + (f" ({lacking} of {len(times)} not known)" if lacking else "")


def rows_of(cycle: CrashTestRecord) -> list[Row]:
    """Return a row for each outage and client of a crash test."""
    return [
        Row(outage, client, {one.work: one for one in outage.rto if one.client == client})
        for outage in cycle.outages
        for client in dict.fromkeys(one.client for one in outage.rto)
    ]


def outage_table(cycle: CrashTestRecord) -> Table[Row]:
    """Return the table of the outages of a crash test."""
    rows = rows_of(cycle)
    done = [work for work in Work if any(work in row.times for row in rows)]
    return Table(
        [
            Field("fault", lambda row: f"{row.outage.fault} ({row.outage.target})", names_row=True),
            Field("client", lambda row: row.client, "word"),
            Field("server down", lambda row: number(row.outage.down_s), "number", "s"),
            *(Field(work, partial(_time, work), "number", "s", "RTO") for work in done),
            Field(
                "lost", lambda row: Cell(count(row.outage.lost), loss=bool(row.outage.lost)), "number", "ops", "RPO"
            ),
            Field("work lost", lambda row: number(row.outage.lost_s), "number", "s", "RPO"),
        ],
        rows,
        note="RTO: time from the last acknowledgement before service could resume to the first one after it, by the "
        "server's replies on the network; *: by the client's reports, which arrive later. It includes the time in "
        "which the client requested none. RPO: acknowledged operations that were missing after the fault, and the "
        "time from the oldest of them to the fault. The sign - means: not known, or not served again.",
    )


def _time(work: Work, row: Row) -> str:
    rto = row.times.get(work)
    if rto is None or rto.seconds is None:
        return UNKNOWN
    return number(rto.seconds) + ("" if rto.dated else "*")
