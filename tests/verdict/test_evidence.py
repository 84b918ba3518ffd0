from errno import EEXIST, EIO, ENOENT
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import RigError
from harness.verdict.evidence import (
    ANY_GENERATION,
    BROKEN,
    EXAMPLES_EACH,
    Balance,
    BlockClass,
    Evidence,
    balance_of,
    classify,
    weigh,
)
from harness.workload.agent import ABSENT, APPENDED, GARBAGE, METADATA, MISPLACED, MODE, TRUNCATED, UNREADABLE
from harness.workload.history import Ended, History, Operation, WorkerSpec

BLOCKS = WorkerSpec(number=0, client="client1", kind="fsync", path="f", file=0, blocks=4)
NAMES = WorkerSpec(number=1, client="client1", kind="metadata", path="m", file=1, blocks=4)
FILE = [0o100600, 0, 1, None]


def done(kind: str, place: int, generation: int = 1, *, ended: Ended = Ended.OK, at_ns: int = 10) -> Operation:
    worker = NAMES.number if kind in METADATA else BLOCKS.number
    told = None if ended is Ended.UNKNOWN else at_ns
    return Operation(worker, at_ns, kind, place, generation, at_ns - 1, told, ended, 0)


def weighed(operations: list[Operation], found: dict[str, Any], **options: Any) -> Evidence:
    worker = NAMES if operations and operations[0].kind in METADATA else BLOCKS
    if worker is BLOCKS:
        found = {"names": ["f"], **found}
    return weigh([worker], History(operations), {worker.key: found}, **options)


@pytest.mark.parametrize(
    ("state", "required", "issued", "kind"),
    [
        (3, 3, 3, BlockClass.DURABLE),
        (3, 2, 3, BlockClass.UNSYNCED_KEPT),
        (1, 0, 1, BlockClass.UNSYNCED_KEPT),
        (ABSENT, 0, 1, BlockClass.UNSYNCED_LOST),
        (GARBAGE, 1, 2, BlockClass.GARBAGE),
        (ABSENT, 1, 1, BlockClass.SYNCED_LOST),
        (1, 2, 2, BlockClass.STALE),
        (GARBAGE, 2, 2, BlockClass.GARBAGE),
        (5, 2, 3, BlockClass.GARBAGE),
        (MISPLACED, 1, 1, BlockClass.MISPLACED),
        (UNREADABLE, 1, 1, BlockClass.UNREADABLE),
        (ABSENT, 0, 0, None),
    ],
)
def test_class_of_a_block(state: int, required: int, issued: int, kind: BlockClass | None) -> None:
    assert classify(state, required, issued) is kind


def test_only_a_disk_that_tears_excuses_a_torn_overwrite() -> None:
    assert classify(GARBAGE, 1, 2, torn=True) is BlockClass.UNSYNCED_LOST
    assert classify(GARBAGE, 2, 2, torn=True) is BlockClass.GARBAGE


@given(st.integers(-3, 9), st.integers(0, 5), st.integers(0, 5))
def test_an_acknowledged_block_is_never_excused_unless_it_is_there(state: int, required: int, more: int) -> None:
    issued = required + more
    kind = classify(state, required, issued)
    if required and 0 <= state < required:
        assert kind in BROKEN
    if kind is BlockClass.DURABLE:
        assert state == required


def test_all_there() -> None:
    evidence = weighed([done("fsync", 0), done("fsync", 1)], {"blocks": [1, 1, 0, 0]})
    assert (evidence.acknowledged_total, evidence.lost_total, evidence.broken_blocks) == (2, 0, 0)
    assert evidence.invented == []


def test_a_lost_block_is_lost_and_dated() -> None:
    evidence = weighed([done("fsync", 0, at_ns=5), done("fsync", 1, at_ns=7)], {"blocks": [1, 0, 0, 0]})
    assert evidence.lost == {"fsync": 1}
    assert evidence.first_lost_ns == 7
    assert evidence.lost_bytes == 4096
    assert "block 1 is synced-lost" in evidence.examples[0]


def test_a_worker_that_lost_much_leaves_room_for_examples_of_others() -> None:
    balance = Balance()
    for number in range(100):
        balance.say(f"client1-0-fsync: block {number} is stale")
    balance.say("client2-0-fsync: block 7 is stale")
    assert balance.examples[-1] == "client2-0-fsync: block 7 is stale"
    assert len(balance.examples) == EXAMPLES_EACH + 1


@given(st.lists(st.integers(UNREADABLE, 2), min_size=4, max_size=4), st.sets(st.integers(0, 3)))
def test_a_balance_keeps_what_it_counts(blocks: list[int], told: set[int]) -> None:
    history = History([done("fsync", place, at_ns=place + 5) for place in sorted(told)])
    balance = balance_of([BLOCKS], history, {BLOCKS.key: {"names": ["f"], "blocks": blocks}})
    evidence = balance.evidence()
    assert evidence == weigh([BLOCKS], history, {BLOCKS.key: {"names": ["f"], "blocks": blocks}})
    assert len(balance.losses) == evidence.lost_total
    assert len(balance.spoilt) == evidence.broken_blocks
    assert {one.operation.place for one in balance.losses} <= told
    assert {str(one) for one in (*balance.losses, *balance.spoilt)} >= {*evidence.examples}


