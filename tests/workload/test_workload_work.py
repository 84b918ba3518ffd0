from typing import Any

import pytest

from raidproof.core.units import KIB, MIB
from raidproof.workload.bonnie import BonnieSpec
from raidproof.workload.dd import DdSpec
from raidproof.workload.fio import FioSpec
from raidproof.workload.hdparm import HdparmSpec
from raidproof.workload.metadata import CLUSTER, MetadataSpec
from raidproof.workload.postmark import PostmarkSpec
from raidproof.workload.shared_file import SharedFileSpec
from raidproof.workload.workload import WorkloadSpec


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
def test_when_writes_become_durable(spec: WorkloadSpec, durable: str) -> None:
    assert spec.work().durable == durable


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
def test_directions(spec: WorkloadSpec, reads: bool, writes: bool) -> None:
    work = spec.work()
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
def test_what_is_touched_twice(spec: WorkloadSpec, once: bool) -> None:
    assert spec.work().once == once


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
def test_how_much_is_touched(spec: WorkloadSpec, size: int | None) -> None:
    assert spec.work().working_set == size


def test_past_the_page_cache() -> None:
    assert fio(direct=True).work().direct
    assert DdSpec(oflag=("direct",)).work().direct
    assert job("direct=1").work().direct
    assert not job("direct=0").work().direct
    assert not job("direct=1", "[second]").work().direct


def test_what_has_been_read_before_on_purpose_is_warm() -> None:
    assert fio(rw="read", reread=True).work().warm
    assert not fio(rw="read").work().warm
