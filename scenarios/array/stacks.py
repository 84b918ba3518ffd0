"""Stacks on arrays whose options `stack_of` does not offer."""

from typing import Any

from raidproof.core.units import KIB
from raidproof.pytest_plugin.fixtures import MEMBERS, stack_of
from raidproof.storage.array import MdSpec
from raidproof.storage.stack import StackSpec


def raid5(policy: str = "bitmap", **changes: Any) -> StackSpec:
    """Return a stack on a RAID5 with a consistency policy: on four disks, or on three disks and a journal disk."""
    disks: dict[str, Any] = {"members": MEMBERS}
    if policy == "journal":
        disks = {"members": MEMBERS[:-1], "journal": MEMBERS[-1]}
    asked = {"level": "5", "chunk_size": 64 * KIB, "consistency_policy": policy, "assume_clean": True}
    array = MdSpec.model_validate(asked | disks | changes)
    return stack_of(members=len(array.members)).model_copy(update={"array": array})
