"""The standard columns of the table of crash tests."""

from collections.abc import Sequence
from statistics import median

from raidproof.record.run import CrashTestRecord
from raidproof.report.columns.column import Column
from raidproof.report.words import UNKNOWN, count, number


def export(cycle: CrashTestRecord) -> str:
    """Return whether the requested export is sync or async."""
    sync = cycle.asked.get("export", {}).get("sync")
    return UNKNOWN if sync is None else ("sync" if sync else "async")


def sequential_write(cycle: CrashTestRecord) -> float | None:
    """Return the sequential write rate in MB/s."""
    return cycle.throughput.sequential_write_mb_s


def median_and_range(value: float | None, each: Sequence[float]) -> str:
    """Return a measured rate as text: median, least and greatest of several measurements, or a single value."""
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
    "none: every write is durable. lying: acknowledges flushes without executing them.",
    lambda cycle: cycle.cache_mode,
    order=2,
)
Column(
    "speed before the fault",
    "sequential write",
    "MB/s",
    "fio on one client, 1 MiB writes, fsync inside the timed region; 10^6 bytes per second. Median, least and "
    "greatest of n measurements, taken with honest disks and without the write log. Rows whose ranges "
    "overlap show no difference. Controls are not measured.",
    _sequential_write,
    order=3,
)
Column(
    "speed before the fault",
    "fsynced 4 KiB writes",
    "1/s",
    "Acknowledged 4 KiB writes with fsync per second, all clients together. Median, least and greatest of the n "
    "whole seconds of the ledger.",
    _fsyncs,
    order=4,
)
Column(
    "acknowledged work",
    "acknowledged",
    "ops",
    "Data and metadata operations that were acknowledged to clients before the fault.",
    _acknowledged,
    order=5,
)
Column(
    "acknowledged work",
    "survived",
    "ops",
    "Acknowledged operations that were on the server after the fault.",
    _survived,
    order=6,
)
Column(
    "acknowledged work",
    "lost",
    "ops",
    "Acknowledged operations that were missing on the server after the fault.",
    _lost,
    order=7,
)
Column(
    "acknowledged work",
    "work lost",
    "s",
    "Time from the earliest lost acknowledgement to the fault. If the whole ledger is lost, a longer ledger would "
    "have lost more.",
    lambda cycle: number(cycle.loss_window_s),
    order=8,
)
Column(
    "recovery",
    "boot",
    "s",
    "Time from power on until the server answers.",
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
