"""The self-test: crash tests with one planted defect of the disks each, all of which the harness must find."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from raidproof.core.blame import Blame
from raidproof.core.errors import RequirementMissing
from raidproof.core.log import progress
from raidproof.core.topology import Platform, Topology, server_and_clients
from raidproof.core.units import MIB
from raidproof.core.waiting import now_ns, wall_clock
from raidproof.crash.checker import SHOW
from raidproof.disk.cache import CacheMode
from raidproof.disk.disk_fault import (
    DiskFault,
    drop_flushes,
    early_flushes,
    lost_writes,
    misdirected,
    newest_unflushed,
    overwrites_unflushed,
)
from raidproof.fault.disk import DefectiveDrives
from raidproof.guest.ledger_format import METADATA
from raidproof.provider.registry import prepare
from raidproof.record import CrashTestRecord, RunStore
from raidproof.record.exploration import ExplorationRecord
from raidproof.record.outcome import Outcome
from raidproof.record.selftest import SELFTEST, SelftestRecord, SelftestRow
from raidproof.run.crash_test import NO_FAULT, CrashTestSpec
from raidproof.run.demo import demo_stack
from raidproof.run.directed import check_directed
from raidproof.run.doctor import require_host
from raidproof.run.run import Run, command_line
from raidproof.verdict.crash_states import outcome_of
from raidproof.verdict.selftest import answer_of, conclude_selftest
from raidproof.workload.ledger import LedgerSpec

MEMBERS = ("disk0", "disk1", "disk2", "disk3")
FLAWED = "disk1"
"""The member with the defect, if only one has it: the most difficult case."""
METADATA_END = 4 * MIB
"""Bytes at the beginning of a member that no defect affects: md's metadata, without which the array is gone."""
EARLY_US = 10_000
"""Microseconds by which a flush ends too early: longer than the server's reply takes on a busy host."""
CHANGES = ("mkdir", "create", "append")
"""The changes of names: few kinds, so that each of them has enough solo operations in a small recording."""
BLOCKS = 4
"""Number of blocks of each file: few, so that solo operations overwrite them."""
LEDGER = LedgerSpec(
    kinds=("fsync", "o_sync", "close", "metadata"),
    omit=tuple(kind for kind in METADATA if kind not in CHANGES),
    blocks=BLOCKS,
    files=BLOCKS,
)
WORK_S, SOLO_S = 0.2, 1.0
"""Seconds of the client's work, and of its solo operations."""
EXTRA_S = 20.0
"""Greatest number of further seconds until there are enough solo operations of each kind: for a busy host."""
DISK_SIZE = 184 * MIB
"""Bytes of each disk: the array has little more than XFS needs."""


@dataclass(frozen=True)
class PlantedDefect:
    """A defect of the disks that a drive may have."""

    name: str
    says: str
    """What the disks do, as a clause."""
    disk_fault: DiskFault | None = None
    """The defect of ``serials``; None: all disks have ``cache_mode``."""
    serials: tuple[str, ...] = (FLAWED,)
    cache_mode: CacheMode = CacheMode.VOLATILE


DEFECTS = (
    PlantedDefect("lying-disks", "all disks acknowledge flushes and keep nothing", cache_mode=CacheMode.LYING),
    PlantedDefect("dropped-flushes", f"{FLAWED} acknowledges flushes and keeps nothing", drop_flushes()),
    PlantedDefect(
        "early-flushes",
        f"all disks acknowledge flushes {EARLY_US // 1000} ms before the effect",
        early_flushes(EARLY_US),
        MEMBERS,
    ),
    PlantedDefect(
        "newest-unflushed",
        f"a flush of {FLAWED} leaves the 2 newest writes volatile",
        newest_unflushed(2),
    ),
    PlantedDefect(
        "overwrites-unflushed",
        "a flush leaves data that overwrite durable data volatile",
        overwrites_unflushed(),
        MEMBERS,
    ),
    PlantedDefect(
        "lost-writes", f"{FLAWED} acknowledges 40 writes without executing them", lost_writes(40, offset=METADATA_END)
    ),
    PlantedDefect(
        "misdirected-writes",
        f"{FLAWED} writes 10 times to a place 1 MiB further",
        misdirected(MIB, 10, offset=METADATA_END),
    ),
)
"""The closed list of defects of a self-test."""