def test_a_lost_file_is_counted() -> None:
    assert weighed([done("fsync", 0)], {"names": [], "blocks": [0, 0, 0, 0]}).lost_files == 1
    assert weighed([done("fsync", 0)], {"blocks": [0, 0, 0, 0]}).lost_files == 0


def test_what_was_told_after_the_fault_does_not_bind() -> None:
    evidence = weighed([done("fsync", 0, at_ns=20)], {"blocks": [0, 0, 0, 0]}, before_ns=20)
    assert evidence.acknowledged_total == evidence.lost_total == 0


@pytest.mark.parametrize("ended", [Ended.UNKNOWN, Ended.FAILED])
@pytest.mark.parametrize("state", [0, 1])
def test_an_operation_without_a_good_word_proves_nothing(ended: Ended, state: int) -> None:
    evidence = weighed([done("fsync", 0, ended=ended)], {"blocks": [state, 0, 0, 0]})
    assert evidence.lost_total == evidence.broken_blocks == 0
    assert evidence.invented == []


def test_a_block_that_nobody_wrote_is_invented() -> None:
    assert weighed([done("fsync", 0)], {"blocks": [1, 1, 0, 0]}).invented


def test_a_dead_client_may_have_done_more_than_it_told() -> None:
    found = {"blocks": [1, 1, 9, 0]}
    assert weighed([done("fsync", 0)], found, unheard=["client1"]).invented == []
    assert weighed([done("fsync", 0)], {"blocks": [0, 0, 0, 0]}, unheard=["client1"]).lost_total == 1
    assert classify(9, 1, ANY_GENERATION) is BlockClass.UNSYNCED_KEPT


def test_a_scan_that_is_silent_about_a_worker_is_the_rigs_fault() -> None:
    with pytest.raises(RigError, match="says nothing"):
        weigh([BLOCKS], History([]), {})


NAMED: list[tuple[str, list[str], dict[str, Any], bool]] = [
    ("mkdir", [], {"d0": FILE}, True),
    ("mkdir", [], {}, False),
    ("create", [], {"d0": FILE, "d0/a": FILE}, True),
    ("create", ["rename"], {"d0": FILE, "d0/c": FILE}, True),
    ("create", [], {"d0": FILE}, False),
    ("append", [], {"d0/a": [0o100600, APPENDED, 1, None]}, True),
    ("append", ["truncate"], {"d0/a": [0o100600, TRUNCATED, 1, None]}, True),
    ("append", [], {"d0/a": [0o100600, 0, 1, None]}, False),
    ("setattr", [], {"d0/a": [0o100000 | MODE, 0, 1, None]}, True),
    ("setattr", [], {"d0/a": FILE}, False),
    ("link", [], {"d0/b": FILE}, True),
    ("link", ["remove"], {"d0/a": FILE}, True),
    ("link", [], {"d0/a": FILE}, False),
    ("link", ["remove"], {}, False),
    ("symlink", [], {"d0/s": [0o120777, 1, 1, "a"]}, True),
    ("symlink", [], {}, False),
    ("rename", [], {"d0/c": FILE}, True),
    ("rename", [], {"d0/a": FILE}, False),
    ("rename", [], {"d0/a": FILE, "d0/c": FILE}, False),
    ("truncate", [], {"d0/a": [0o100600, TRUNCATED, 1, None]}, True),
    ("truncate", [], {"d0/a": FILE}, False),
    ("remove", [], {"d0": FILE}, True),
    ("remove", [], {"d0": FILE, "d0/b": FILE}, False),
    ("remove", [], {}, False),
]


@pytest.mark.parametrize(("kind", "begun", "found", "there"), NAMED)
def test_a_change_of_names(kind: str, begun: list[str], found: dict[str, Any], there: bool) -> None:
    later = [done(one, 0, ended=Ended.UNKNOWN) for one in begun]
    assert weighed([done(kind, 0), *later], found).lost_total == (0 if there else 1)


def test_a_name_that_nobody_made_is_invented() -> None:
    assert weighed([done("mkdir", 0)], {"d0": FILE, "d1": FILE}).invented
    assert weighed([done("mkdir", 0)], {"d0": FILE, "d0/a": FILE}).invented
    assert not weighed([done("mkdir", 0), done("create", 0, ended=Ended.UNKNOWN)], {"d0": FILE, "d0/a": FILE}).invented


@pytest.mark.parametrize(("error", "invented"), [(ENOENT, False), (EEXIST, False), (EIO, True)])
def test_a_request_that_was_sent_again_may_have_been_done_the_first_time(error: int, invented: bool) -> None:
    renamed = done("rename", 0, ended=Ended.FAILED)._replace(error=error)
    found = {"d0": FILE, "d0/c": FILE}
    assert bool(weighed([done("mkdir", 0), done("create", 0), renamed], found).invented) is invented
