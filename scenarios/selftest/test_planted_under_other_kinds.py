"""The harness finds planted defects under each kind of array, member layer, volume, file system and NFS server.

The clean twin of each kind passes. `test_planted.py` has all defects, under md, XFS and nfsd.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from raidproof.core.units import KIB
from raidproof.disk.cache import CacheMode
from raidproof.disk.disk_fault import DiskFault, DiskFaultKind
from raidproof.fault import FaultContext
from raidproof.pytest_plugin.fixtures import MEMBERS, stack_of
from raidproof.record import CrashTestRecord
from raidproof.record.outcome import Outcome
from raidproof.run.crash_test import CrashTestSpec
from raidproof.run.run import Run
from raidproof.storage.stack import StackSpec
from raidproof.workload.ledger import LedgerSpec
from scenarios.selftest import defects
from scenarios.selftest.defective_server import LEFT_OUT, left_out, select, with_module
from scenarios.selftest.defects import Before, Places, TamperedCut, disks_of
from scenarios.selftest.nfsd_defects import NFSD, defective_nfsd
from scenarios.selftest.plants import careless_agents
from scenarios.selftest.test_planted import all_said

pytestmark = pytest.mark.exhaustive

RAID5: Mapping[str, Any] = {"level": "5", "members": MEMBERS, "chunk_size": 64 * KIB, "assume_clean": True}
ARRAYS: Mapping[str, Mapping[str, Any]] = {
    "lvm": {"array": {**RAID5, "type": "lvm"}},
    "integrity": {"array": {**RAID5, "member_layer": "integrity"}},
    "crypt": {"array": {**RAID5, "member_layer": "crypt"}},
    "volume-crypt": {"volume": {"type": "crypt"}},
}
"""Stacks whose parity a check of the array reads."""
KINDS: Mapping[str, Mapping[str, Any]] = {
    **ARRAYS,
    "btrfs": {"filesystem": {"type": "btrfs"}},
    "f2fs": {"filesystem": {"type": "f2fs"}},
    "btrfs-raid": {"array": {"type": "btrfs", "level": "5", "members": MEMBERS}, "filesystem": {"type": "btrfs"}},
    "cache": {"array": {"members": MEMBERS[:3]}, "volume": {"type": "cache", "cache_disk": MEMBERS[3]}},
    "bcache": {"array": {"members": MEMBERS[:3]}, "volume": {"type": "bcache", "cache_disk": MEMBERS[3]}},
    # With wsync, XFS commits the names that Ganesha acknowledges without a commit (docs/findings.md).
    "ganesha": {"export": {"type": "ganesha", "delegations": False}, "filesystem": {"mount_options": "wsync"}},
}
LEDGER = LedgerSpec(kinds=("fsync", "o_sync", "pages"), blocks=48, files=16)
LYING = {"cache": MEMBERS[3], "bcache": MEMBERS[3]}
"""The disk that lies under a kind: a write-back cache has all recent writes, and the members none; else ``disk2``."""
UNCOMMITTED = {"btrfs", "btrfs-raid", "f2fs"}
"""File systems on which nfsd does not commit new names (docs/findings.md)."""
DATA = LedgerSpec(kinds=("fsync", "o_sync"), blocks=48, files=16)
"""A ledger for these file systems: its workers make no file, of which a cut could take the name."""
SECONDS = 0.7
DATA_AREA = 48 << 20
"""Offset in bytes on a member that lies behind the metadata of each kind of array."""


def stack(kind: str) -> StackSpec:
    """Return the stack of the scenarios' default with the layers of one kind."""
    usual = stack_of().model_dump(mode="json")
    return StackSpec.model_validate(
        {**usual, **{layer: {**({} if "type" in one else usual[layer]), **one} for layer, one in KINDS[kind].items()}}
    )


@pytest.fixture(scope="module")
def own(current_run: Run) -> Iterator[Run]:
    """Yield a separate run, so that expected failures do not fail the run that scenarios share."""
    current_run.discard_lab()
    with Run(
        "planted-under-other-kinds",
        current_run.store.path,
        with_module(current_run.topology, lambda name: defective_nfsd(name=name)),
    ) as one:
        yield one


def ended(own: Run, name: str, kind: str, **changes: Any) -> CrashTestRecord:
    """Run one crash test under a kind."""
    spec = {"name": f"{kind}-{name}", "title": f"{kind}: {name}", "stack": stack(kind)}
    spec["ledger"] = DATA if kind in UNCOMMITTED else LEDGER
    return own.cycle(CrashTestSpec(**{**spec, "ledger_seconds": SECONDS, **changes}))


def failures(record: CrashTestRecord) -> dict[str, str]:
    """Return the blame of each failed check, by checker."""
    assert record.outcome is Outcome.FAIL, all_said(record)
    return {one.checker: str(one.blame) for one in record.verdicts if one.outcome is Outcome.FAIL}


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_defect_nothing_is_found(own: Run, kind: str) -> None:
    record = ended(own, "twin", kind)
    assert record.outcome is Outcome.PASS, all_said(record)


@pytest.mark.plants
@pytest.mark.parametrize("kind", KINDS)
def test_a_lying_disk_is_found(own: Run, kind: str) -> None:
    disk = LYING.get(kind, "disk2")
    found = failures(ended(own, "lying", kind, cache_mode=CacheMode.LYING, cache_mode_of=(disk,)))
    assert any(blame.startswith(f"the disks: {disk} acknowledged flushes") for blame in found.values()), found


@pytest.mark.plants
@pytest.mark.parametrize("kind", KINDS)
def test_an_early_acknowledgement_is_found(own: Run, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    careless_agents(monkeypatch)
    fault = TamperedCut(at_work=defects.flushes_take_long, without_power=defects.disks_are_sound)
    record = ended(own, "early", kind, fault=fault)
    lost = {checker: blame for checker, blame in failures(record).items() if checker.startswith("write")}
    assert lost, all_said(record)
    assert all(blame.startswith("the stack") for blame in lost.values()), lost


# A void COMMIT needs nfsd, and a worker that makes files.
@pytest.mark.plants
@pytest.mark.parametrize("kind", ARRAYS)
def test_a_void_commit_is_found(own: Run, kind: str) -> None:
    places: Places = {}

    def plant(context: FaultContext, _places: Places) -> None:
        select(context.lab.server, NFSD, "commit-noop")

    def count(context: FaultContext, _places: Places) -> None:
        places[LEFT_OUT] = left_out(context.lab.server, NFSD)
        select(context.lab.server, NFSD, "")

    record = ended(own, "commit", kind, during=(Before(plant),), fault=TamperedCut(at_work=count))
    assert int(places[LEFT_OUT]) > 0
    assert any("pages" in one.checker for one in record.verdicts if one.outcome is Outcome.FAIL), all_said(record)


@pytest.mark.plants
@pytest.mark.parametrize("kind", ARRAYS)
def test_parity_that_was_not_written_is_found(own: Run, kind: str) -> None:
    def plant(context: FaultContext, _places: Places) -> None:
        disks_of(context).set_disk_fault("disk3", DiskFault(DiskFaultKind.LOST_WRITES, DATA_AREA))

    record = ended(own, "parity", kind, during=(Before(plant),), fault="none")
    assert any(checker == "array" for checker in failures(record)), all_said(record)
