from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.errors import RequestError, RigError
from raidproof.core.units import MIB
from raidproof.workload.bonnie import Bonnie, BonnieSpec, bonnie_command, bonnie_sample, parse_bonnie
from raidproof.workload.workload import Place
from tests.workload.guest import Guest, said

DATA = Path(__file__).parents[1] / "data" / "bonnie"
REPORT = (DATA / "report.csv").read_text()
ROOM = "100000000 4096\n"


def guest(stdout: str = REPORT, stderr: str = "", status: int = 0, name: str = "client1") -> Guest:
    return Guest(
        name, lambda argv: said(argv, ROOM) if argv[0] == "stat" else said(argv, stdout, stderr, status, where=name)
    )


def test_command() -> None:
    assert bonnie_command(BonnieSpec(size=1500 * MIB, ram=0, number=64), "/mnt/x") == [
        *("bonnie++", "-q", "-d", "/mnt/x", "-s", "1500:8192", "-n", "64", "-r", "0", "-u", "root", "-f", "-x", "1")
    ]
    sized = bonnie_command(BonnieSpec(size=0, number=1, largest=1024, smallest=512, directories=3, fast=False), "/x")
    assert sized == ["bonnie++", "-q", "-d", "/x", "-s", "0", "-n", "1:1024:512:3", "-u", "root", "-x", "1"]


def test_real_report() -> None:
    # K/s are KiB: 356375 of them. Reading, seeking and most of the rest were over too soon.
    assert parse_bonnie(REPORT).values == {
        "write_mb_s": pytest.approx(364.928),
        "rewrite_mb_s": pytest.approx(1823.696896),
        "creates_s": 79556.0,
    }


def test_character_by_character() -> None:
    assert parse_bonnie((DATA / "too-short.csv").read_text()).values == {"putc_mb_s": pytest.approx(4.488192)}


def test_sized_files() -> None:
    assert [*parse_bonnie((DATA / "sized-files.csv").read_text()).values] == ["write_mb_s"]


def test_what_was_not_measured_is_left_out_rather_than_0() -> None:
    assert parse_bonnie((DATA / "no-large-file.csv").read_text()).values == {}


@given(st.integers(min_value=0, max_value=len(REPORT) - 1))
def test_a_line_that_was_cut_off_is_refused(length: int) -> None:
    with pytest.raises(RigError):
        parse_bonnie(REPORT[:length])


@pytest.mark.parametrize(
    "text",
    [
        (DATA / "truncated.csv").read_text(),
        (DATA / "truncated.csv").read_text() + "\n",
        (DATA / "no-directory.txt").read_text(),
        REPORT * 2,
        REPORT.replace("356375", "fast"),
    ],
)
def test_no_result(text: str) -> None:
    with pytest.raises(RigError):
        parse_bonnie(text)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no-directory.txt", "status 1: Can't change to directory"),
        ("no-room.txt", "status 1: Can't write block.: No space left on device"),
        ("no-room-small.txt", "status 1: Can.t write data"),
        ("below-ram.txt", "status 1: File size should be double RAM"),
    ],
)
def test_a_failure_has_bonnies_output(name: str, reason: str) -> None:
    with pytest.raises(RigError, match=reason) as caught:
        Bonnie(BonnieSpec()).run(Place([guest("", (DATA / name).read_text(), 1)], "/mnt"))
    assert "usage" not in str(caught.value)


def test_the_primary_rate_must_have_been_measured() -> None:
    for spec, name in ((BonnieSpec(), "too-short.csv"), (BonnieSpec(size=0), "no-large-file.csv")):
        with pytest.raises(RigError, match="less than half a second"):
            Bonnie(spec).run(Place([guest((DATA / name).read_text())], "/mnt"))


def test_machines_add_up_what_all_of_them_measured() -> None:
    short = parse_bonnie((DATA / "sized-files.csv").read_text())
    sample = bonnie_sample({"a": parse_bonnie(REPORT), "b": short}, "write_mb_s", 9.0, {})
    assert sample.values == {"write_mb_s": pytest.approx((356375 + 457324) * 1024 / 1e6)}


def test_each_machine_has_a_directory_and_is_ended() -> None:
    guests = guest(name="a"), guest(name="b")
    bonnie = Bonnie(BonnieSpec(deadline_s=10))
    place = Place(guests, "/mnt")
    bonnie.prepare(place)
    assert [words[0] for words in guests[0].ran] == ["mkdir", "stat", "sync"]
    assert [*bonnie.run(place).output] == ["a", "b"]
    assert guests[1].ran[-1][2:8] == ("timeout", "--kill-after=5", "10", "bonnie++", "-q", "-d")
    assert guests[1].ran[-1][8] == "/mnt/bonnie-b"
    bonnie.clean(place)
    assert guests[1].ran[-1] == ("rm", "-rf", "/mnt/bonnie-b")


def test_a_disk_without_room_is_refused_first() -> None:
    with pytest.raises(RigError, match="needs"):
        Bonnie(BonnieSpec()).prepare(Place([Guest(answer=lambda argv: said(argv, "1 4096\n"))], "/mnt"))


@pytest.mark.parametrize(
    "asked",
    [
        {"size": 0, "number": 0},
        {"size": 100 * MIB, "ram": 64 * MIB},
        {"size": MIB + 1},
        {"chunk": 3000},
        {"chunk": 2 * MIB},
        {"smallest": 2, "largest": 1},
    ],
)
def test_impossible(asked: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        BonnieSpec.model_validate(asked)


def test_bonnie_checks_its_ram_only_on_request() -> None:
    assert BonnieSpec(size=100 * MIB, ram=0).ram == 0
    assert "-r" not in bonnie_command(BonnieSpec(), "/x")
