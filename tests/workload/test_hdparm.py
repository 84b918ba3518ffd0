from pathlib import Path

import pytest

from raidproof.core.errors import RequestError, RigError
from raidproof.core.units import MIB
from raidproof.workload.hdparm import Hdparm, HdparmSpec, hdparm_command, parse_hdparm, read_ended
from raidproof.workload.workload import Place
from tests.workload.guest import Guest, said

DATA = Path(__file__).parents[1] / "data" / "hdparm"


def told(name: str) -> str:
    return (DATA / f"hdparm-9.65-{name}.txt").read_text()


def test_mb_of_hdparm_are_mib() -> None:
    found = parse_hdparm(told("t"))
    assert found.disk is not None
    assert found.cached is None
    assert found.disk.bytes == 1530 * MIB
    assert found.disk.mb_s == pytest.approx(1576.45 * 1.048576)


def test_both_timings() -> None:
    found = parse_hdparm(told("tT"))
    assert found.disk is not None
    assert found.cached is not None
    assert (found.disk.seconds, found.cached.seconds) == (2.54, 1.55)


def test_direct() -> None:
    found = parse_hdparm(told("direct"))
    assert found.disk is not None
    assert found.disk.mb_s == pytest.approx(2082.15 * 1.048576)


def test_the_rate_of_a_slow_device_is_in_kb() -> None:
    # By hdparm.c: below 1 MB/sec it prints kB/sec.
    found = parse_hdparm("\n/dev/sda:\n Timing buffered disk reads:   2 MB in  4.00 seconds = 512.00 kB/sec\n")
    assert found.disk is not None
    assert found.disk.mb_s == pytest.approx(0.524288)


@pytest.mark.parametrize("cut", [1, 10, 20, 60])
def test_no_truncated_output_is_read(cut: int) -> None:
    for name in ("t", "tT"):
        with pytest.raises(RigError, match="missing"):
            parse_hdparm(told(name).rstrip()[:-cut])


def test_hdparms_error_about_a_missing_device_is_reported() -> None:
    with pytest.raises(RigError, match=r"status 2: /dev/md77: No such file or directory"):
        read_ended(HdparmSpec(), said(["hdparm"], stderr=told("absent"), status=2))


def test_an_error_with_status_0_is_an_error() -> None:
    with pytest.raises(RigError, match="read\\(\\) failed"):
        read_ended(HdparmSpec(), said(["hdparm"], told("t"), "read() failed: Input/output error"))


def test_a_timing_that_was_asked_and_left_out() -> None:
    with pytest.raises(RigError, match="left out"):
        read_ended(HdparmSpec(timing="tT"), said(["hdparm"], told("t")))


def test_command() -> None:
    assert hdparm_command(HdparmSpec(timing="tT", direct=True), "/dev/md0") == [
        "hdparm",
        "-tT",
        "--direct",
        "/dev/md0",
    ]


def test_the_array_is_timed() -> None:
    guest = Guest("server", lambda argv: said(argv, told("t")))
    sample = Hdparm(HdparmSpec()).run(Place([guest], "/srv", device="/dev/md0"))
    assert guest.ran[0][-3:] == ("hdparm", "-t", "/dev/md0")
    assert (sample.primary, sample.read_bytes, sample.seconds) == ("read_mb_s", 1530 * MIB, 0.97)


def test_cached_reads_are_primary_only_where_nothing_else_was_asked() -> None:
    guest = Guest("server", lambda argv: said(argv, told("T")))
    assert Hdparm(HdparmSpec(timing="T")).run(Place([guest], "/srv", device="/dev/md0")).primary == "cached_mb_s"


def test_clients_have_no_device() -> None:
    with pytest.raises(RequestError, match="run hdparm on the server"):
        Hdparm(HdparmSpec()).prepare(Place([Guest()], "/mnt"))
