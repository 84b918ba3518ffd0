import pytest

from raidproof.record.block_life import BlockLife, DiskRequest
from raidproof.report.charts.block_life import LAYERS, NOT_OBSERVED, describe, rows_of, specification

WRITE = DiskRequest(member="disk1", request=7, sector=2048, begun_s=-0.4, ended_s=-0.39)


def life(requests: list[DiskRequest] | None, replied: float | None = -0.5) -> BlockLife:
    return BlockLife(
        client="client1",
        path="client1-0-fsync",
        kind="fsync",
        block=3,
        generation=2,
        found="the block has generation 50",
        written_s=-0.6,
        replied_s=replied,
        reported_s=-0.49,
        requests=requests,
    )


def test_only_observed_steps_have_a_time() -> None:
    rows = rows_of(1, 2, life([WRITE]))
    assert {row["layer"] for row in rows} == set(LAYERS)
    unknown = {row["layer"]: row for row in rows if row["at"] is None}
    assert set(unknown) == {"server", "disk flush"}
    assert all(row["step"] == NOT_OBSERVED for row in unknown.values())
    timed = [row["at"] for row in rows if row["at"] is not None]
    assert timed == sorted(timed)


@pytest.mark.parametrize(
    ("requests", "said"),
    [
        (None, "the disk requests are unknown, because no write log was kept"),
        ([], "no disk request carried the block before the cut: it was only in the server's memory"),
        ([WRITE], "no flush of that disk completed before the cut"),
        (
            [WRITE.model_copy(update={"flush_begun_s": -0.2, "flush_ended_s": -0.1, "flush_lied": True})],
            "disk1 acknowledged a flush that it did not carry out",
        ),
        (
            [WRITE.model_copy(update={"flush_begun_s": -0.2, "flush_ended_s": -0.1})],
            "a flush of that disk completed before the cut, so that metadata",
        ),
    ],
)
def test_the_sentence_says_how_far_the_block_came(requests: list[DiskRequest] | None, said: str) -> None:
    assert said in describe(life(requests))
    assert "acknowledged 500 ms before the cut" in describe(life(requests))
    assert describe(life(requests)).endswith("; after the cut the block has generation 50")


def test_replies_that_were_not_captured_are_named() -> None:
    rows = rows_of(1, 1, life([], replied=None))
    [network] = [row for row in rows if row["layer"] == "network"]
    assert (network["at"], network["note"]) == (None, "the replies were not captured")
    assert "layer" in specification()
