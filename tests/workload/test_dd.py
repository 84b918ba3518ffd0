from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.errors import RequestError, RigError
from raidproof.core.units import KIB
from raidproof.workload.dd import Dd, DdSpec, DdState, dd_command, parse_dd, read_ended
from raidproof.workload.workload import Place
from tests.workload.guest import Guest, said

DATA = Path(__file__).parents[1] / "data" / "dd"


def told(name: str) -> str:
    return (DATA / f"coreutils-9.7-{name}.txt").read_text()


@pytest.mark.parametrize(
    ("name", "size", "seconds"),
    [("write", 67108864, 0.257231), ("dsync", 204800, 0.100504), ("small", 512, 0.00744422), ("none", 0, 0.00137574)],
)
def test_the_last_line(name: str, size: int, seconds: float) -> None:
    assert parse_dd(told(name)) == DdState(bytes=size, seconds=seconds)


@given(st.integers(0, 2**60), st.floats(1e-9, 1e6))
def test_every_number_is_read(size: int, seconds: float) -> None:
    assert parse_dd(f"{size} bytes copied, {seconds:g} s, 1 MB/s").seconds == pytest.approx(seconds, rel=1e-5)


def test_a_full_file_system_is_reported_with_dds_output() -> None:
    with pytest.raises(RigError, match=r"error writing '/mnt/raidproof/full': No space left on device"):
        parse_dd(told("enospc"))


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(RigError, match="No such file or directory"):
        parse_dd(told("absent"))


@pytest.mark.parametrize("kept", range(0, 76, 5))
def test_no_truncated_output_is_read(kept: int) -> None:
    whole = told("write")
    assert len(whole) - len(whole.splitlines()[-1]) < 76
    with pytest.raises(RigError, match="missing"):
        parse_dd(whole[:kept])


def test_output_that_ends_within_the_seconds_is_not_read() -> None:
    with pytest.raises(RigError, match="missing"):
        parse_dd(told("write").split(" s,")[0])


def test_no_time_gives_no_rate() -> None:
    with pytest.raises(RigError, match="in 0 s"):
        parse_dd("4096 bytes (4.1 kB, 4.0 KiB) copied, 0 s, Infinity B/s\n")


def test_the_published_command() -> None:
    assert dd_command(DdSpec(bs=65536, count=1024), "/mnt/f") == [
        "dd", "if=/dev/zero", "of=/mnt/f", "bs=65536", "count=1024",
    ]  # fmt: skip


def test_flags() -> None:
    spec = DdSpec.model_validate({"bs": "4k", "conv": ["fsync", "notrunc"], "oflag": ["direct"]})
    assert dd_command(spec, "f")[3:] == ["bs=4096", "count=1024", "conv=fsync,notrunc", "oflag=direct"]
    reading = DdSpec(direction="read", iflag=("direct",))
    assert dd_command(reading, "f") == ["dd", "if=f", "of=/dev/null", "bs=65536", "count=1024", "iflag=direct"]


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"iflag": ["direct"]}, "iflag direct needs direction = read"),
        ({"direction": "read", "conv": ["fsync"]}, "(fsync).*need direction = write"),
        ({"oflag": ["dircet"]}, "dircet"),
        ({"bs": 0}, "greater than 0"),
        ({"cuont": 3}, "did you mean 'count'"),
    ],
)
def test_what_cannot_be_asked(asked: dict[str, Any], why: str) -> None:
    with pytest.raises(RequestError, match=why):
        DdSpec.model_validate(asked)


def test_less_than_asked_is_no_measurement() -> None:
    with pytest.raises(RigError, match="copied 67108864 bytes instead of 131072"):
        read_ended(DdSpec(count=2), said(["dd"], stderr=told("write")))
    with pytest.raises(RigError, match="client1: dd ended with status 1"):
        read_ended(DdSpec(), said(["dd"], stderr=told("write"), status=1))


def dd_answer(argv: tuple[str, ...]) -> Any:
    return said(argv, stderr=told("write")) if "dd" in argv else None


def test_one_machine_writes() -> None:
    guests = [Guest("client1", dd_answer), Guest("client2", dd_answer)]
    sample = Dd(DdSpec()).run(Place(guests, "/mnt"))
    assert sample.value == pytest.approx(67.108864 / 0.257231)
    assert sample.written_bytes == 1024 * 64 * KIB
    assert sample.output == {"client1": told("write")}
    assert not guests[1].ran


def test_all_machines_write_files_of_their_own() -> None:
    guests = [Guest("client1", dd_answer), Guest("client2", dd_answer)]
    sample = Dd(DdSpec(all_machines=True)).run(Place(guests, "/mnt"))
    assert sample.value == pytest.approx(2 * 67.108864 / 0.257231)
    assert "of=/mnt/raidproof-dd-client2" in guests[1].ran[0]


def test_what_is_read_is_laid_out_and_in_no_cache() -> None:
    guest = Guest("client1", dd_answer)
    workload, place = Dd(DdSpec(direction="read")), Place([guest], "/mnt")
    workload.prepare(place)
    sample = workload.run(place)
    workload.clean(place)
    assert guest.programs == ["rm", "dd", "sync", "sysctl", "dd", "rm"]
    assert "conv=fsync" in guest.ran[1]
    assert (sample.primary, sample.read_bytes, sample.written_bytes) == ("read_mb_s", 67108864, 0)
