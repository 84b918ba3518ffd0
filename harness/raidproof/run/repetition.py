"""One repetition of a cell: deploy its configuration, run its workload, and find its bottleneck."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from raidproof.core.errors import DeadlineExceeded, RigError
from raidproof.core.files import write_durably
from raidproof.core.log import logger
from raidproof.core.topology import NO_MECHANICS, Topology
from raidproof.disk.cache import CacheMode
from raidproof.disk.disks import usual_modes
from raidproof.disk.messages import Busy, Use
from raidproof.disk.profile import load_profile
from raidproof.monitor import Application, Derived, EngineUse, Monitor, Recording, derive
from raidproof.monitor.bottleneck import find_cause
from raidproof.monitor.chart import Moment, moments
from raidproof.monitor.model import NOTHING_FOUND, Found, seen_by_server
from raidproof.plan.axes import write_value
from raidproof.plan.ceiling import ceiling_of
from raidproof.plan.cell import Cell
from raidproof.plan.plan import Plan
from raidproof.record.cell import CellRecord, Repetition
from raidproof.run.reference import measure_reference
from raidproof.run.stack_deployer import StackDeployer, slowed
from raidproof.storage.array import waits_for_flush
from raidproof.storage.link import LinkSpec
from raidproof.workload.regime import Memory, Route, find_steady, regime_of
from raidproof.workload.workload import CLIENTS, SERVER, Place, Sample, Workload, empty_caches

START_UP_S = 2.0
"""Greatest time in seconds that a workload's tool (fio, ...) takes to start and end. A tool that runs for longer
outside of its timed part does work that it does not time."""

MOST_EXTENTS = 100
"""Greatest number of extents of files that the record of a cell has."""


def new_record(cell: Cell) -> CellRecord:
    """Return the initial record of a cell."""
    return CellRecord(
        name=cell.name,
        settings={name: write_value(name, value) for name, value in cell.settings.items()},
        workload=cell.workload.model_dump(mode="json"),
        workload_name=cell.workload_name,
        unit="",
        asked=cell.stack.model_dump(mode="json"),
        resync="skipped: blank members agree" if cell.stack.array.skips_resync else "waited for",
    )


def expectation(topology: Topology, cell: Cell, unit: str, read_back: Found = NOTHING_FOUND) -> dict[str, Any] | None:
    """Return the expected value of a cell, with the formula and its source; None if no formula applies.

    The formulas give units whose names end in ``mb_s`` or ``iops``, not transactions or files per second.
    """
    found = ceiling_of(topology, cell, read_back)
    if found is None or not unit.endswith(("mb_s", "iops")):
        return None
    value = {"value": found.mb_s if unit.endswith("mb_s") else found.iops, **asdict(found)}
    if (placement := read_back.placement) is not None:
        # A fragmented file has thousands of extents.
        files = placement.files[:MOST_EXTENTS]
        value["extents"] = len(placement.files)
        value["placement"] = placement.model_copy(update={"files": files}).model_dump(mode="json")
    return value


def run_within(workload: Workload, place: Place, seconds: float | None) -> Sample:
    """Run the timed part of a workload, for at most ``seconds`` (None: no limit).

    Raises:
        DeadlineExceeded: the workload takes longer; it continues until the caller ends the lab.
    """
    if seconds is None:
        return workload.run(place)
    pool = ThreadPoolExecutor(1)
    try:
        running = pool.submit(workload.run, place)
        if not wait([running], seconds).done:
            raise DeadlineExceeded(f"the workload took longer than max_seconds, {seconds:g} s")
        return running.result()
    finally:
        pool.shutdown(wait=False)


def engine_use(begun: Use, ended: Use, working_s: float | None = None) -> EngineUse:
    """Return the disk engine's utilization between two samples.

    ``working_s``: seconds that the workload's tool (fio, ...) worked. If the remaining time is only start and end of
    the tool, shares are fractions of ``working_s``; otherwise they are fractions of the time between the samples.
    """
    wall_ns, disks_ns = max(1, ended.at_ns - begun.at_ns), max(1, ended.disks_ns - begun.disks_ns)
    if only_starts(wall_ns / 1e9, working_s):
        disks_ns = max(1, round(disks_ns * (working_s or 0) * 1e9 / wall_ns))
        wall_ns = max(1, round((working_s or 0) * 1e9))
    served = max(1, ended.served - begun.served)
    return EngineUse(
        cpu_share=(ended.cpu_ns - begun.cpu_ns) / wall_ns,
        late_ns_mean=(ended.late_ns - begun.late_ns) / served,
        service_ns_mean=(ended.service_ns - begun.service_ns) / served,
        members_busy=_shares(begun.members, ended.members, disks_ns),
        controllers_busy=_shares(begun.controllers, ended.controllers, disks_ns),
    )


def only_starts(wall_s: float, working_s: float | None) -> bool:
    """Return whether ``wall_s`` minus ``working_s`` is only a workload tool's start and end: up to START_UP_S."""
    return working_s is not None and 0 < working_s < wall_s <= working_s + START_UP_S


