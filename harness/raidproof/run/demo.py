"""The demo: four crash tests of one stack, which show that acknowledged operations need not be durable."""

from pathlib import Path

from raidproof.core.blame import Culprit
from raidproof.core.log import progress
from raidproof.core.topology import Platform, Topology, server_and_clients
from raidproof.core.units import KIB, MIB
from raidproof.disk.cache import CacheMode
from raidproof.provider.registry import prepare
from raidproof.record import ControlSpec, RunRecord
from raidproof.run.crash_test import CrashTestSpec
from raidproof.run.doctor import require_host
from raidproof.run.run import Run
from raidproof.storage.array import ArraySpec
from raidproof.storage.filesystem import FilesystemSpec, usual
from raidproof.storage.mount import MountSpec
from raidproof.storage.server import ExportSpec
from raidproof.storage.stack import StackSpec
from raidproof.storage.tuning import TuningSpec
from raidproof.workload.fio import FioSpec

EARLY_WRITE_BACK = TuningSpec(server_dirty_expire_s=1, server_dirty_writeback_s=0.5, server_xfs_sync_s=1)
"""Kernel settings for early write-back. With Linux's default of 30 s, an async export would lose all operations of the
demo's ledger."""
ASYNC_LEDGER_S = 5.0
"""Seconds of the clients' work on the async export: longer than write-back takes, so that some operations survive."""
CONTROL_LEDGER_S = 2.0
"""Seconds of the clients' work in a control, which shows whether a loss is found, not how much is lost."""


def demo_topology(platform: Platform | None = None) -> Topology:
    """Return the demo's lab: a server with four member disks, two clients."""
    return server_and_clients(clients=2, disks=4, platform=platform)


def demo_stack(*, sync: bool, tuning: TuningSpec | None = None, filesystem: FilesystemSpec | None = None) -> StackSpec:
    """Return the demo's stack: RAID5 with chunks of 64 KiB, NFSv4.2, and the default file system or another one."""
    return StackSpec(
        filesystem=filesystem or usual(),
        array=ArraySpec(level=5, members=("disk0", "disk1", "disk2", "disk3"), chunk_size=64 * KIB, assume_clean=True),
        # No delegations: under a delegation, `close` promises nothing. And when both clients return to a shared file,
        # the server delegates the file to the first and then waits for the end of its grace period (docs/findings.md).
        export=ExportSpec(sync=sync, delegations=False),
        mount=MountSpec(vers="4.2"),
        tuning=tuning or TuningSpec(),
    )


def demo_cycles(seed: int = 1, filesystem: FilesystemSpec | None = None) -> tuple[CrashTestSpec, ...]:
    """Return the demo's four crash tests: a sync and an async export, whose speed is measured, and two controls."""
    fio = FioSpec(size=64 * MIB)
    safe = demo_stack(sync=True, filesystem=filesystem)
    early = demo_stack(sync=False, tuning=EARLY_WRITE_BACK, filesystem=filesystem)
    return (
        CrashTestSpec(name="sync", title="sync export", stack=safe, fio=fio, seed=seed),
        CrashTestSpec(
            name="async", title="async export", stack=early, ledger_seconds=ASYNC_LEDGER_S, fio=fio, seed=seed
        ),
        CrashTestSpec(
            name="lying-disks",
            title="control: lying disks",
            stack=safe,
            cache_mode=CacheMode.LYING,
            ledger_seconds=CONTROL_LEDGER_S,
            seed=seed,
            control=ControlSpec(expects_loss=True, expects_blame=Culprit.DISKS),
        ),
        CrashTestSpec(
            name="clean-reboot",
            title="control: clean reboot",
            stack=safe,
            fault="clean-reboot",
            ledger_seconds=CONTROL_LEDGER_S,
            seed=seed,
            control=ControlSpec(expects_loss=False),
        ),
    )


def run_demo(
    results: Path,
    *,
    platform: Platform | None = None,
    filesystem: FilesystemSpec | None = None,
    seed: int = 1,
    keep: bool = False,
) -> tuple[RunRecord, Path | None]:
    """Run the demo and return its record and the path of its report.

    Raises:
        RequestError: the kernel or the image is unknown.
        RequirementMissing: this host cannot run a lab.
    """
    require_host()
    with progress("preparing kernel and image"):
        # Prepare before the run is created, so that a failure here leaves no run.
        topology = demo_topology(platform)
        prepare(topology)
        with Run("demo", results, topology, keep=keep) as current_run:
            for spec in demo_cycles(seed, filesystem):
                current_run.cycle(spec)
    return current_run.record, current_run.report