def selftest_cycle(defect: PlantedDefect | None, seed: int) -> CrashTestSpec:
    """Return the crash test with a defect; None: with sound disks.

    No fault is injected: the crash states show what the disks would have lost.
    """
    faults = (
        () if defect is None or defect.disk_fault is None else (DefectiveDrives(defect.serials, defect.disk_fault),)
    )
    return CrashTestSpec(
        name="no-defect" if defect is None else defect.name,
        title="no defect" if defect is None else f"planted: {defect.name}",
        stack=demo_stack(sync=True),
        cache_mode=CacheMode.VOLATILE if defect is None else defect.cache_mode,
        fault=NO_FAULT,
        during=faults,
        ledger=LEDGER,
        ledger_seconds=WORK_S,
        solo_seconds=SOLO_S,
        solo_extra_s=EXTRA_S,
        seed=seed,
    )


def selftest_topology(platform: Platform | None = None) -> Topology:
    """Return the lab of a self-test: a server with four small disks, and one client.

    Raises:
        RequirementMissing: the provider's machines cannot show a crash state.
    """
    topology = server_and_clients(clients=1, disks=len(MEMBERS), disk_size=DISK_SIZE, platform=platform)
    if topology.provider not in SHOW:
        raise RequirementMissing(f"a self-test needs simulated disks: provider {' or '.join(SHOW)}")
    return topology


def run_selftest(
    results: Path,
    *,
    platform: Platform | None = None,
    seed: int = 1,
) -> tuple[SelftestRecord, Path]:
    """Run a crash test without a defect, then one with each defect; return the record and the path of its file.

    All crash tests use the same lab.

    Raises:
        RequestError: the kernel or the image is unknown.
        RequirementMissing: this host cannot run a lab, or the provider cannot show a crash state.
    """
    require_host()
    with progress("preparing kernel and image"):
        topology = selftest_topology(platform)
        prepare(topology)
        with Run("selftest", results, topology) as run:
            record = SelftestRecord(run=run.record.run, started=run.record.started, command=command_line(sys.argv))
            for defect in (None, *DEFECTS):
                record.rows.append(_row(run, defect, seed))
                run.store.write_text(SELFTEST, record.model_dump_json(indent=1) + "\n")
    record.ended = wall_clock()
    record.outcome, record.reason = conclude_selftest(record.rows)
    return record, run.store.write_text(SELFTEST, record.model_dump_json(indent=1) + "\n")


def _row(run: Run, defect: PlantedDefect | None, seed: int) -> SelftestRow:
    begun = now_ns()
    cycle = run.cycle(selftest_cycle(defect, seed))
    check_directed(run, cycle, briefly=True)
    outcome, reason = outcome_of(cycle)
    if defect is None and outcome is Outcome.PASS and (unproved := _unproved(cycle)):
        outcome, reason = unproved
    blamed = list(dict.fromkeys(blames_of(cycle, run.store)))
    return SelftestRow(
        defect=None if defect is None else defect.name,
        says="sound disks" if defect is None else defect.says,
        cycle=cycle.name,
        outcome=outcome,
        reason=reason,
        blamed=blamed,
        states=sum(one.judged for one in cycle.explored),
        seconds=(now_ns() - begun) / 1e9,
        answer=answer_of(outcome, blamed, planted=defect is not None),
    )


def _unproved(cycle: CrashTestRecord) -> tuple[Outcome, str] | None:
    """Return the outcome and the reason of a crash test whose crash states did not pass; None if they did."""
    if not cycle.explored:
        return Outcome.INCONCLUSIVE, "no crash state was checked"
    return next(((one.outcome, one.reason) for one in cycle.explored if one.outcome is not Outcome.PASS), None)


def blames_of(cycle: CrashTestRecord, store: RunStore) -> Iterable[Blame]:
    """Yield the blames of the failed verdicts of a crash test, and of the failures of its explorations."""
    yield from (one.blame for one in cycle.verdicts if one.outcome is Outcome.FAIL and one.blame is not None)
    for one in cycle.explored:
        if one.file is not None:
            found = ExplorationRecord.model_validate_json((store.path / one.file).read_text())
            yield from (failure.blame for failure in found.failures if failure.blame is not None)