def trimmed(recordings: Mapping[str, Recording], seconds: float, working_s: float) -> dict[str, Recording]:
    """Return each machine's samples of the last ``seconds``, without start and warm-up of the workload's tool."""
    return {
        name: _last(one, seconds) if only_starts(one.seconds, working_s) else one for name, one in recordings.items()
    }


def _last(recording: Recording, seconds: float) -> Recording:
    since = recording.last.at_s - seconds
    snapshots = tuple(one for one in recording.snapshots if one.at_s >= since)
    return recording if len(snapshots) < 2 else replace(recording, snapshots=snapshots)


def _shares(begun: Sequence[Busy], ended: Sequence[Busy], disks_ns: int) -> dict[str, float]:
    """Return the fraction of ``disks_ns`` in which each simulated disk or controller was busy, by name; at most 1."""
    return {
        after.name: min(1.0, (after.busy_ns - before.busy_ns) / disks_ns)
        for before, after in zip(begun, ended, strict=True)
    }


def run_repetition(
    deployer: StackDeployer, plan: Plan, cell: Cell, record: CellRecord, repeat: Repetition, directory: Path
) -> None:
    """Make one repetition of a cell; store observations in the records, and the output of programs in the directory.

    Raises:
        NotEffective: the effective configuration differs from the requested one.
        RequirementMissing: a machine lacks the workload's program.
        RigError: the rig failed.
    """
    if plan.run.reference:
        repeat.reference = measure_reference(deployer)
    effective, repeat.built = deployer.deploy(cell.stack, cell.on)
    record.effective = effective or record.effective
    workload = cell.workload.workload()
    sample, engine, found = measure(deployer, cell, workload, plan.run.max_seconds)
    record.unit = sample.primary
    record.expected = expectation(deployer.lab.topology, cell, sample.primary, found)
    fill(repeat, sample, deployer.lab.topology.slow_motion)
    repeat.files = keep(sample, deployer.monitor, directory)
    repeat.engine = None if engine is None else vars(engine).copy()
    work = cell.workload.work()
    route = Route(
        on=cell.on,
        machines=cell.clients,
        export_sync=cell.stack.export.sync,
        mount_sync=bool(cell.stack.mount.sync),
    )
    memory = memory_of(deployer.lab.topology, cell)
    repeat.regime = regime_of(work, memory, route, allow_cache=plan.run.allow_cache).model_dump(mode="json")
    derived, over_time = look_below(deployer, cell, sample)
    repeat.moments = list(over_time)
    repeat.derived = None if derived is None else derived.model_dump(mode="json")
    cause = find_cause(
        derived,
        cell.stack.array,
        wsize=_wsize(effective),
        sync=cell.stack.export.sync,
        engine=engine,
        link_bytes_s=link_bytes_s(slowed(cell.stack, deployer.lab.topology.slow_motion).link)
        if cell.on == CLIENTS
        else None,
    )
    repeat.limit, repeat.cause = cause.limit.value, cause.sentence
    if (slow_motion := deployer.lab.topology.slow_motion) != 1:
        repeat.cause += f" (times and rates in this sentence are in slow motion, {slow_motion:g} times slower)"


def measure(
    deployer: StackDeployer, cell: Cell, workload: Workload, max_seconds: float | None = None
) -> tuple[Sample, EngineUse | None, Found]:
    """Prepare a workload with disk timing off, run it with disk timing on, and return the measured values.

    Also return what was read back from the server before the workload's files were removed.
    """
    lab, place = deployer.lab, deployer.place(cell.clients)
    for machine in place.machines:
        for program in workload.programs:
            deployer.require(machine, program)
    try:
        workload.prepare(place)
        # A warm workload needs the caches that its preparation filled.
        if not cell.workload.work().warm:
            empty_caches(lab.server)
        with deployer.monitor.running():
            deployer.enable_timing()
            begun = lab.disks.use()
            sample = run_within(workload, place, max_seconds)
            ended = lab.disks.use()
    finally:
        deployer.disable_timing()
    found = read_back(deployer, cell)
    workload.clean(place)
    return sample, engine_use(begun, ended, working_s(cell, sample)) if lab.topology.timed else None, found


