"""All tools, in one table: a new one is a word of the union and a row."""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field

from harness.layer import Spec
from harness.workload.bonnie import Bonnie, BonnieSpec
from harness.workload.dd import Dd, DdSpec
from harness.workload.fio import Fio, FioSpec
from harness.workload.hdparm import Hdparm, HdparmSpec
from harness.workload.metadata import Metadata, MetadataSpec
from harness.workload.postmark import Postmark, PostmarkSpec
from harness.workload.sample import Workload
from harness.workload.shared_file import SharedFile, SharedFileSpec

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
