"""Sentences on what makes a crash state fail, and their place on the page and in the terminal."""

from io import StringIO

import pytest
from rich.console import Console

from raidproof.record.failure import DifferenceRecord, DifferingRequest, Gap, MissingRecord, WriteRecord
from raidproof.report.difference import content, place, sentences, table
from raidproof.report.exploration import show_exploration
from raidproof.report.html import render_exploration
from raidproof.storage.array.state import Area
from tests.report.test_exploration import exploration, failure, parsed

FSYNC = MissingRecord(
    client="client1",
    kind="fsync",
    path="client1-0-fsync",
    place=3,
    generation=2,
    acknowledged_before_s=0.005,
    instead="the block is missing",
)
ACKNOWLEDGEMENT = "cknowledgement of fsync of client1-0-fsync, block or directory 3, generation 2"
COMPLETED = "ms after this request completed"


def write(**changes: object) -> WriteRecord:
    fields: dict[str, object] = {
        "request": 12,
        "kind": "write",
        "member": "disk3",
        "lba": 4096,
        "sectors": 8,
        "stripe": 17,
        "owner": "parity",
        "role": 3,
        "area": Area.P,
    }
    return WriteRecord.model_validate(fields | changes)


def request(**changes: object) -> DifferingRequest:
    fields: dict[str, object] = {
        "write": write(),
        "good_state": "9-0000600d",
        "issued_before_cut_s": 0.018,
        "completed_before_cut_s": 0.017,
        "before_acknowledgement_s": 0.012,
        "gap": Gap.NOT_FLUSHED,
    }
    return DifferingRequest.model_validate(fields | changes)


def difference(*requests: DifferingRequest, **changes: object) -> DifferenceRecord:
    fields: dict[str, object] = {"state": "9-00000bad", "dump": "[9,[]]", "lost": True, "broken": FSYNC}
    return DifferenceRecord.model_validate(fields | {"requests": list(requests)} | changes)


def test_a_lost_request_and_the_flush_that_is_missing() -> None:
    assert sentences(difference(request())) == [
        "State 9-00000bad lacks the parity of stripe 17 (disk3, slot 3, sectors 4096-4103); with this request the "
        "state is good (state 9-0000600d).",
        f"The a{ACKNOWLEDGEMENT} came 12.0 {COMPLETED}, and no flush of disk3 completed in between.",
    ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"gap": Gap.FLUSH_LIED, "lying_flushes": 2},
            f"The a{ACKNOWLEDGEMENT} came 12.0 {COMPLETED}; disk3 acknowledged 2 flushes in between without making "
            "this request durable.",
        ),
        (
            {"gap": Gap.FLUSH_LIED, "write": write(fua=True)},
            f"The a{ACKNOWLEDGEMENT} came 12.0 ms after disk3 acknowledged this FUA write without making it durable.",
        ),
        (
            {"gap": Gap.IN_FLIGHT, "before_acknowledgement_s": -0.003},
            f"This request was in flight at the a{ACKNOWLEDGEMENT} and completed 3.00 ms after it.",
        ),
        (
            {"gap": Gap.IN_FLIGHT, "before_acknowledgement_s": None, "completed_before_cut_s": None},
            f"This request was in flight at the a{ACKNOWLEDGEMENT}, and still at the cut.",
        ),
        (
            {"gap": Gap.LATER, "before_acknowledgement_s": -0.003},
            f"This request was issued 3.00 ms after the a{ACKNOWLEDGEMENT}, so that its loss destroys older, "
            "acknowledged data.",
        ),
    ],
)
def test_why_an_acknowledged_request_was_volatile(changes: dict[str, object], said: str) -> None:
    assert sentences(difference(request(**changes)))[1] == said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "This request completed 17.0 ms before the cut, and no flush of disk3 completed in between."),
        (
            {"gap": Gap.FLUSH_LIED, "lying_flushes": 1},
            "This request completed 17.0 ms before the cut; disk3 acknowledged 1 flush in between without making this "
            "request durable.",
        ),
        (
            {"gap": Gap.FLUSH_LIED},
            "This request completed 17.0 ms before the cut; disk3 acknowledged it with FUA without making it durable.",
        ),
        ({"gap": Gap.IN_FLIGHT, "completed_before_cut_s": None}, "This request was in flight at the cut."),
    ],
)
def test_without_an_acknowledgement_the_cut_counts(changes: dict[str, object], said: str) -> None:
    one = request(**{"before_acknowledgement_s": None} | changes)
    assert sentences(difference(one, broken=None))[1] == said