def read_back(deployer: StackDeployer, cell: Cell) -> Found:
    """Read from the server what affects how long synchronous writes take; `NOTHING_FOUND` if nothing is synchronous.

    The places of files and log stay unknown if the server lacks a tool (e2fsprogs, xfsprogs) that prints them.
    """
    access, stack = cell.workload.access(clients=cell.clients), deployer.stack
    if access is None or stack is None or not deployer.lab.topology.timed or cell.on not in {CLIENTS, SERVER}:
        return NOTHING_FOUND
    served = seen_by_server(cell.stack, replace(access, remote=cell.on == CLIENTS), write=True)
    if access.read_share == 1 or served.sync_every is None:
        return NOTHING_FOUND
    release = deployer.lab.server.get("/proc/sys/kernel/osrelease").strip()
    try:
        placement = stack.filesystem.placement().moved(stack.spec.volume.data_offset)
    except RigError as error:
        logger.warning("%s: the places of files and log are unknown: %s", cell.name, error)
        placement = None
    return Found(placement, waits_for_flush(release))


def working_s(cell: Cell, sample: Sample) -> float:
    """Return the seconds that a workload's tool worked: warm-up and timed part."""
    return sample.seconds + float(getattr(cell.workload, "ramp_s", 0.0))


def look_below(deployer: StackDeployer, cell: Cell, sample: Sample) -> tuple[Derived | None, tuple[Moment, ...]]:
    """Return what the monitor measured during the last workload, and its values over time.

    None, and no values over time, if the server was not monitored.
    """
    seen: Monitor = deployer.monitor
    # Without clients there are no mount counters, so the workload's own report gives the bytes.
    own = None if cell.on == CLIENTS else Application(sample.read_bytes, sample.written_bytes)
    server = deployer.lab.server.name
    recordings = trimmed(seen.recordings, sample.seconds, working_s(cell, sample))
    derived = derive(server, recordings, seen.failures, own, seen.host_cpu)
    return derived, moments(server, recordings)


def fill(repeat: Repetition, sample: Sample, slow_motion: float) -> None:
    """Fill in the values of a repetition, converted from slow motion to the time of the simulated disks."""
    repeat.values = {name: of * slow_motion ** power_of(name) for name, of in sample.values.items()}
    repeat.value = repeat.values[sample.primary]
    by = slow_motion ** power_of(sample.primary)
    repeat.series = [(point.at_s, point.value * by) for point in sample.series]
    repeat.timed_s = sample.seconds
    repeat.steady = find_steady(sample.series).model_dump(mode="json") if sample.series else None


def power_of(name: str) -> int:
    """Return the exponent of the slow-motion factor that converts a value, by the unit at the end of its name."""
    if name.endswith(("_s", "_iops")):
        return 1
    return -1 if name.endswith(("_ms", "_us")) else 0


def keep(sample: Sample, monitor: Monitor, directory: Path) -> dict[str, str]:
    """Write the output of the workload's tool and of the monitor to files; return the paths in the run by title."""
    files = {}
    for kind, output in (("tool", sample.output), ("monitor", monitor.output)):
        for machine, text in output.items():
            path = directory / f"{kind}.{machine}.txt"
            write_durably(path, text)
            files[f"{kind} {machine}"] = f"{directory.parent.name}/{directory.name}/{path.name}"
    return files


def memory_of(topology: Topology, cell: Cell) -> Memory:
    """Return the sizes of all caches between a workload and the disks that it uses."""
    reached = [disk for disk in topology.disks if disk.serial in ({cell.on} if _on_a_disk(cell) else cell.stack.disks)]
    behind = {disk.controller for disk in reached}
    profiles = [load_profile(disk.profile or NO_MECHANICS) for disk in reached]
    modes = usual_modes(topology)
    return Memory(
        server=topology.server.memory,
        client=topology.clients[0].memory if topology.clients else 0,
        controller=sum(one.cache for one in topology.controllers if one.name in behind and one.battery != "failed"),
        drives=sum(profile.cache.size for profile in profiles if profile.cache.write_back),
        drives_protected=bool(reached) and all(modes[disk.serial] is CacheMode.PROTECTED for disk in reached),
    )


def link_bytes_s(link: LinkSpec) -> float | None:
    """Return a link's rate in each direction in bytes per second; None if the rate is not limited."""
    return link.rate / 8 if link.rate else None


def _on_a_disk(cell: Cell) -> bool:
    return cell.on in cell.stack.disks


def _wsize(effective: Mapping[str, Any]) -> int | None:
    return next((int(mount["wsize"]) for mount in effective.get("mounts", {}).values()), None)
