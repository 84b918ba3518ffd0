from errno import EEXIST, EIO, ENOENT
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.errors import RigError
from raidproof.guest.ledger_format import (
    ABSENT,
    BLOCK,
    GARBAGE,
    METADATA,
    MISPLACED,
    OLD,
    TORN,
    UNREADABLE,
    WRITTEN,
    signed,
    torn,
)
from raidproof.record.run import BROKEN, BlockClass, ScanResult
from raidproof.verdict.balance import EXAMPLES_EACH, Balance, KeptParts
from raidproof.verdict.ledger import (
    ANY_GENERATION,
    Bounds,
    Torn,
    balance_of,
    classify,
    description_of,
    of_older_version,
)
from raidproof.workload.history import Ended, History, Operation, WorkerSpec

BLOCKS = WorkerSpec(number=0, client="client1", kind="fsync", path="f", file=0, blocks=4)
NAMES = WorkerSpec(number=1, client="client1", kind="metadata", path="m", file=1, blocks=4)
FILE = [0o100600, 0, 1, "+"]
DIRECTORY = [0o40755, 0, 2, None]


def done(kind: str, place: int, generation: int = 1, *, ended: Ended = Ended.OK, at_ns: int = 10) -> Operation:
    worker = NAMES.number if kind in METADATA else BLOCKS.number
    told = None if ended is Ended.UNKNOWN else at_ns
    return Operation(worker, at_ns, kind, place, generation, at_ns - 1, told, ended, 0)


def weighed(operations: list[Operation], found: dict[str, Any], **options: Any) -> ScanResult:
    worker = NAMES if operations and operations[0].kind in METADATA else BLOCKS
    if worker is BLOCKS:
        found = {"names": ["f"], **found}
    return balance_of([worker], History(operations), {worker.key: found}, **options).result()


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
        (OLD, 0, 1, BlockClass.OLD),
        (OLD, 1, 2, BlockClass.OLD),
    ],
)
def test_class_of_a_block(state: int, required: int, issued: int, kind: BlockClass | None) -> None:
    assert classify(state, required, issued) is kind


def test_only_a_disk_that_tears_excuses_a_torn_overwrite() -> None:
    assert classify(torn(1, 2), 1, 2, torn=True) is BlockClass.UNSYNCED_LOST
    assert classify(torn(1, 2), 2, 2, torn=True) is BlockClass.TORN
    assert classify(torn(1, 2), 1, 2) is BlockClass.TORN


def test_a_torn_block_has_parts_of_the_interrupted_overwrite_and_of_the_content_before_it() -> None:
    assert classify(torn(0, 1), 0, 1, torn=True) is BlockClass.UNSYNCED_LOST
    assert classify(torn(0, 2), 1, 2, torn=True) is BlockClass.TORN  # a part of the acknowledged generation is gone
    assert classify(torn(1, 9), 1, 2, torn=True) is BlockClass.TORN  # no client wrote generation 9
    assert classify(GARBAGE, 1, 2, torn=True) is BlockClass.GARBAGE
    assert description_of(torn(1, 9)) == "the block is torn; its parts have the generations 1 to 9"


def test_what_is_beside_the_blocks_is_invented() -> None:
    found = {"blocks": [1, 0, 0, 0], "strange": ["f: mode 4777"], "old": ["f: old data of the disk behind byte 0"]}
    whole = [done("fsync", 0)]
    assert weighed(whole, found).invented == ["f: mode 4777", "f: old data of the disk behind byte 0"]
    assert weighed(whole, found, shows_old_data=True).invented == ["f: mode 4777"]


def test_a_scan_of_an_older_version_does_not_tell_torn_blocks_from_garbage() -> None:
    found = of_older_version({"f@0": {"blocks": [1, GARBAGE], "names": ["f"]}, "m": {"d0": ["blocks"]}})
    assert found == {"f@0": {"blocks": [1, TORN], "names": ["f"]}, "m": {"d0": ["blocks"]}}
    assert classify(TORN, 1, 2, torn=True) is BlockClass.UNSYNCED_LOST
    assert classify(TORN, 2, 2, torn=True) is BlockClass.TORN


