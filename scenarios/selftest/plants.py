"""The table of planted defects, and the verdict, blame and place that the harness must report about each of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from raidproof.core.blame import Culprit
from raidproof.disk.cache import CacheMode
from raidproof.guest import ledger_holders, ledger_worker, ledger_writer
from raidproof.machine.machine import Machine
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.record import ControlSpec
from raidproof.run.crash_test import CrashTest
from raidproof.storage.filesystem.state import WriteBackState
from raidproof.storage.server import ExportSpec
from raidproof.workload import ledger, ledger_programs
from raidproof.workload.ledger import LedgerSpec
from scenarios.selftest import defects
from scenarios.selftest.defects import Before, Places, PlantDefect, TamperedCut

PROGRAMS = (ledger_worker, ledger_holders, ledger_writer)
"""The ledger's programs whose lines planted defects replace."""
Changes = Callable[[Places], dict[str, Any]]
"""A function that returns fields of `CrashTestSpec`. The planted defects store their places in its argument."""
Patch = Callable[[pytest.MonkeyPatch], None]
"""A function that plants a defect in the code of the harness, for the duration of one crash test."""


def cut(
    *,
    at_work: PlantDefect = defects.nothing,
    without_power: PlantDefect = defects.nothing,
    booted: PlantDefect = defects.nothing,
) -> Changes:
    """Return the fields of a crash test with a power cut during which defects are planted."""
    return lambda places: {
        "fault": TamperedCut(places=places, at_work=at_work, without_power=without_power, booted=booted)
    }


def before(plant: PlantDefect, **changes: Any) -> Changes:
    """Return the fields of a crash test in which a defect is planted before the ledger begins."""
    return lambda places: {"during": (Before(plant, places),), **changes}


def change_programs(machine: Machine, changes: Sequence[tuple[str, str]]) -> None:
    """Replace lines of the ledger's programs in a machine."""
    paths = [Path(str(one.__file__)) for one in PROGRAMS]
    sources = {path: path.read_text() for path in paths}
    for old, new in changes:
        assert any(old in source for source in sources.values()), f"no program of the ledger has the line {old!r}"
        sources = {path: source.replace(old, new) for path, source in sources.items()}
    for path, source in sources.items():
        machine.put(source, f"{ledger_programs.FOLDER}/{path.name}")


def careless_agents(patch: pytest.MonkeyPatch) -> None:
    """Change the ledger's program: client1 reports success before it writes, and client2 never calls fsync."""
    install = ledger_programs.install
    changed = {
        "client1": (
            (CALLED, EARLY),
            (REPORTED, UNREPORTED),
        ),
        "client2": (("getattr(os, after)(fd)", "None"), ("os.fsync(fd)", "None")),
    }

    def planted(machine: Machine, config: str) -> None:
        install(machine, config)
        change_programs(machine, changed.get(machine.name, ()))

    patch.setattr(ledger, "install", planted)


def agents_that_never_write(patch: pytest.MonkeyPatch) -> None:
    """Change the ledger's program on client1: it reports success a minute before each operation, thus does none."""
    install = ledger_programs.install
    changed = {
        CALLED: NEVER,
        REPORTED: UNREPORTED,
    }

    def planted(machine: Machine, config: str) -> None:
        install(machine, config)
        if machine.name == "client1":
            change_programs(machine, tuple(changed.items()))

    patch.setattr(ledger, "install", planted)
    # The client ends one operation of each kind only: the ledger would wait in vain for more.
    patch.setattr(ledger, "ENOUGH_DEADLINE_S", 1.0)


def read_back_from_cache(patch: pytest.MonkeyPatch) -> None:
    """Make the client read back all files from its own cache: it reads them twice, and does not drop its cache."""
    look = CrashTest._scan_client

    def planted(cycle: CrashTest, work: ledger.Ledger) -> None:
        client = cycle.lab.clients[-1]
        mount = cycle.stack.mounts[client.name]
        work.scan(client, work.root)
        with pytest.MonkeyPatch.context() as inner:
            for step in ("deactivate", "activate"):
                inner.setattr(mount, step, lambda: None)
            inner.setattr("raidproof.run.crash_test.DROP_CACHES", "/dev/null")
            look(cycle, work)

    patch.setattr(CrashTest, "_scan_client", planted)


