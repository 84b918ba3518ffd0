"""What a tool's settings do to the storage: the access of a workload, where a formula for it would be honest."""

from raidproof.core.layer import Spec
from raidproof.core.units import KIB
from raidproof.monitor.model.access import Access
from raidproof.workload.dd import DdSpec
from raidproof.workload.fio import FioSpec
from raidproof.workload.hdparm import HdparmSpec

_HDPARM_REQUEST = 2048 * KIB
"""Bytes that hdparm -t asks for at a time."""
_HDPARM_SPAN = 0.01
"""Share of the device that it reads, about: the fastest part."""


def access_of(spec: Spec, *, clients: int = 1) -> Access | None:
    """Return what a workload asks of the storage, on so many clients; None where no formula is known to hold.

    Tools with files of many sizes, or with phases, have none: their figure is compared with others' only.
    """
    match spec:
        case DdSpec():
            return _of_dd(spec, clients if spec.all_machines else 1)
        case FioSpec(job_file=None):
            return _of_fio(spec, clients if spec.all_machines else 1)
        case HdparmSpec(timing="t"):
            # Three seconds from the device's beginning on.
            return Access(size=_HDPARM_REQUEST, read_share=1.0, remote=False, direct=spec.direct, span=_HDPARM_SPAN)
        case _:
            return None


def _of_fio(spec: FioSpec, clients: int) -> Access:
    interval = min((every for every in (spec.fsync, spec.fdatasync) if every), default=0)
    reads = 1.0 if spec.rw.endswith("read") else 0.0
    return Access(
        size=spec.bs,
        read_share=spec.rwmixread / 100 if spec.rw in {"rw", "readwrite", "randrw"} else reads,
        sequential=not spec.rw.startswith("rand"),
        depth=spec.iodepth,
        streams=spec.numjobs * clients,
        clients=clients,
        sync_every=spec.bs if spec.sync != "none" else interval * spec.bs or None,
        working_set=spec.size * spec.numjobs * clients,
        direct=spec.direct,
    )


def _of_dd(spec: DdSpec, clients: int) -> Access:
    flags = {*spec.oflag, *spec.iflag}
    return Access(
        size=spec.bs,
        read_share=1.0 if spec.direction == "read" else 0.0,
        streams=clients,
        clients=clients,
        sync_every=spec.bs if flags & {"sync", "dsync"} else None,
        working_set=spec.total * clients,
        direct="direct" in flags,
    )