def test_old_data_of_the_disk_is_no_damage_where_the_file_system_may_show_it() -> None:
    half = [done("fsync", 0), done("fsync", 1, ended=Ended.UNKNOWN)]
    found = {"blocks": [1, OLD, 0, 0]}
    assert weighed(half, found).blocks[BlockClass.OLD] == 1
    shown = weighed(half, found, shows_old_data=True)
    assert (shown.blocks.get(BlockClass.OLD), shown.broken_blocks) == (None, 0)
    assert weighed(half, {"blocks": [OLD, 0, 0, 0]}, shows_old_data=True).lost_total == 1


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


def test_an_empty_balance_has_lost_nothing() -> None:
    empty = ScanResult()
    assert (empty.lost_total, empty.lost_bytes, empty.lost_files, empty.lost_after_recovery) == (0, 0, 0, 0)
    assert (empty.acknowledged_total, empty.broken_blocks, empty.across_restart) == (0, 0, 0)
    assert empty.first_lost_ns is None


EXTENTS = WorkerSpec(
    number=1, client="c", kind="extents", path="m", file=1, blocks=4, rounds=(("mkdir", "create", "pages", "clone"),)
)


@pytest.mark.parametrize(("pages_kept", "after_recovery"), [(True, 1), (False, 0)])
def test_a_clone_made_after_recovery_is_lost_then_only_if_its_source_was_there(
    pages_kept: bool, after_recovery: int
) -> None:
    stamps = {"mkdir": 1, "create": 2, "pages": 3, "clone": 100}
    operations = [
        Operation(1, sequence, kind, 0, sequence, at_ns, at_ns, Ended.OK, 0)
        for sequence, (kind, at_ns) in enumerate(stamps.items(), start=1)
    ]
    blocks = [signed(place, 1) for place in range(WRITTEN)] if pages_kept else []
    left = {"d0": DIRECTORY, "d0/a": [0o100600, len(blocks) * BLOCK, 1, blocks or "+"], "d0/c": [0o100600, 0, 1, "+"]}
    evidence = balance_of([EXTENTS], History(operations), {EXTENTS.key: left}, resumed_ns=50).result()
    assert evidence.lost["clone"] == 1
    assert evidence.lost.get("pages", 0) == (not pages_kept)
    assert evidence.lost_after_recovery == after_recovery


@pytest.mark.parametrize(("kind", "invented"), [("copy", []), ("link", ["m/d0/b: a name that no client created"])])
def test_a_failed_change_of_several_steps_may_have_made_its_file(kind: str, invented: list[str]) -> None:
    worker = EXTENTS.model_copy(update={"rounds": (("mkdir", "create", kind),)})
    operations = [done(one, 0, sequence) for sequence, one in enumerate(("mkdir", "create"), start=1)]
    failed = Operation(1, 3, kind, 0, 3, 11, 12, Ended.FAILED, EIO)
    left = {"d0": DIRECTORY, "d0/a": [0o100600, 0, 1, ""], "d0/b": [0o100600, 0, 1, ""]}
    evidence = balance_of([worker], History([*operations, failed]), {worker.key: left}).result()
    assert (evidence.lost_total, evidence.invented) == (0, invented)


def test_a_lost_block_is_lost_and_dated() -> None:
    evidence = weighed([done("fsync", 0, at_ns=5), done("fsync", 1, at_ns=7)], {"blocks": [1, 0, 0, 0]})
    assert evidence.lost == {"fsync": 1}
    assert evidence.first_lost_ns == 7
    assert evidence.lost_bytes == 4096
    assert "block 1 was acknowledged and is missing" in evidence.examples[0]


def test_a_worker_that_lost_much_leaves_room_for_examples_of_others() -> None:
    balance = Balance()
    for number in range(100):
        balance.add_corrupted(BLOCKS, number, BlockClass.STALE)
    balance.add_corrupted(BLOCKS.model_copy(update={"path": "other"}), 7, BlockClass.STALE)
    assert balance.examples[-1].startswith("other: block 7 ")
    assert len(balance.examples) == EXAMPLES_EACH + 1


