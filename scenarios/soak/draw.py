"""Crash tests that are drawn at random from configurations and faults whose result is known, by a seed.

A stack that keeps its promises must never be reported as losing something, and disks that drop flushes must always be
found out. So each drawn crash test has a known result, and whatever else the harness reports is a defect: of the
harness, or a new one of the system under test.
"""

import random
from typing import Any

from raidproof.core.blame import Cause
from raidproof.core.units import KIB
from raidproof.disk.cache import CacheMode, CutPolicy
from raidproof.fault import (
    CleanReboot,
    ClientNetworkCut,
    ClientPowerCut,
    Degraded,
    Fault,
    KernelPanic,
    MemberFails,
    MemberVanishes,
    NetworkCut,
    NfsdKilled,
    NfsdRestart,
    PowerCut,
    Rebuilding,
    Resyncing,
    Scrubbing,
)
from raidproof.pytest_plugin.fixtures import LEDGER_SECONDS, MEMBERS, stack_of
from raidproof.record import ControlSpec
from raidproof.run.crash_test import CrashTestSpec
from raidproof.storage.array import MdSpec
from raidproof.storage.filesystem import Ext4Spec, FilesystemSpec, XfsSpec
from raidproof.storage.mount import MountSpec
from raidproof.storage.server import ExportSpec
from raidproof.storage.stack import StackSpec

LYING = 0.1
"""Share of the crash tests whose disks drop flushes."""
CUTS = 0.5
"""Share of power cuts among the faults of sound disks."""
SOUND = (CacheMode.VOLATILE, CacheMode.VOLATILE, CacheMode.NONE, CacheMode.PROTECTED)
"""The caches of sound disks; a value that stands twice is drawn twice as often."""
LEVELS = {"1": 2, "4": 4, "5": 4, "6": 4, "10": 4}
"""For each level, the number of members."""
MIRRORS = frozenset({"1", "10"})
"""Levels without parity: degraded when the power fails, they have no write hole."""


def draw(seed: int, number: int) -> CrashTestSpec:
    """Return the crash test with this number; it depends on nothing but ``seed`` and ``number``."""
    rng = random.Random(f"{seed}-{number}")  # noqa: S311
    level = rng.choice(sorted(LEVELS))
    lying = rng.random() < LYING
    changes: dict[str, Any] = {"seed": rng.randrange(1 << 31)}
    if lying:
        changes |= {
            "cache_mode": CacheMode.LYING,
            "fault": PowerCut(CutPolicy.DROP, changes["seed"]),
            "control": ControlSpec(expects_loss=True, expects_blame=Cause.LOST_FLUSHES),
        }
    else:
        changes["cache_mode"] = rng.choice(SOUND)
        changes["fault"], changes["during"] = _faults(rng, level)
    # An async export loses something by a power cut only: after any other fault the result would prove nothing.
    sync = lying or not isinstance(changes["fault"], PowerCut) or rng.random() < 0.9
    return CrashTestSpec(
        name=f"soak-{number}",
        title=f"soak {number}",
        stack=_stack(rng, level, sync=sync),
        ledger_seconds=LEDGER_SECONDS,
        **changes,
    )


def _stack(rng: random.Random, level: str, *, sync: bool) -> StackSpec:
    disks = MEMBERS[: LEVELS[level]]
    array: dict[str, Any] = {"level": level, "members": disks, "assume_clean": True}
    if level != "1":
        array["chunk_size"] = rng.choice([16, 32, 64, 128, 256]) * KIB
    if level == "10":
        array["layout"] = rng.choice(["n2", "f2", "o2"])
    array["consistency_policy"] = rng.choice(["resync", "bitmap"])
    base = stack_of(
        members=len(disks),
        filesystem=_filesystem(rng, level),
        export=ExportSpec(sync=sync, delegations=False, wdelay=rng.random() < 0.5),
        mount=MountSpec.model_validate({
            "vers": rng.choice(["3", "4.1", "4.2", "4.2"]),
            "wsize": rng.choice([None, 32 * KIB, 64 * KIB, 256 * KIB]),
            "sync": rng.choice([None, None, None, True]),
            "nconnect": rng.choice([None, None, 2]),
        }),
    )  # fmt: skip
    return base.model_copy(update={"array": MdSpec.model_validate(array)})


def _filesystem(rng: random.Random, level: str) -> FilesystemSpec:
    # One disk of the lab is too small for XFS.
    if level != "1" and rng.random() < 0.6:
        return XfsSpec(block_size=rng.choice([1024, 4096]))
    return Ext4Spec(block_size=rng.choice([1024, 4096]), data=rng.choice(["ordered", "journal"]))


def _faults(rng: random.Random, level: str) -> tuple[Fault, tuple[Fault, ...]]:
    """Return a fault, and the faults that are in effect before it."""
    member = rng.choice(MEMBERS[: LEVELS[level]])
    if rng.random() < CUTS:
        meanwhile: list[tuple[Fault, ...]] = [(), (), (), (Scrubbing(),), (Resyncing(),)]
        if level in MIRRORS:
            meanwhile += [(Degraded(member),), (Rebuilding(member),), (MemberFails(member),)]
        return PowerCut(rng.choice(list(CutPolicy)), rng.randrange(1 << 31)), rng.choice(meanwhile)
    others: list[Fault] = [
        CleanReboot(),
        KernelPanic(),
        NfsdRestart(),
        NfsdKilled(),
        NetworkCut(),
        ClientNetworkCut(),
        ClientPowerCut(),
        MemberFails(member),
        MemberVanishes(member),
    ]
    return rng.choice(others), ()
