"""The demo: four crash tests of one stack, which show that acknowledged operations need not be durable."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from raidproof.core.blame import Culprit
from raidproof.core.errors import RequestError
from raidproof.core.log import progress
from raidproof.core.topology import Platform, Topology, server_and_clients
from raidproof.core.units import KIB, MIB
from raidproof.disk.cache import CacheMode
from raidproof.plan.axes import RAID, axis_of, read_value
from raidproof.plan.cell import further_disks
from raidproof.plan.table import Value
from raidproof.provider.registry import prepare
from raidproof.provider.vagrant import box
from raidproof.record import ControlSpec, RunRecord
from raidproof.run.crash_test import CrashTestSpec
from raidproof.run.directed import check_directed
from raidproof.run.doctor import require_host
from raidproof.run.options import STATES
from raidproof.run.platform import refuse_unknown
from raidproof.run.run import Run
from raidproof.storage.array import ARRAYS, LEVELS
from raidproof.storage.array.array import DEFAULT_KIND
from raidproof.storage.stack import StackSpec
from raidproof.storage.tuning import TuningSpec
from raidproof.workload.fio import FioSpec

EARLY_WRITE_BACK = TuningSpec(server_dirty_expire_s=1, server_dirty_writeback_s=0.5, server_xfs_sync_s=1)
"""Kernel settings for early write-back. With Linux's default of 30 s, an async export would lose all operations of the
demo's ledger."""
ASYNC_LEDGER_S = 5.0
"""Seconds of the clients' work on the async export: longer than write-back takes, so that some operations survive."""
SOLO_S = 4.0
"""Seconds of solo operations on the sync export: a missing flush of any of some hundred flushes would show."""
SOLO_EXTRA_S = 6.0
"""Greatest number of further seconds, until each client has enough solo operations of each kind."""
SYNC = "sync"
"""Name of the crash test of the sync export."""
MEMBERS = ("disk0", "disk1", "disk2", "disk3")
SETTABLE = ("array", "volume", "filesystem", "export", "mount")
"""The layers whose settings `read_settings` accepts."""
LOG, EXTERNAL = "log", "external"
"""The axis with the place of the log of the file system, and its value for a separate disk."""
OWN = ("export.sync", "export.delegations", "mount.vers")
"""Fields of these layers that the demo sets itself."""
_NO_SETTINGS: Mapping[str, Value] = MappingProxyType({})
SEQUENTIAL = 64 * MIB
"""Bytes of the sequential write that is measured."""
DISK_SIZES = (192 * MIB, 320 * MIB, 640 * MIB)
"""Sizes of the disks in bytes: the demo takes the smallest on which the array offers enough for the file system."""
CONTROL_LEDGER_S = 2.0
"""Seconds of the clients' work in a control, which shows whether a loss is found, not how much is lost."""


def demo_topology(platform: Platform | None = None, settings: Mapping[str, Value] = _NO_SETTINGS) -> Topology:
    """Return the demo's lab: a server with four member disks and those of the volume, two clients.

    ``settings``: see `read_settings`.

    Raises:
        RequestError: the settings exclude each other.
    """
    disks = len(MEMBERS) + len(_disk_of_each_field(settings))
    stack = demo_stack(sync=True, settings=settings)
    return server_and_clients(clients=2, disks=disks, disk_size=_disk_size(stack), platform=platform)


def _disk_size(stack: StackSpec) -> int:
    """Return the smallest of `DISK_SIZES` that can carry a stack; the last one if none can: its refusal follows."""
    for size in DISK_SIZES:
        with suppress(RequestError):
            stack.refuse_disks(dict.fromkeys(stack.disks, size))
            return size
    return DISK_SIZES[-1]


def demo_platform(platform: Platform | None, settings: Mapping[str, Value]) -> Platform:
    """Return the platform with the kernel and the image that the kind of array needs, unless others are requested.

    Raises:
        RequestError: the provider has no such kernel or image.
    """
    asked = platform or Platform()
    kind = ARRAYS[str(settings.get(RAID, DEFAULT_KIND))]
    # A box has its own kernel.
    server = asked.server if box.asked(asked.server) else asked.server.over(kind.software)
    chosen = asked.model_copy(update={"server": server})
    try:
        refuse_unknown(chosen)
    except RequestError as error:
        if chosen == asked:
            raise
        options = " ".join(f"--server {word}" for word in str(kind.software).split())
        raise RequestError(
            f"raid={settings[RAID]} needs a server with {kind.software}, but {error}",
            remedy=f"write --provider qemu {options}",
        ) from error
    return chosen


def _disk_of_each_field(settings: Mapping[str, Value]) -> dict[tuple[str, str], str]:
    """Return the disks outside the array, by the layer and the field of its request that names the disk."""
    fields = [("volume", field) for field in further_disks(settings)]
    fields += [("filesystem", LOG)] if settings.get(LOG) == EXTERNAL else []
    return {field: f"disk{number}" for number, field in enumerate(fields, len(MEMBERS))}


