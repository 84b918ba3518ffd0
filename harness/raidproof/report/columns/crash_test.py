"""The columns that every table of crash tests has."""

from collections.abc import Sequence
from statistics import median

from raidproof.record.run import CrashTestRecord
from raidproof.report.columns.column import Column
from raidproof.report.words import UNKNOWN, count, number


def export(cycle: CrashTestRecord) -> str:
    """Return whether the export was asked to be sync or async."""
    sync = cycle.asked.get("export", {}).get("sync")
    return UNKNOWN if sync is None else ("sync" if sync else "async")


def sequential_write(cycle: CrashTestRecord) -> float | None:
    """Return the sequential write rate in MB/s."""
    return cycle.throughput.sequential_write_mb_s


def median_and_range(value: float | None, each: Sequence[float]) -> str:
    """Write a measured rate with how far its measurements are apart: one alone says nothing of that."""
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
    "What the NFS server promises. sync: it answers when the data is on its disks. "
    "async: it answers earlier, which breaks the protocol.",
    export,
    order=1,
)
Column(
    "setting",
    "disks' cache",
    "",
    "volatile: honest, lost with power unless flushed. protected: survives. "
    "none: every write is durable. lying: says that it flushed, and did not.",
    lambda cycle: cycle.cache_mode,
    order=2,
)
Column(
    "speed before the fault",
    "sequential write",
    "MB/s",
    "fio on one client, 1 MiB writes, fsync inside the timed region; 10^6 bytes a second. Median, least and "
    "greatest of n measurements, before the disks begin to lie and without the write log. Rows whose ranges "
    "overlap are not told apart. Controls are not measured.",
    _sequential_write,
    order=3,
)
Column(
    "speed before the fault",
    "fsynced 4 KiB writes",
    "1/s",
    "Acknowledged write + fsync of 4 KiB, all clients together. Median, least and greatest of the n whole "
    "seconds of the ledger.",
    _fsyncs,
    order=4,
)
Column(
    "acknowledged work",
    "acknowledged",
    "ops",
    "What clients had been told is done before the fault: data and metadata.",
    _acknowledged,
    order=5,
)
Column(
    "acknowledged work", "survived", "ops", "How many of those were on the server after the fault.", _survived, order=6
)
Column("acknowledged work", "lost", "ops", "How many of those were not.", _lost, order=7)
Column(
    "acknowledged work",
    "work lost",
    "s",
    "Seconds of acknowledged work lost: from the earliest lost acknowledgement to the fault. Where all of the "
    "ledger is lost, a longer one would have lost more.",
    lambda cycle: number(cycle.loss_window_s),
    order=8,
)
Column(
    "recovery",
    "boot",
    "s",
    "From power back to a machine that answers.",
    lambda cycle: number(cycle.recovery.boot_s),
    order=9,
)
Column(
    "recovery",
    "assemble",
    "s",
    "Until the array is online.",
    lambda cycle: number(cycle.recovery.assemble_s),
    order=10,
)
Column(
    "recovery",
    "mount",
    "s",
    "Until the file system is mounted.",
    lambda cycle: number(cycle.recovery.mount_s),
    order=11,
)
Column(
    "recovery",
    "first I/O",
    "s",
    "From the export's start to the first acknowledgement that a client got.",
    lambda cycle: number(cycle.recovery.first_io_s),
    order=12,
)
