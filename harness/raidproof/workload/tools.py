"""All tools, in one table: a new one is a word of the union and a row."""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field

from raidproof.core.layer import Spec
from raidproof.workload.bonnie import Bonnie, BonnieSpec
from raidproof.workload.dd import Dd, DdSpec
from raidproof.workload.fio import Fio, FioSpec
from raidproof.workload.hdparm import Hdparm, HdparmSpec
from raidproof.workload.metadata import Metadata, MetadataSpec
from raidproof.workload.postmark import Postmark, PostmarkSpec
from raidproof.workload.regime import Workload
from raidproof.workload.shared_file import SharedFile, SharedFileSpec

WorkloadSpec = Annotated[
    FioSpec | DdSpec | HdparmSpec | PostmarkSpec | BonnieSpec | MetadataSpec | SharedFileSpec,
    Field(discriminator="tool"),
]
"""What a plan may ask for; its word ``tool`` says which."""

_WORKLOADS: dict[type[Spec], Callable[[Any], Workload]] = {
    FioSpec: Fio,
    DdSpec: Dd,
    HdparmSpec: Hdparm,
    PostmarkSpec: Postmark,
    BonnieSpec: Bonnie,
    MetadataSpec: Metadata,
    SharedFileSpec: SharedFile,
}


def workload_of(spec: WorkloadSpec) -> Workload:
    """Return the tool with these settings."""
    return _WORKLOADS[type(spec)](spec)