def read_settings(words: Sequence[str]) -> dict[str, Value]:
    """Return the settings of words such as ``raid=lvm``: values by name of an axis of plans.

    Raises:
        RequestError: a word has no ``=``, the demo does not have the axis, or the value is invalid.
    """
    settings: dict[str, Value] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise RequestError(f"--set {word}: expected a name and a value, such as level=6")
        field = axis_of(name).field
        if (field.partition(".")[0] not in SETTABLE or field in OWN) and name != LOG:
            raise RequestError(
                f"--set {word}: the demo has its own {name}",
                remedy=f"the demo accepts axes of plans for {', '.join(SETTABLE)}; use a plan for others",
            )
        number = int(value) if value.isdecimal() else value
        settings[name] = read_value(name, {"true": True, "false": False}.get(value, number))
    return settings


def demo_stack(
    *, sync: bool, tuning: TuningSpec | None = None, settings: Mapping[str, Value] = _NO_SETTINGS
) -> StackSpec:
    """Return the demo's stack: RAID5 with chunks of 64 KiB, XFS, NFSv4.2; ``settings``: see `read_settings`.

    Raises:
        RequestError: the settings exclude each other.
    """
    layers: dict[str, dict[str, Any]] = {
        "array": {"level": "5", "members": MEMBERS, "chunk_size": 64 * KIB, "assume_clean": True},
        # No delegations: under a delegation, `close` promises nothing. And when both clients return to a shared file,
        # the server delegates the file to the first and then waits for the end of its grace period (docs/findings.md).
        "export": {"sync": sync, "delegations": False},
        "mount": {"vers": "4.2"},
        "tuning": (tuning or TuningSpec()).model_dump(),
    }
    kind = ARRAYS[str(settings.get(RAID, DEFAULT_KIND))]
    if kind.only_filesystem is not None:
        # Such an array has one chunk size, or none.
        del layers["array"]["chunk_size"]
        layers["filesystem"] = {"type": kind.only_filesystem}
    for (layer, field), serial in _disk_of_each_field(settings).items():
        layers.setdefault(layer, {})[field] = serial
    for name, value in settings.items():
        layer, _, field = axis_of(name).field.partition(".")
        if field:
            layers.setdefault(layer, {})[field] = value
    if not LEVELS[str(layers["array"]["level"])].chunked:
        layers["array"]["chunk_size"] = None
    return StackSpec.model_validate(layers)


def demo_cycles(seed: int = 1, settings: Mapping[str, Value] = _NO_SETTINGS) -> tuple[CrashTestSpec, ...]:
    """Return the demo's four crash tests: a sync and an async export, whose speed is measured, and two controls.

    ``settings``: see `read_settings`. A server without async exports has no second crash test.

    Raises:
        RequestError: the settings exclude each other.
    """
    safe = demo_stack(sync=True, settings=settings)
    return (
        CrashTestSpec(
            name=SYNC,
            title="sync export",
            stack=safe,
            solo_seconds=SOLO_S,
            solo_extra_s=SOLO_EXTRA_S,
            fio=FioSpec(size=SEQUENTIAL),
            seed=seed,
        ),
        *(_async_cycles(seed, settings) if safe.export.has_async else ()),
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


def _async_cycles(seed: int, settings: Mapping[str, Value]) -> tuple[CrashTestSpec, ...]:
    early = demo_stack(sync=False, tuning=EARLY_WRITE_BACK, settings=settings)
    return (
        CrashTestSpec(
            name="async",
            title="async export",
            stack=early,
            ledger_seconds=ASYNC_LEDGER_S,
            fio=FioSpec(size=SEQUENTIAL),
            seed=seed,
        ),
    )


def run_demo(
    results: Path,
    *,
    platform: Platform | None = None,
    seed: int = 1,
    keep: bool = False,
    settings: Mapping[str, Value] = _NO_SETTINGS,
    states: int = STATES,
) -> tuple[RunRecord, Path | None]:
    """Run the demo and return its record and the path of its report.

    ``settings``: see `read_settings`. ``states``: number of crash states of the sync export that are checked, at most.

    Raises:
        RequestError: the kernel or the image is unknown, or the settings exclude each other.
        RequirementMissing: this host cannot run a lab.
    """
    cycles = demo_cycles(seed, settings)
    platform = demo_platform(platform, settings)
    require_host()
    with progress("preparing kernel and image"):
        # Prepare before the run is created, so that a failure here leaves no run.
        topology = demo_topology(platform, settings)
        prepare(topology)
        with Run("demo", results, topology, keep=keep) as current_run:
            for spec in cycles:
                record = current_run.cycle(spec)
                if spec.name == SYNC:
                    check_directed(current_run, record, states)
    return current_run.record, current_run.report
