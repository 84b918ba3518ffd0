from array import array
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.guest import shared_file_agent as agent

RECORD = 4096
Orders = dict[str, Any]


def orders(path: Path | str, **also: Any) -> Orders:
    usual = {"writer": 0, "writers": 2, "interleaved": True, "record": RECORD, "count": 4, "rounds": 2, "seed": 7}
    return {**usual, "path": str(path), **also}


def unit(offset: int = 64, writer: int = 0, turn: int = 2, seed: int = 7) -> bytes:
    return array("Q", [offset, writer, turn, seed]).tobytes()


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "shared"
    for turn in range(2):
        Path(agent.marker(orders(path), turn)).touch()
    path.touch()
    with ThreadPoolExecutor(2) as pool:
        said = list(pool.map(agent.write, [orders(path, writer=turn) for turn in range(2)]))
    assert [one["bytes"] for one in said] == [8 * RECORD] * 2
    assert all(one["begun_ns"] <= one["ended_ns"] for one in said)
    return path


@pytest.mark.parametrize("writer", [0, 1])
def test_what_was_written_is_found(written: Path, writer: int) -> None:
    assert written.stat().st_size == 8 * RECORD
    assert agent.check(orders(written, writer=writer)) == {"bytes": 4 * RECORD, "wrong": {}, "first": None}


def damage(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


AT = 2 * RECORD + 64
"""Offset in the second record of writer 0."""


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (bytes(32), agent.ZEROES),
        (unit(AT, turn=1), agent.STALE),
        (unit(AT, writer=1), agent.OTHER),
        (unit(AT + 32), agent.MISPLACED),
        (unit(AT, seed=8), agent.GARBAGE),
        (unit(AT, turn=3), agent.GARBAGE),
        (unit(AT, writer=2), agent.GARBAGE),
        (b"x" * 32, agent.GARBAGE),
        (b"x", agent.MISPLACED),
    ],
)
def test_kinds_of_wrong_content_are_distinguished(written: Path, data: bytes, kind: str) -> None:
    damage(written, AT, data)
    found = agent.check(orders(written))
    assert (found["wrong"], found["first"]) == ({kind: 1}, [AT, kind])
    assert agent.check(orders(written, writer=1))["first"] is None


def test_a_file_that_ends_too_early(written: Path) -> None:
    with written.open("r+b") as file:
        file.truncate(AT + 16)
    found = agent.check(orders(written))
    # The rest of the second record, and the two records behind it.
    assert found["wrong"] == {agent.MISSING: (RECORD - 64) // 32 + 2 * RECORD // 32}
    assert found["first"] == [AT, agent.MISSING]


def test_a_round_before_the_last_is_stale(written: Path) -> None:
    assert agent.check(orders(written, rounds=3))["wrong"] == {agent.STALE: 4 * RECORD // 32}


@given(st.integers(1, 6), st.integers(1, 20), st.booleans())
def test_the_parts_fill_the_file_and_do_not_meet(writers: int, count: int, interleaved: bool) -> None:
    asked = orders("f", writers=writers, count=count, interleaved=interleaved)
    places = [offset for writer in range(writers) for offset in agent.offsets(asked, writer)]
    assert sorted(places) == list(range(0, writers * count * RECORD, RECORD))


@given(st.binary(min_size=32, max_size=32))
def test_only_the_unit_itself_passes(data: bytes) -> None:
    passes = agent.kind_of(data, 64, writer=0, turn=2, seed=7, writers=2) == ""
    assert passes == (data == unit())


def test_a_writer_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = orders(tmp_path / "shared")
    for turn in range(2):
        Path(agent.marker(asked, turn)).touch()
    monkeypatch.setattr(agent, "START_S", -1.0)
    with pytest.raises(SystemExit, match=r"writers \[1\] are not ready"):
        agent.wait_for_all(asked)