@given(st.lists(st.integers(UNREADABLE, 2), min_size=4, max_size=4), st.sets(st.integers(0, 3)))
def test_a_balance_keeps_what_it_counts(blocks: list[int], told: set[int]) -> None:
    history = History([done("fsync", place, at_ns=place + 5) for place in sorted(told)])
    balance = balance_of([BLOCKS], history, {BLOCKS.key: {"names": ["f"], "blocks": blocks}})
    evidence = balance.result()
    assert evidence == balance_of([BLOCKS], history, {BLOCKS.key: {"names": ["f"], "blocks": blocks}}).result()
    assert len(balance.losses) == evidence.lost_total
    assert len(balance.corrupted) == evidence.broken_blocks
    assert {one.operation.place for one in balance.losses} <= told
    assert {str(one) for one in (*balance.losses, *balance.corrupted)} >= {*evidence.examples}


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
    assert weighed([done("fsync", 0)], found, disconnected_clients=["client1"]).invented == []
    assert weighed([done("fsync", 0)], {"blocks": [0, 0, 0, 0]}, disconnected_clients=["client1"]).lost_total == 1
    assert classify(9, 1, ANY_GENERATION) is BlockClass.UNSYNCED_KEPT


def test_a_dead_client_may_have_made_more_directories_than_it_told() -> None:
    made = {"d0": DIRECTORY, "d0/a": FILE, "d1": DIRECTORY, "d1/a": FILE}
    assert weighed([done("mkdir", 0)], made, disconnected_clients=["client1"]).invented == []
    assert weighed([done("mkdir", 0)], made).invented == [
        "m/d0/a: a name that no client created",
        "m/d1: a name that no client created",
    ]
    odd = {"d0": DIRECTORY, "d1": DIRECTORY, "d1/z": FILE, "other": DIRECTORY}
    assert weighed([done("mkdir", 0)], odd, disconnected_clients=["client1"]).invented == [
        "m/d1/z: a name that no client created",
        "m/other: a name that no client created",
    ]


def test_a_scan_that_is_silent_about_a_worker_is_the_rigs_fault() -> None:
    with pytest.raises(RigError, match="has no entry"):
        balance_of([BLOCKS], History([]), {}).result()


def test_a_scan_that_lacks_a_block_of_an_acknowledged_operation_is_the_rigs_fault() -> None:
    assert not weighed([done("fsync", 1)], {"blocks": [0, 1]}).lost_total
    with pytest.raises(RigError, match="lacks blocks of operation 1"):
        weighed([done("fsync", 1)], {"blocks": [0]})


def test_a_name_that_nobody_made_is_invented() -> None:
    assert weighed([done("mkdir", 0)], {"d0": DIRECTORY, "d1": DIRECTORY}).invented
    assert weighed([done("mkdir", 0)], {"d0": DIRECTORY, "d0/a": FILE}).invented
    assert not weighed(
        [done("mkdir", 0), done("create", 0, ended=Ended.UNKNOWN, at_ns=11)], {"d0": DIRECTORY, "d0/a": FILE}
    ).invented


@pytest.mark.parametrize(("error", "invented"), [(ENOENT, False), (EEXIST, False), (EIO, True)])
def test_a_request_that_was_sent_again_may_have_been_done_the_first_time(error: int, invented: bool) -> None:
    renamed = done("rename", 0, ended=Ended.FAILED, at_ns=12)._replace(error=error)
    found = {"d0": DIRECTORY, "d0/c": FILE}
    evidence = weighed([done("mkdir", 0), done("create", 0, at_ns=11), renamed], found)
    assert bool(evidence.invented or evidence.lost_total) is invented


PAGES = WorkerSpec(number=0, client="c", kind="pages", path="p", file=0, blocks=2, span=3, step=2, files=True)


def pages(blocks: list[int], *operations: Operation, **options: Any) -> ScanResult:
    found = {"p": {"blocks": blocks, "names": ["f0", "f1"]}}
    return balance_of([PAGES], History(operations), found, **options).result()


def test_an_operation_of_many_blocks_is_lost_with_any_of_them() -> None:
    first, again = done("pages", 0), done("pages", 0, 2, at_ns=11)
    other = done("pages", 1, at_ns=12)
    whole = pages([2, 2, 2, 1, 1, 1], first, again, other)
    assert (whole.lost_total, whole.judged, whole.acknowledged) == (0, {"pages": 2}, {"pages": 3})
    part = pages([2, 1, 2, 1, 1, 0], first, again, other)
    assert part.lost == {"pages": 2}
    assert part.lost_bytes == 2 * 3 * BLOCK
    assert part.blocks[BlockClass.STALE] == part.blocks[BlockClass.SYNCED_LOST] == 1