@pytest.mark.parametrize(
    ("done_s", "said"),
    [
        (0.017, "This request completed 17.0 ms before the cut, and was volatile: a disk may keep or lose it."),
        (None, "This request was in flight at the cut: the disk may or may not have written it."),
    ],
)
def test_a_surviving_request(done_s: float | None, said: str) -> None:
    one = request(write=write(area=Area.SUPERBLOCK, stripe=None), completed_before_cut_s=done_s)
    assert sentences(difference(one, lost=False)) == [
        "State 9-00000bad has the md superblock (disk3, slot 3, sectors 4096-4103); without this request the state is "
        "good (state 9-0000600d).",
        said,
    ]


def test_a_torn_request() -> None:
    one = request(torn=True)
    lost, kept = sentences(difference(one))[0], sentences(difference(one, lost=False))[0]
    assert "lacks a part of the parity of stripe 17" in lost
    assert "with the whole request the state is good" in lost
    assert "has only a part of the parity of stripe 17" in kept


def test_several_requests_begin_with_one_that_has_a_good_state() -> None:
    bad = request(write=write(request=11, member="disk1"), good_state=None)
    said = sentences(difference(bad, request(), request()))[0]
    assert said.startswith("State 9-00000bad lacks the parity of stripe 17 (disk3")
    assert said.endswith("It lacks 2 more requests: with any one of 2 of these 3 requests the state is good.")


def test_without_a_good_state_none_is_claimed() -> None:
    said = sentences(difference(request(good_state=None)))[0]
    assert said.endswith("with this request the state shows another failure or has no verdict.")


def test_without_requests_the_failure_depends_on_none() -> None:
    (said,) = sentences(difference())
    assert said.endswith("the failure does not depend on these requests.")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"area": Area.Q}, "the second parity (Q) of stripe 17"),
        ({"area": Area.DATA, "chunk": 51, "owner": "data"}, "data of stripe 17, chunk 51"),
        ({"area": Area.DATA, "chunk": 51, "owner": "file /f"}, "data of stripe 17, chunk 51: file /f"),
        (
            {"area": Area.DATA, "chunk": 51, "owner": "XFS log", "structure": "XFS log record"},
            "data of stripe 17, chunk 51: XFS log record",
        ),
        ({"area": Area.BITMAP, "owner": "write-intent bitmap"}, "the write-intent bitmap"),
        ({"area": Area.PPL}, "the partial parity log"),
        ({"area": None, "owner": None, "structure": "XFS log record"}, "XFS log record"),
        ({"area": None, "owner": None}, "a request with unknown content"),
    ],
)
def test_content(changes: dict[str, object], said: str) -> None:
    assert content(write(**changes)) == said


def test_place() -> None:
    assert place(write(fua=True)) == "disk3, slot 3, sectors 4096-4103, FUA"
    assert place(write(role=None)) == "disk3, sectors 4096-4103"


def test_the_page_and_the_terminal_say_what_makes_the_state_fail() -> None:
    known = difference(request(), request(gap=Gap.FLUSH_LIED, lying_flushes=3))
    record = exploration(failures=[failure().model_copy(update={"difference": known})])
    screen = StringIO()
    show_exploration(record, Console(file=screen, width=400))
    page = " ".join(parsed(render_exploration(record)).words.split())
    for said in sentences(known):
        assert said in screen.getvalue()
        assert said in page
    assert "flush not executed" in page
    assert len(table(known).rows) == 2