def kernel_keeps_for_longer(patch: pytest.MonkeyPatch) -> None:
    """Make the harness read shorter write-back times than the server's kernel has."""
    patch.setattr("raidproof.storage.filesystem.state.TRANSFER_S", 0.1)
    said = WriteBackState(expire_s=0.1, wake_s=0.1, commit_s=0.1)
    patch.setattr("raidproof.run.crash_test.read_write_back", lambda *_: said)


CALLED = "            result = action()\n"
"""The line of the ledger's program that carries out an operation or a step."""
REPORTED = "self.pending = ledger.FRAME.pack(end"
UNREPORTED = 'self.pending = b"" if end == ledger.ACKNOWLEDGE else ledger.FRAME.pack(end'
"""The begin of the line that reports an end, and of one that reports the ends of steps only."""
ACKNOWLEDGED_BEFORE = """            if end == ledger.ACKNOWLEDGE:
                self.connection.sendall(ledger.FRAME.pack(ledger.ACKNOWLEDGE, *fields, 0, monotonic_ns()))
                self.stop.wait({seconds})
{called}"""
NEVER = ACKNOWLEDGED_BEFORE.format(seconds=60, called=CALLED)
"""Code for the ledger's program that reports success, and then waits for a minute before the operation."""
EARLY = ACKNOWLEDGED_BEFORE.format(seconds=1, called=CALLED)
"""Code for the ledger's program that reports success, and then waits for a second before the operation.

An operation takes much less time: so for most workers the wait, and not the operation, is in progress at any instant.
"""


@dataclass(frozen=True)
class Experiment:
    """A crash test with one or several planted defects."""

    changes: Changes
    twin: str = "power-cut"
    """The name, in `TWINS`, of the same crash test without the defects."""
    patch: Patch = lambda _: None
    """Plants further defects in the code of the harness itself."""


ASYNC = stack_of("4", sync=False)
CLOSES: dict[str, Any] = {
    "stack": stack_of("4", export=ExportSpec(delegations=True)),
    "ledger": LedgerSpec(kinds=("close",), files=16),
}
"""Fields of a crash test of `close` with delegations: under a write delegation, `close` promises nothing."""
TWINS: Mapping[str, dict[str, Any]] = {
    "power-cut": {},
    "no-fault": {"fault": "none"},
    "async": {"stack": ASYNC},
    "close": CLOSES,
    "torn-stripe": {"fault": TamperedCut(without_power=defects.stripe_is_torn)},
}
EXPERIMENTS: Mapping[str, Experiment] = {
    "drives": Experiment(cut(at_work=defects.writes_go_astray, without_power=defects.block_rots)),
    "lying-member": Experiment(lambda _: {"cache_mode": CacheMode.LYING, "cache_mode_of": ("disk2",)}),
    "torn-superblock": Experiment(cut(without_power=defects.superblock_is_torn)),
    "stale-member": Experiment(cut(at_work=defects.member_falls_behind, booted=defects.stale_member_is_forced_in)),
    "export": Experiment(before(defects.export_is_made_async)),
    "no-flushes": Experiment(before(defects.flushes_stop_above_the_members)),
    "parity": Experiment(before(defects.parity_is_lost, fault="none"), "no-fault", read_back_from_cache),
    "agents": Experiment(
        lambda places: {
            # A flush occupies nfsd's only thread, so that the cut comes before the server begins the other operations.
            "stack": stack_of("4", export=ExportSpec(threads=1, delegations=False)),
            **cut(at_work=defects.flushes_take_long, without_power=defects.disks_are_sound)(places),
        },
        patch=careless_agents,
    ),
    "flush-dropped": Experiment(
        lambda places: {
            "ledger": defects.QUIET,
            "fault": TamperedCut(places=places, at_work=defects.flushes_are_dropped, booted=defects.clients_go_on),
        }
    ),
    "bitmap": Experiment(cut(without_power=defects.stripe_is_torn, booted=defects.bitmap_is_cleared), "torn-stripe"),
    "careless-after-a-lie": Experiment(cut(at_work=defects.one_flush_is_dropped), patch=agents_that_never_write),
    "careless-close": Experiment(lambda _: dict(CLOSES), "close", agents_that_never_write),
    "careless-control": Experiment(
        lambda _: {
            "cache_mode": CacheMode.LYING,
            "cache_mode_of": ("disk2",),
            "control": ControlSpec(expects_loss=True, expects_blame=Culprit.DISKS),
        },
        patch=agents_that_never_write,
    ),
    "late-write-back": Experiment(lambda _: {"stack": ASYNC}, "async", kernel_keeps_for_longer),
    "panic": Experiment(cut(booted=defects.server_panics)),
    "rename": Experiment(cut(at_work=defects.names_are_changed, booted=defects.rename_is_undone)),
    "swapped": Experiment(cut(without_power=defects.serials_are_swapped)),
    "re-created": Experiment(cut(booted=defects.array_is_created_anew)),
}