def test_only_a_torn_block_is_excused_and_only_while_it_is_overwritten() -> None:
    first, again = done("pages", 0), done("pages", 0, 2, ended=Ended.UNKNOWN, at_ns=11)
    blocks = [torn(1, 2), 1, 1, 0, 0, 0]
    assert pages(blocks, first, again, torn={(0, 0)}).lost_total == 0
    assert pages(blocks, first, again, torn={(0, BLOCK), (1, 0)}).lost == {"pages": 1}
    assert pages(blocks, first, torn={(0, 0)}).lost == {"pages": 1}
    assert pages(blocks, first, again, torn=True).lost_total == 0
    assert pages(blocks, first, again).lost == {"pages": 1}


def test_a_block_that_straddles_pages_may_be_torn_wherever_anything_is() -> None:
    worker = PAGES.model_copy(update={"shift": 1000})
    found = {"p": {"blocks": [torn(1, 2), 1, 1, 0, 0, 0], "names": ["f0"]}}
    both = History([done("pages", 0), done("pages", 0, 2, ended=Ended.UNKNOWN, at_ns=11)])
    assert balance_of([worker], both, found, torn=frozenset()).result().lost_total == 0
    assert balance_of([worker], both, found).result().lost_total == 1
    assert balance_of([worker], History([done("pages", 0)]), found, torn=True).result().lost_total == 1


def test_what_was_begun_after_the_cut_excuses_nothing() -> None:
    cut = 10**12
    later = done("fsync", 0, 2, ended=Ended.UNKNOWN)._replace(issued_ns=cut + 2 * 10**7)
    found = {"blocks": [torn(1, 2), 0, 0, 0]}
    for begun_ns, lost in ((cut + 2 * 10**7, 1), (cut - 1, 0), (None, 0)):
        operations = [done("fsync", 0), later._replace(begun_ns=begun_ns)]
        assert weighed(operations, found, seen_ns=cut, torn=True).lost_total == lost


RECORDS = WorkerSpec(number=0, client="c", kind="o_append", path="a", file=0)


def records(found: list[int], count: int, *, under_way: bool = False) -> ScanResult:
    operations = [done("o_append", place, at_ns=10 + place) for place in range(count)]
    if under_way:
        operations.append(done("o_append", count, ended=Ended.UNKNOWN, at_ns=10 + count))
    return balance_of([RECORDS], History(operations), {RECORDS.key: {"records": found, "names": ["a"]}}).result()


def test_each_record_that_was_appended_is_there_once_and_in_order() -> None:
    assert records([1, MISPLACED, 2, 3], 3).lost_total == 0
    assert records([1, MISPLACED, 3], 3).lost == {"o_append": 1}
    assert records([1, 3, 2], 3).invented
    assert records([1, 2, 2, 3], 3).invented
    assert records([1, 2, 3, 4], 3).invented
    assert not records([1, 2, 3, 4], 3, under_way=True).invented
    assert records([1, GARBAGE, 2, 3], 3).blocks[BlockClass.GARBAGE] == 1
    assert records([1, 2, 3, GARBAGE], 3).broken_blocks == 0
    assert records([1, 2, GARBAGE], 3).lost == {"o_append": 1}
    assert records([1, OLD, 2, 3], 3).blocks[BlockClass.OLD] == 1


def test_zeros_between_records_are_places_of_records_that_are_lost() -> None:
    lost = records([1, ABSENT, 3], 3)
    assert (lost.lost, lost.broken_blocks, lost.invented) == ({"o_append": 1}, 1, [])
    assert lost.blocks[BlockClass.SYNCED_LOST] == 1
    # The lost one may be another client's.
    other = RECORDS.model_copy(update={"number": 1, "client": "client2", "file": 1})
    done_there = done("o_append", 0, at_ns=5)._replace(worker=1)
    found = {
        RECORDS.key: {"records": [ABSENT, 1], "names": ["a"]},
        other.key: {"records": [ABSENT, MISPLACED], "names": ["a"]},
    }
    both = balance_of([RECORDS, other], History([done_there, done("o_append", 0)]), found).result()
    assert (both.lost, both.invented) == ({"o_append": 1}, [])


def test_zeros_between_records_of_which_none_is_missing_are_found() -> None:
    assert records([1, ABSENT, 2, 3], 3).invented


def test_kinds_of_which_nothing_was_done_are_counted_too() -> None:
    worker = WorkerSpec(number=0, client="c", kind="metadata", path="m", file=0, rounds=(("mkdir", "rmdir"),))
    assert balance_of([worker], History([]), {"m": {}}).result().acknowledged == {"mkdir": 0, "rmdir": 0}


