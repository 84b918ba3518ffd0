from typing import Any, get_args

import pytest

from raidproof.core.errors import RigError
from raidproof.core.layer import Spec
from raidproof.core.units import KIB, MIB
from raidproof.workload.bonnie import BonnieSpec
from raidproof.workload.dd import DdSpec
from raidproof.workload.fio import FioSpec
from raidproof.workload.hdparm import HdparmSpec
from raidproof.workload.metadata import CLUSTER, MetadataSpec
from raidproof.workload.postmark import PostmarkSpec
from raidproof.workload.shared_file import SharedFileSpec
from raidproof.workload.tools import WorkloadSpec
from raidproof.workload.work_of import work_of


def fio(**asked: Any) -> FioSpec:
    return FioSpec.model_validate({"size": MIB, "bs": 4096, **asked})


def job(*lines: str) -> FioSpec:
    return FioSpec.model_validate({"job_file": "\n".join(["[job]", "size=1m", *lines, ""])})


@pytest.mark.parametrize(
    ("spec", "durable"),
    [
        (fio(), "end"),
        (fio(end_fsync=False), "no"),
        (fio(fsync=1), "each"),
        (fio(fdatasync=8, end_fsync=False), "each"),
        (fio(fsync=256, end_fsync=False), "end"),
        (fio(sync="dsync"), "each"),
        (DdSpec(), "no"),
        (DdSpec(conv=("fsync",)), "end"),
        (DdSpec(conv=("notrunc",)), "no"),
        (DdSpec(oflag=("dsync",)), "each"),
        (BonnieSpec(fsync=True), "each"),
        (BonnieSpec(), "no"),
        (MetadataSpec(), "no"),
        (MetadataSpec(fsync_file=True), "each"),
        (SharedFileSpec(), "each"),
        (job("rw=write"), "no"),
        (job("rw=write", "end_fsync=1"), "end"),
        (job("rw=write", "end_fsync=0"), "no"),
        (job("rw=randrw", "fsync=1"), "each"),
        (job("rw=write", "sync=dsync"), "each"),
        (job("rw=write", "fsync=1", "[second]", "rw=write"), "no"),
        (job("rw=write", "fsync=1", "[second]", "rw=read"), "each"),
    ],
)
def test_when_writes_become_durable(spec: Spec, durable: str) -> None:
    assert work_of(spec).durable == durable


@pytest.mark.parametrize(
    ("spec", "reads", "writes"),
    [
        (fio(rw="randread"), True, False),
        (fio(rw="randrw"), True, True),
        (DdSpec(direction="read"), True, False),
        (DdSpec(), False, True),
        (HdparmSpec(), True, False),
        (PostmarkSpec(), True, True),
        (job(), True, False),
        (job("rw=write"), False, True),
        (job("readwrite=rw"), True, True),
    ],
)
def test_directions(spec: Spec, reads: bool, writes: bool) -> None:
    work = work_of(spec)
    assert (work.reads, work.writes) == (reads, writes)


@pytest.mark.parametrize(
    ("spec", "once"),
    [
        (fio(), True),
        (fio(runtime_s=5), False),
        (fio(runtime_s=5, time_based=False), True),
        (HdparmSpec(timing="T"), False),
        (HdparmSpec(), True),
        (job("time_based", "runtime=5"), False),
        (job("rw=read"), True),
        (job("rw=read", "[second]", "rw=read"), False),
    ],
)
def test_what_is_touched_twice(spec: Spec, once: bool) -> None:
    assert work_of(spec).once == once


@pytest.mark.parametrize(
    ("spec", "size"),
    [
        (fio(numjobs=3), 3 * MIB),
        (DdSpec(bs=64 * KIB, count=16), MIB),
        (HdparmSpec(), None),
        (HdparmSpec(timing="T"), 2 * MIB),
        (job(), MIB),
        (MetadataSpec(), None),
        (MetadataSpec(files=10, size=100), 10 * (CLUSTER + 100)),
        (SharedFileSpec(size=MIB), MIB),
        (FioSpec.model_validate({"job_file": "[job]\nsize=50%\n"}), None),
    ],
)
def test_how_much_is_touched(spec: Spec, size: int | None) -> None:
    assert work_of(spec).working_set == size


def test_past_the_page_cache() -> None:
    assert work_of(fio(direct=True)).direct
    assert work_of(DdSpec(oflag=("direct",))).direct
    assert work_of(job("direct=1")).direct
    assert not work_of(job("direct=0")).direct
    assert not work_of(job("direct=1", "[second]")).direct


def test_what_has_been_read_before_on_purpose_is_warm() -> None:
    assert work_of(fio(rw="read", reread=True)).warm
    assert not work_of(fio(rw="read")).warm


def test_every_tool_of_a_plan_is_known() -> None:
    for spec in get_args(get_args(WorkloadSpec)[0]):
        assert work_of(spec()), spec


def test_another_tool_is_not() -> None:
    with pytest.raises(RigError, match="Spec does to caches is not known"):
        work_of(Spec())
