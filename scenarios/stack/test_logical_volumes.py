"""A linear or a thin volume of LVM on md keeps the promises, and damaged metadata of its volume group is found."""

from typing import Any

import pytest

from raidproof.core.blame import Culprit
from raidproof.core.command import CommandFailed
from raidproof.core.units import KIB, MIB
from raidproof.disk.cache import CacheMode
from raidproof.lab.lab import Lab
from raidproof.pytest_plugin.fixtures import CrashTestRunner, Explore, stack_of
from raidproof.record import ControlSpec
from raidproof.storage.filesystem import XfsSpec
from raidproof.storage.stack import StackSpec
from raidproof.storage.volume import Volume
from scenarios.crash.known_findings import KNOWN

STATES = 40
SECONDS = 0.5
"""Seconds of work on a lying disk."""
LABEL, METADATA = 4 * KIB, MIB
"""Bytes of the array before the metadata area of LVM, and before the end of this area."""
KINDS: dict[str, dict[str, Any]] = {
    "linear": {"type": "linear"},
    "thin": {"type": "thin", "thin_discards": "nopassdown"},
}


def stack_with(kind: str) -> StackSpec:
    """Return a stack with a logical volume on a RAID5 of four disks. The file system sends discards to a thin volume.

    RAID5 takes no discards, so that XFS on a linear volume refuses the option.
    """
    options = ("discard",) if kind == "thin" else ()
    usual = stack_of(filesystem=XfsSpec(mount_options=options)).model_dump(mode="json")
    return StackSpec.model_validate({**usual, "volume": KINDS[kind]})


@pytest.mark.parametrize("kind", KINDS)
def test_every_promise_is_kept(cycle: CrashTestRunner, kind: str) -> None:
    record = cycle(stack_with(kind)).must_keep_every_promise().record
    volume = record.effective["volume"]
    assert volume["settings"]["segment"] == kind
    assert volume["settings"]["health"] == "ok"


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_metadata_of_the_volume_group_is_found(lab: Lab, kind: str) -> None:
    spec = stack_with(kind)
    array = spec.array.array(lab.server)
    array.create()
    try:
        volume = Volume(spec.volume, lab.server, array.device)
        volume.create()
        volume.deactivate()
        volume.activate()
        volume.deactivate()
        area = ["bs=4096", f"seek={LABEL // 4096}", f"count={(METADATA - LABEL) // 4096}"]
        lab.server.succeed(["dd", "if=/dev/urandom", f"of={array.device}", *area, "conv=fsync", "status=none"])
        with pytest.raises(CommandFailed, match="vgck"):
            volume.activate()
    finally:
        array.destroy()


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS)
def test_every_promise_is_kept_in_every_crash(cycle: CrashTestRunner, explore: Explore, kind: str) -> None:
    ended = cycle(stack_with(kind)).must_pass()
    explored = explore(ended, states=STATES, cold=False).must_keep_every_promise(but=KNOWN)
    assert explored.record.judged == STATES


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS)
def test_a_lying_disk_is_found(cycle: CrashTestRunner, kind: str) -> None:
    control = ControlSpec(expects_loss=True, expects_blame=Culprit.DISKS)
    cycle(stack_with(kind), cache_mode=CacheMode.LYING, ledger_seconds=SECONDS, control=control).must_pass()