def test_a_close_that_was_under_way_when_the_server_restarted_is_not_judged() -> None:
    worker = WorkerSpec(number=0, client="c", kind="close", path="p", file=0, blocks=1, files=True, span=2, step=2)
    close = Operation(0, 0, "close", 0, 1, 10, 30, Ended.OK, 0)
    found = {"p": {"blocks": [ABSENT, 1], "names": ["f0"]}}
    for restarts_ns, lost in (([20], 0), ([5], 1), ([31], 1), ([], 1), ([5, 20], 0)):
        evidence = balance_of([worker], History([close]), found, restarts_ns=restarts_ns).result()
        assert (evidence.lost_total, evidence.across_restart) == (lost, 1 - lost)
    fsync = balance_of([worker], History([close._replace(kind="fsync")]), found, restarts_ns=[20]).result()
    assert fsync.lost_total == 1
    # One page goes out as a FILE_SYNC WRITE, which is sent again.
    page = worker.model_copy(update={"span": 1})
    alone = {"p": {"blocks": [ABSENT], "names": ["f0"]}}
    assert balance_of([page], History([close]), alone, restarts_ns=[20]).result().lost_total == 1


WORKERS = (BLOCKS, NAMES, BLOCKS.model_copy(update={"number": 2, "client": "client2", "path": "g", "file": 2}))
HISTORY = History(
    [
        one._replace(worker=worker, sequence=at, issued_ns=at, ended_ns=at + 3)
        for at, (worker, one) in enumerate(
            [
                (worker, done("fsync", place, generation))
                for generation in (1, 2)
                for place in range(4)
                for worker in (0, 2)
            ]
            + [(1, done(kind, place, step)) for place in (0, 1) for step, kind in enumerate(METADATA[:9], start=1)]
        )
    ]
)
BLOCK_STATES = st.lists(st.integers(UNREADABLE, 2), min_size=4, max_size=4)
TREES_FOUND = st.sampled_from([{}, {"d0": DIRECTORY}, {"d0": DIRECTORY, "d0/a": FILE, "x": FILE}])
STATES = st.tuples(
    BLOCK_STATES, TREES_FOUND, BLOCK_STATES, st.integers(0, 40), st.sampled_from(["none", "all", "some"])
)


@given(st.lists(STATES, min_size=1, max_size=5), st.lists(st.integers(0, 4), max_size=6))
def test_kept_parts_change_no_balance(states: list[Any], order: list[int]) -> None:
    """States that follow each other in any order, and repeat, are judged as each by itself."""
    kept = KeptParts()
    for number in [*range(len(states)), *(one % len(states) for one in order)]:
        first, tree, second, at_ns, torn = states[number]
        found = {
            BLOCKS.key: {"names": ["f"], "blocks": first},
            NAMES.key: dict(tree),
            WORKERS[2].key: {"names": ["g"], "blocks": second},
        }
        some: dict[str, Torn] = {"none": False, "all": True, "some": {(2, 0), (2, BLOCK)}}
        bounds: Bounds = {
            "before_ns": at_ns,
            "seen_ns": at_ns,
            "torn": some[torn],
            "disconnected_clients": ("client2",) if at_ns > 30 else (),
        }
        alone, beside = (balance_of(WORKERS, HISTORY, found, kept=one, **bounds) for one in (None, kept))
        assert beside.result() == alone.result()
        assert (beside.losses, beside.corrupted) == (alone.losses, alone.corrupted)


@pytest.mark.parametrize(
    ("state", "bounds"),
    [
        (torn(1, 2), {"torn": True}),
        (torn(1, 2), {"torn": {(0, 0)}}),
        (9, {"disconnected_clients": ("client1",)}),
    ],
)
def test_a_part_is_not_kept_for_other_bounds(state: int, bounds: Any) -> None:
    """The first comparison finds no damage, because its bounds allow the state; the second one must find it."""
    history = History([done("fsync", 0), done("fsync", 0, 2, ended=Ended.UNKNOWN)])
    found, kept = {BLOCKS.key: {"names": ["f"], "blocks": [state, 0, 0, 0]}}, KeptParts()
    assert balance_of([BLOCKS], history, found, kept=kept, **bounds).is_clean
    assert not balance_of([BLOCKS], history, found, kept=kept).is_clean
