"""The standard columns of the table of crash tests."""

from collections.abc import Sequence
from functools import partial
from statistics import median

from raidproof.record.outage import Work
from raidproof.record.run import CrashTestRecord
from raidproof.report.columns.column import Column
from raidproof.report.outages import greatest_rto
from raidproof.report.sensitivity import noticed_in_words
from raidproof.report.words import UNKNOWN, count, number
from raidproof.verdict.crash_states import noticed_by


def export(cycle: CrashTestRecord) -> str:
    """Return ``sync`` or ``async``, the option of the requested export."""
    sync = cycle.asked.get("export", {}).get("sync")
    return UNKNOWN if sync is None else ("sync" if sync else "async")


def sequential_write(cycle: CrashTestRecord) -> float | None:
    """Return the sequential write rate in MB/s (10^6 bytes per second); None if it was not measured."""
    return cycle.throughput.sequential_write_mb_s


def median_and_range(value: float | None, each: Sequence[float]) -> str:
    """Return a measured rate as text: median, least and greatest of several measurements, or the single value.

    ``each``: the measurements; empty if only ``value`` is recorded.
    """
    if value is None:
        return UNKNOWN
    if len(each) < 2:
        return f"{number(value)} (n=1)"
    return f"{number(median(each))} ({number(min(each))}-{number(max(each))}, n={len(each)})"


def _sequential_write(cycle: CrashTestRecord) -> str:
    return median_and_range(sequential_write(cycle), cycle.throughput.sequential_write_each)


def _fsyncs(cycle: CrashTestRecord) -> str:
    return median_and_range(cycle.throughput.fsyncs_per_s, cycle.throughput.fsyncs_each_second)


def _acknowledged(cycle: CrashTestRecord) -> str:
    return count(cycle.on_server.acknowledged_total if cycle.on_server else None)


def _survived(cycle: CrashTestRecord) -> str:
    balance = cycle.on_server
    return count(balance.acknowledged_total - balance.lost_total if balance else None)


def _lost(cycle: CrashTestRecord) -> str:
    return count(cycle.on_server.lost_total if cycle.on_server else None)


Column(
    "setting",
    "export",
    "",
    "The export option of exports(5). sync: the server replies after the data is on stable storage. "
    "async: the server replies earlier, which violates the NFS protocol.",
    export,
    order=1,
)
Column(
    "setting",
    "disks' cache",
    "",
    "Write cache of the member disks. volatile: lost at a power cut unless flushed. protected: survives a power cut. "
    "none: every acknowledged write is durable. lying: the disk acknowledges flushes without executing them.",
    lambda cycle: cycle.cache_mode,
    order=2,
)
Column(
    "speed before the fault",
    "sequential write",
    "MB/s",
    "Sequential writes by fio on one client in 10^6 bytes per second: 1 MiB each, with fsync in the timed part. "
    "Median, least and greatest of n measurements, taken without lying disks and without the write log. Rows whose "
    "ranges overlap show no difference. Controls are not measured.",
    _sequential_write,
    order=3,
)
Column(
    "speed before the fault",
    "fsynced 4 KiB writes",
    "1/s",
    "Acknowledged 4 KiB writes with fsync per second, all clients together. Median, least and greatest over the n "
    "whole seconds in which the ledger ran.",
    _fsyncs,
    order=4,
)
Column(
    "acknowledged work",
    "acknowledged",
    "ops",
    "Operations on data and metadata that the server acknowledged before the fault.",
    _acknowledged,
    order=5,
)
Column(
    "acknowledged work",
    "survived",
    "ops",
    "Acknowledged operations whose effect was found on the server after the fault.",
    _survived,
    order=6,
)
Column(
    "acknowledged work",
    "lost",
    "ops",
    "Acknowledged operations whose effect was missing on the server after the fault.",
    _lost,
    order=7,
)
Column(
    "acknowledged work",
    "work lost",
    "s",
    "Time from the earliest lost acknowledgement to the fault (RPO). If all operations are lost, this is the whole "
    "time for which the ledger ran.",
    lambda cycle: number(cycle.loss_window_s),
    order=8,
)
Column(
    "acknowledged work",
    "noticed",
    "flushes",
    "Flushes of a member whose absence the power cut, or a checked crash state, would have shown, of all flushes that "
    "made data of acknowledged operations durable.",
    lambda cycle: noticed_in_words(noticed_by(cycle)),
    order=8,
)
Column(
    "recovery",
    "boot",
    "s",
    "Time from power on until the server's machine replies to the harness.",
    lambda cycle: number(cycle.recovery.boot_s),
    order=9,
)
Column(
    "recovery",
    "assemble",
    "s",
    "Time from boot until the array is online.",
    lambda cycle: number(cycle.recovery.assemble_s),
    order=10,
)
Column(
    "recovery",
    "mount",
    "s",
    "Time from assembly until the file system is mounted.",
    lambda cycle: number(cycle.recovery.mount_s),
    order=11,
)
Column(
    "recovery",
    "first I/O",
    "s",
    "Time from the start of the export to the first acknowledgement to a client.",
    lambda cycle: number(cycle.recovery.first_io_s),
    order=12,
)
for place, work in enumerate((Work.WRITES, Work.METADATA, Work.LOCKS)):
    Column(
        "outage",
        f"RTO {work}",
        "s",
        f"Time from the last acknowledgement of {work} before an outage of the server to the first one after it: the "
        "greatest of all clients and outages. It includes the time in which a client requested none, and is not known "
        "of a client that got no further one before the clients finished.",
        partial(greatest_rto, work=work),
        order=13 + place,
    )