@dataclass(frozen=True)
class Plant:
    """A planted defect, the experiment that plants it, and what a verdict of FAIL must contain."""

    name: str
    experiment: str
    checker: str
    """Beginning of the verdict's checker, as a regular expression."""
    says: str
    """Part of the verdict's reason."""
    blame: str = ""
    """Beginning of the verdict's blame."""
    place: str = ""
    """Place that the verdict must name; empty: the place that the planting function has stored."""

    def __str__(self) -> str:
        return self.name


STACK = "the stack"
LOST = "acknowledged operations are missing"
PLANTS = (
    Plant(
        "lying-flush", "lying-member", "recovery|write . fsync", "", "the disks: disk2 acknowledged flushes", "disk2"
    ),
    Plant("torn-superblock", "torn-superblock", "recovery", "", "the stack: members: disk1 has lost its md metadata"),
    Plant("stale-member", "stale-member", "members", "stale member", STACK),
    Plant("export-async", "export", "export", "not in effect: sync", "the server"),
    Plant("export-async-loses", "export", "write . fsync", LOST, "the server: its export", "fsync"),
    Plant(
        "flushes-swallowed",
        "no-flushes",
        "flushes reach the disks",
        "no flush reached",
        "the stack: the layer above disk1",
    ),
    Plant("parity-not-updated", "parity", "array", "mismatch_cnt", "the disks"),
    Plant("client-cache", "parity", "read back", "came from the client's cache", "the client's cache", "client2"),
    Plant("neighbour", "drives", "blocks whole", "1 misplaced", "the disks"),
    Plant("old-generation", "drives", "write . fsync", LOST, "the disks"),
    Plant("silent-corruption", "drives", "blocks whole", "1 garbage", "the disks"),
    Plant("bitmap-cleared", "bitmap", "array", "mismatch_cnt", STACK),
    Plant("early-acknowledgement", "agents", "(?!write . fsync)", LOST, STACK, "client1-"),
    Plant("fsync-skipped", "agents", "write . fsync", LOST, STACK, "client2-0-fsync: block"),
    Plant("rename-undone", "rename", "rename,", LOST, STACK),
    Plant("owner-changed", "rename", "nothing invented", "d0/directory: owner is 4711:", "", defects.OWNED),
    Plant("permissions-added", "rename", "nothing invented", "d0/directory: mode is 0777", "", defects.OWNED),
    Plant(
        "error-by-level", "rename", "kernel log", "kernel server: error: Invalid ELF header", "kernel", "ELF header"
    ),
    Plant("removed-file-changed", "rename", "removed files", "other content", STACK, "without a name"),
    Plant("older-than-write-back", "late-write-back", "older than write-back allows", "acknowledged", STACK, "fsync"),
    Plant("panic-in-recovery", "panic", "kernel log", "server: ", "kernel", "panic"),
    Plant("serials-swapped", "swapped", "members", "serials swapped", STACK),
    Plant("array-re-created", "re-created", "members", "re-created instead of assembled", STACK),
)
