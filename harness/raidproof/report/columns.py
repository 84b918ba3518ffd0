"""The table of a run: one row a cycle, the same columns in every form of the report."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from raidproof.record.outcome import Outcome
from raidproof.record.run import CycleRecord, RunRecord
from raidproof.report.words import UNKNOWN, count, data, number, plural


@dataclass(frozen=True)
class Column:
    """One measure of a cycle."""

    group: str
    title: str
    unit: str
    """Empty for words."""
    meaning: str
    value: Callable[[CycleRecord], str]


def export(cycle: CycleRecord) -> str:
    """Return whether the export was asked to be sync or async."""
    sync = cycle.asked.get("export", {}).get("sync")
    return UNKNOWN if sync is None else ("sync" if sync else "async")


def sequential_write(cycle: CycleRecord) -> float | None:
    """Return the sequential write rate in MB/s."""
    return cycle.throughput.sequential_write_mb_s


def median_and_range(value: float | None, each: Sequence[float]) -> str:
    """Write a measured rate with how far its measurements are apart: one alone says nothing of that."""
    if value is None:
        return UNKNOWN
    if len(each) < 2:
        return f"{number(value)} (n=1)"
    return f"{number(median(each))} ({number(min(each))}-{number(max(each))}, n={len(each)})"


def _sequential_write(cycle: CycleRecord) -> str:
    return median_and_range(sequential_write(cycle), cycle.throughput.sequential_write_each)


def _fsyncs(cycle: CycleRecord) -> str:
    return median_and_range(cycle.throughput.fsyncs_per_s, cycle.throughput.fsyncs_each_second)


def _acknowledged(cycle: CycleRecord) -> str:
    return count(cycle.on_server.acknowledged_total if cycle.on_server else None)


def _survived(cycle: CycleRecord) -> str:
    balance = cycle.on_server
    return count(balance.acknowledged_total - balance.lost_total if balance else None)


def _lost(cycle: CycleRecord) -> str:
    return count(cycle.on_server.lost_total if cycle.on_server else None)


COLUMNS = (
    Column("setting", "export", "", "What the NFS server promises. sync: it answers when the data is on its disks. "
           "async: it answers earlier, which breaks the protocol.", export),
    Column("setting", "disks' cache", "", "volatile: honest, lost with power unless flushed. protected: survives. "
           "none: every write is durable. lying: says that it flushed, and did not.", lambda cycle: cycle.cache_mode),
    Column("speed before the fault", "sequential write", "MB/s",
           "fio on one client, 1 MiB writes, fsync inside the timed region; 10^6 bytes a second. Median, least and "
           "greatest of n measurements, before the disks begin to lie and without the write log. Rows whose ranges "
           "overlap are not told apart. Controls are not measured.", _sequential_write),
    Column("speed before the fault", "fsynced 4 KiB writes", "1/s",
           "Acknowledged write + fsync of 4 KiB, all clients together. Median, least and greatest of the n whole "
           "seconds of the ledger.", _fsyncs),
    Column("acknowledged work", "acknowledged", "ops",
           "What clients had been told is done before the fault: data and metadata.", _acknowledged),
    Column("acknowledged work", "survived", "ops", "How many of those were on the server after the fault.", _survived),
    Column("acknowledged work", "lost", "ops", "How many of those were not.", _lost),
    Column("acknowledged work", "work lost", "s",
           "Seconds of acknowledged work lost: from the earliest lost acknowledgement to the fault. Where all of the "
           "ledger is lost, a longer one would have lost more.",
           lambda cycle: number(cycle.loss_window_s)),
    Column("recovery", "boot", "s", "From power back to a machine that answers.",
           lambda cycle: number(cycle.recovery.boot_s)),
    Column("recovery", "assemble", "s", "Until the array is online.", lambda cycle: number(cycle.recovery.assemble_s)),
    Column("recovery", "mount", "s", "Until the file system is mounted.",
           lambda cycle: number(cycle.recovery.mount_s)),
    Column("recovery", "first I/O", "s", "From the export's start to the first acknowledgement that a client got.",
           lambda cycle: number(cycle.recovery.first_io_s)),
)  # fmt: skip
"""All measures, in order; the cycle's title stands before them and its verdict after."""


def note(record: RunRecord, cycle: CycleRecord) -> str:
    """Return what has to stand beside a verdict for it not to be misread; empty if nothing has to."""
    if cycle.control is not None:
        return {Outcome.PASS: "control behaved", Outcome.INVALID: "control misbehaved"}.get(cycle.outcome, "control")
    if record.outcome is Outcome.INVALID and cycle.outcome in (Outcome.PASS, Outcome.FAIL):
        return "does not count"
    return ""


def blames(cycle: CycleRecord) -> list[str]:
    """Return whom the verdicts of a cycle blame, each once, but for those whom its reason names already."""
    named = (str(verdict.blame) for verdict in cycle.verdicts if verdict.blame is not None)
    return [blame for blame in dict.fromkeys(named) if blame not in cycle.reason]


def losses(cycle: CycleRecord) -> str:
    """Say how many whole files and bytes are gone; empty if nothing was looked at."""
    balance = cycle.on_server
    if balance is None:
        return ""
    if not balance.lost_total and not balance.lost_files:
        return "no file, no byte lost"
    return f"{plural(balance.lost_files, 'whole file')} and {data(balance.lost_bytes)} lost"


def happening(cycle: CycleRecord) -> str:
    """Name the fault, what the disks' caches kept where that was a choice, and what was wrong all the while."""
    named = f"{cycle.fault}, caches: {cycle.policy}" if cycle.policy else cycle.fault
    return named + "".join(f"; while {one['fault']} ({one['target']})" for one in cycle.during)


def conditions(cycle: CycleRecord) -> str:
    """Say what was wrong from before the clients began, with the proofs; empty if nothing was."""
    return "; ".join(
        f"{one['fault']} ({one['target']}): {one['proof']}" + (f", {one['lasted']}" if "lasted" in one else "")
        for one in cycle.during
    )
