"""The demo: one stack, four cycles, and the difference between being told and being safe."""

from pathlib import Path

from harness.array import ArraySpec
from harness.campaign import Campaign
from harness.cycle import CycleSpec
from harness.disk.cache import CacheMode
from harness.export import ExportSpec
from harness.log import progress
from harness.mount import MountSpec
from harness.record import ControlSpec, RunRecord
from harness.stack import StackSpec
from harness.topology import Topology, server_and_clients
from harness.units import KIB
from harness.workload.fio import FioSpec


def demo_topology() -> Topology:
    """Return the demo's lab: a server with four member disks, two clients."""
    return server_and_clients(clients=2, disks=4)


def demo_stack(*, sync: bool) -> StackSpec:
    """Return the demo's stack: RAID5 with chunks of 64 KiB, XFS, NFSv4.2."""
    return StackSpec(
        array=ArraySpec(level=5, members=("disk0", "disk1", "disk2", "disk3"), chunk_size=64 * KIB, assume_clean=True),
        export=ExportSpec(sync=sync),
        # A client that had handed all its requests over when the server died says nothing until timeo has passed: with
        # the default, it goes on a minute after the server is back.
        mount=MountSpec(vers="4.2", timeo_s=3.0),
    )


def demo_cycles(seed: int = 1) -> tuple[CycleSpec, ...]:
    """Return the four rows: two to compare, two that decide whether they count."""
    fio = FioSpec()
    return (
        CycleSpec(name="sync", title="sync export", stack=demo_stack(sync=True), fio=fio, seed=seed),
        CycleSpec(name="async", title="async export", stack=demo_stack(sync=False), fio=fio, seed=seed),
        CycleSpec(
            name="lying-disks",
            title="control: lying disks",
            stack=demo_stack(sync=True),
            cache_mode=CacheMode.LYING,
            fio=fio,
            seed=seed,
            control=ControlSpec(expects_loss=True, expects_blame="the disks"),
        ),
        CycleSpec(
            name="clean-reboot",
            title="control: clean reboot",
            stack=demo_stack(sync=True),
            fault="clean-reboot",
            fio=fio,
            seed=seed,
            control=ControlSpec(expects_loss=False),
        ),
    )


def run_demo(results: Path, *, keep: bool = False) -> tuple[RunRecord, Path]:
    """Run the demo and return its record and its report."""
    with progress("starting"), Campaign("demo", results, demo_topology(), keep=keep) as campaign:
        for spec in demo_cycles():
            campaign.cycle(spec)
    return campaign.record, campaign.report
