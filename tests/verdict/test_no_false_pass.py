"""Cases in which something is wrong and an easy excuse is at hand."""

from dataclasses import replace
from errno import EEXIST, EIO, ENOENT, ENOSPC
from typing import Any

import pytest

from raidproof.fault import FaultEffects
from raidproof.guest.ledger_format import GARBAGE, METADATA, MISPLACED, OLD, OTHER_CONTENT, UNREADABLE, torn
from raidproof.record.outcome import Outcome, Verdict, worst
from raidproof.record.run import ScanResult
from raidproof.verdict.checks.blocks import judge_blocks
from raidproof.verdict.checks.errors import LAST_CLOSE, RECONNECT_NS, judge_errors
from raidproof.verdict.checks.invented import judge_nothing_invented
from raidproof.verdict.checks.promises import judge_promises
from raidproof.verdict.conditions import Conditions
from raidproof.verdict.ledger import balance_of
from raidproof.verdict.window import Window
from raidproof.workload.history import LEAST_DELAY_NS, LONGEST_DELAY_NS, Ended, History, Operation, WorkerSpec

BLOCKS = WorkerSpec(number=0, client="c1", kind="fsync", path="p", file=0, blocks=2)
NAMES = WorkerSpec(number=0, client="c1", kind="metadata", path="m", file=0)
CUT, RESUMED = 100, 200
SYNC, ASYNC = Conditions(export_sync=True), Conditions(export_sync=False)
DIRECTORY = [0o40755, 0, 2, None]


def cut(conditions: Conditions, *errors: int, **of_window: Any) -> Conditions:
    """Return conditions with a fault at `CUT` that lost the server's memory, and permits these errors."""
    effects = FaultEffects(server_memory_lost=True, errors=frozenset(errors))
    return replace(conditions, windows=(Window(effects, CUT, CUT, **of_window),))


def did(
    kind: str, place: int, generation: int, issued: int, ended: int | None, error: int = 0, sequence: int = 0
) -> Operation:
    end = Ended.UNKNOWN if ended is None else Ended.FAILED if error else Ended.OK
    return Operation(0, sequence, kind, place, generation, issued, ended, end, error)


def changes(count: int, *, from_ns: int = 1) -> list[Operation]:
    return [did(kind, 0, 1, from_ns + 2 * at, from_ns + 2 * at + 1) for at, kind in enumerate(METADATA[:count])]


def blocks_found(*states: int) -> dict[str, dict[str, object]]:
    return {"p@0": {"blocks": list(states), "names": ["p"]}}


def judged(evidence: ScanResult, conditions: Conditions) -> Outcome:
    told = [one for one in judge_promises(evidence, conditions, "here") if one.outcome is not Outcome.INCONCLUSIVE]
    rest: list[Verdict] = [
        judge_blocks(evidence, conditions, "here"),
        judge_nothing_invented(evidence, conditions, "here"),
    ]
    return worst(one.outcome for one in told + rest)


WRITTEN = [did("fsync", 0, 1, 10, 20), did("fsync", 1, 1, 30, 40)]


def test_work_begun_after_recovery_does_not_excuse_what_was_seen_before_it() -> None:
    later = [did("fsync", 0, 2, 210, 220), did("fsync", 1, 2, 230, 240)]
    found = blocks_found(GARBAGE, GARBAGE)
    evidence = balance_of([BLOCKS], History(WRITTEN + later), found, before_ns=CUT, seen_ns=RESUMED).result()
    assert evidence.lost == {"fsync": 2}


@pytest.mark.parametrize("failed", [True, False])
def test_a_remove_excuses_a_missing_second_name_only_if_it_may_have_been_done(failed: bool) -> None:
    remove = did("remove", 0, 1, 50, 60, error=EIO if failed else 0)
    found = {"m": {"d0": DIRECTORY, "d0/a": [0o100640, 100, 1, "+"]}}
    evidence = balance_of([NAMES], History([*changes(5), remove]), found, before_ns=CUT).result()
    assert evidence.lost.get("link", 0) == failed


@pytest.mark.parametrize("conditions", [SYNC, ASYNC])
@pytest.mark.parametrize("state", [99, MISPLACED, UNREADABLE, GARBAGE])
def test_no_export_excuses_rubbish(conditions: Conditions, state: int) -> None:
    assert (
        judged(balance_of([BLOCKS], History(WRITTEN), blocks_found(1, 1), before_ns=CUT).result(), conditions)
        is Outcome.PASS
    )
    begun = History([WRITTEN[0], did("fsync", 1, 1, 30, None)])
    assert (
        judged(balance_of([BLOCKS], begun, blocks_found(1, state), before_ns=CUT).result(), conditions) is Outcome.FAIL
    )


def test_the_right_size_with_the_wrong_content_is_lost() -> None:
    found = {"m": {"d0": DIRECTORY, "d0/a": [0o100600, 100, 1, OTHER_CONTENT]}}
    assert balance_of([NAMES], History(changes(3)), found).result().lost == {"append": 1}


def test_a_name_that_cannot_be_looked_at_is_not_there() -> None:
    found = {"m": {"d0": [0, 0, 0, "EUCLEAN"], "d0/a": [0, 0, 0, "EUCLEAN"]}}
    assert balance_of([NAMES], History(changes(2)), found).result().lost == {"mkdir": 1, "create": 1}


def test_a_removed_name_that_cannot_be_looked_at_is_still_there() -> None:
    found = {
        "m": {"d0": DIRECTORY, "d0/c": [0o100640, 10, 1, "+"], "d0/s": [0o120777, 1, 1, "a"], "d0/b": [0, 0, 0, "EIO"]}
    }
    assert "remove" in balance_of([NAMES], History(changes(9)), found).result().lost


def test_a_client_that_lost_its_power_tears_nothing_on_the_server() -> None:
    evidence = balance_of(
        [BLOCKS], History(WRITTEN), blocks_found(GARBAGE, GARBAGE), disconnected_clients=["c1"]
    ).result()
    assert evidence.lost == {"fsync": 2}


def test_async_excuses_nothing_that_was_begun_after_the_recovery() -> None:
    history = History([WRITTEN[0], did("fsync", 1, 1, 210, 220)])
    evidence = balance_of([BLOCKS], history, blocks_found(1, 0), resumed_ns=RESUMED).result()
    assert judged(evidence, ASYNC) is Outcome.FAIL


def test_async_excuses_nothing_where_the_server_kept_its_memory() -> None:
    evidence = balance_of([BLOCKS], History(WRITTEN), blocks_found(1, 0), before_ns=CUT).result()
    assert judged(evidence, ASYNC) is Outcome.PASS
    assert judged(evidence, Conditions(export_sync=False, memory_lost=False)) is Outcome.FAIL


def test_an_error_told_to_a_client_breaks_a_promise() -> None:
    history = History([*WRITTEN, did("fsync", 0, 2, 210, 220, error=EIO)])
    assert judge_errors(History(WRITTEN), cut(SYNC)).outcome is Outcome.PASS
    assert judge_errors(history, cut(SYNC)).outcome is Outcome.FAIL
    assert judge_errors(history, cut(ASYNC)).outcome is Outcome.PASS


def test_only_an_error_that_the_fault_means_is_allowed_and_only_from_its_beginning_on() -> None:
    def ended(error: int, at_ns: int, **of_window: Any) -> Outcome:
        history = History([*WRITTEN, did("fsync", 0, 2, at_ns - 1, at_ns, error=error)])
        window = Window(FaultEffects(errors=frozenset({ENOSPC})), **of_window)
        return judge_errors(history, replace(SYNC, windows=(window,))).outcome

    assert ended(ENOSPC, CUT + 1, begun_ns=CUT) is Outcome.PASS
    assert ended(ENOSPC, CUT - 1, begun_ns=CUT) is Outcome.FAIL
    assert ended(EIO, CUT + 1, begun_ns=CUT) is Outcome.FAIL
    assert ended(ENOSPC, CUT + 1, begun_ns=None) is Outcome.FAIL
    assert ended(ENOSPC, CUT - 1) is Outcome.PASS
    assert ended(EIO, CUT - 1) is Outcome.FAIL
    healed_ns = CUT + 5
    assert ended(ENOSPC, healed_ns, begun_ns=CUT, healed_ns=healed_ns) is Outcome.PASS
    assert ended(ENOSPC, healed_ns + LONGEST_DELAY_NS + 2, begun_ns=CUT, healed_ns=healed_ns) is Outcome.FAIL


def test_an_error_that_was_allowed_excuses_no_loss() -> None:
    allowed = replace(SYNC, windows=(Window(FaultEffects(errors=frozenset({ENOSPC}))),))
    evidence = balance_of(
        [BLOCKS], History(WRITTEN), blocks_found(1, 0), before_ns=CUT, indeterminate_errnos={ENOSPC}
    ).result()
    assert judged(evidence, allowed) is Outcome.FAIL


def test_who_gave_up_waiting_may_have_made_something_and_nobody_else() -> None:
    gave_up = did("mkdir", 0, 1, 1, 2, error=EIO)
    found = {"m": {"d0": DIRECTORY}}
    assert balance_of([NAMES], History([gave_up]), found).result().invented
    assert balance_of([NAMES], History([gave_up]), found, indeterminate_errnos={ENOSPC}).result().invented
    assert not balance_of([NAMES], History([gave_up]), found, indeterminate_errnos={EIO}).result().invented


def test_a_request_that_was_repeated_after_the_fault_may_meet_its_own_first_try() -> None:
    twice = did("mkdir", 0, 1, CUT - 1, RESUMED, error=EEXIST)

    def outcome(begun_ns: int, served_until_ns: int | None = None) -> Outcome:
        one = twice._replace(begun_ns=begun_ns + LEAST_DELAY_NS)
        return judge_errors(History([one]), cut(SYNC, served_until_ns=served_until_ns)).outcome

    assert outcome(CUT - 1) is Outcome.PASS
    assert outcome(CUT) is Outcome.FAIL
    # A kernel that panics goes on for a moment: until the server is off, what began may have been done.
    assert outcome(CUT + 1, CUT + 5) is Outcome.PASS
    assert outcome(CUT + 5, CUT + 5) is Outcome.FAIL


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("mkdir", ENOENT),
        ("create", ENOENT),
        ("rename", EEXIST),
        ("setattr", ENOENT),
        ("append", EEXIST),
        ("truncate", ENOENT),
        ("allocate", EEXIST),
        ("copy", EEXIST),
    ],
)
def test_an_error_that_no_repeated_request_gets_is_no_excuse(kind: str, error: int) -> None:
    history = History([did(kind, 0, 1, CUT - 1, RESUMED, error=error)])
    assert judge_errors(history, cut(SYNC, served_until_ns=RESUMED)).outcome is Outcome.FAIL


def test_a_soft_mount_gets_no_error_once_its_client_is_connected_again() -> None:
    soft = cut(SYNC, EIO, served_until_ns=RESUMED, served_ns=RESUMED)

    def outcome(begun_ns: int, *others: Operation) -> Outcome:
        failed = did("fsync", 0, 9, begun_ns, begun_ns + 1, error=EIO, sequence=9)
        failed = failed._replace(begun_ns=begun_ns + LEAST_DELAY_NS)
        return judge_errors(History([*others, failed]), soft).outcome

    assert outcome(RESUMED + 1) is Outcome.PASS
    assert outcome(RESUMED + RECONNECT_NS) is Outcome.FAIL
    before = did("fsync", 0, 1, CUT - 9, RESUMED + 5)
    served = did("fsync", 0, 2, RESUMED + 1, RESUMED + 5)._replace(begun_ns=RESUMED + 1 + LEAST_DELAY_NS)
    assert outcome(RESUMED + 6, before) is Outcome.PASS
    assert outcome(RESUMED + 6, served) is Outcome.FAIL
    assert outcome(RESUMED + 4, served) is Outcome.PASS


def test_the_last_close_of_a_file_may_report_an_error_of_the_outage_late() -> None:
    soft = cut(SYNC, EIO, served_until_ns=RESUMED, served_ns=RESUMED)
    late = RESUMED + RECONNECT_NS
    last = did(LAST_CLOSE, 0, 0, late, late + 1, error=EIO)._replace(begun_ns=late + LEAST_DELAY_NS)
    met = did("pages", 0, 1, CUT + 1, RESUMED - 1, error=EIO)

    def outcome(*operations: Operation, step: Operation = last) -> Outcome:
        return judge_errors(History(operations, steps=[step]), soft).outcome

    assert outcome(met) is Outcome.PASS
    assert outcome(met, step=last._replace(kind="close")) is Outcome.PASS
    assert outcome() is Outcome.FAIL
    assert outcome(met._replace(worker=1)) is Outcome.FAIL
    assert outcome(met, step=last._replace(kind="unlock")) is Outcome.FAIL
    # Each close of a file reports it, until an fsync has done so.
    first, second = (last._replace(kind="close", sequence=number) for number in (1, 2))
    assert outcome(met, first, step=second) is Outcome.PASS


@pytest.mark.parametrize("kind", ["pages", "fsync", "append"])
def test_one_fsync_after_the_outage_may_report_each_error_of_the_close_before(kind: str) -> None:
    soft = cut(SYNC, EIO, served_until_ns=RESUMED, served_ns=RESUMED)
    late = RESUMED + RECONNECT_NS
    met = did(kind, 0, 1, CUT + 1, RESUMED - 1, error=EIO)
    first, second = (
        did(kind, 0, number, late + number, late + number + 1, error=EIO)._replace(
            begun_ns=late + number + LEAST_DELAY_NS
        )
        for number in (2, 3)
    )

    def outcome(*operations: Operation) -> Outcome:
        return judge_errors(History(operations), soft).outcome

    assert outcome(met, first) is Outcome.PASS
    assert outcome(first) is Outcome.FAIL
    assert outcome(met._replace(worker=1), first) is Outcome.FAIL
    assert outcome(met, first._replace(error=ENOSPC)) is Outcome.FAIL
    assert outcome(met, first._replace(kind="mkdir")) is Outcome.FAIL
    assert outcome(met, first, second) is Outcome.FAIL
    assert outcome(met, met._replace(sequence=9), first, second) is Outcome.PASS


def test_random_content_is_excused_by_no_torn_overwrite_and_by_no_async_export() -> None:
    during = [*WRITTEN, did("fsync", 0, 2, CUT - 1, None)]
    for states, kinds in (((GARBAGE, 1), Outcome.FAIL), ((torn(1, 2), 1), Outcome.PASS)):
        evidence = balance_of(
            [BLOCKS], History(during), blocks_found(*states), before_ns=CUT, seen_ns=CUT, torn=True
        ).result()
        assert judged(evidence, replace(SYNC, torn=True)) is kinds
    every = balance_of([BLOCKS], History(WRITTEN), blocks_found(GARBAGE, GARBAGE), before_ns=CUT, torn=True).result()
    assert judged(every, replace(SYNC, export_sync=False, torn=True)) is Outcome.FAIL


def test_old_data_of_the_disk_in_a_block_that_nobody_acknowledged_is_a_leak() -> None:
    half = [WRITTEN[0], did("fsync", 1, 1, CUT - 1, None)]
    evidence = balance_of([BLOCKS], History(half), blocks_found(1, OLD), before_ns=CUT, seen_ns=CUT).result()
    assert judged(evidence, SYNC) is Outcome.FAIL
    assert judged(evidence, replace(SYNC, export_sync=False)) is Outcome.FAIL
    assert judged(evidence, replace(SYNC, shows_old_data=True)) is Outcome.PASS


def test_close_under_a_delegation_is_reported_apart() -> None:
    evidence = ScanResult(acknowledged={"close": 5, "fsync": 5}, lost={"close": 1, "fsync": 1})
    lent = Conditions(export_sync=True, delegations=True)
    ends = {one.checker: one.outcome for one in judge_promises(evidence, lent, "here")}
    assert ends["write + close, seen here"] is Outcome.INCONCLUSIVE
    assert ends["write + fsync, seen here"] is Outcome.FAIL
    kept = {one.checker: one.outcome for one in judge_promises(evidence, SYNC, "here")}
    assert kept["write + close, seen here"] is Outcome.FAIL


def test_an_error_before_the_fault_is_excused_by_no_export() -> None:
    history = History([did("mkdir", 0, 1, 10, 20, error=EIO)])
    begun = cut(ASYNC)
    verdict = judge_errors(history, begun)
    assert verdict.outcome is Outcome.FAIL
    assert verdict.reason == "errors that clients got before the fault: 1, the first is EIO for mkdir"
    assert str(verdict.blame).startswith("the stack")
    later = History([did("mkdir", 0, 1, 10, CUT + 1, error=EIO)])
    assert judge_errors(later, begun).outcome is Outcome.PASS
    assert judge_errors(History([*history.operations, *later.operations]), begun).outcome is Outcome.FAIL


def test_a_session_does_nothing_twice() -> None:
    history = History([did("mkdir", 0, 1, 90, 210, error=EEXIST)])
    resent = cut(SYNC, served_until_ns=RESUMED)
    assert judge_errors(history, resent).outcome is Outcome.PASS
    assert judge_errors(history, replace(resent, exactly_once=True)).outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("kind", "lease_lost", "error", "outcome"),
    [
        ("o_append", True, EIO, Outcome.PASS),
        ("o_append", True, ENOSPC, Outcome.FAIL),
        ("o_append", False, EIO, Outcome.FAIL),
        ("fsync", True, EIO, Outcome.FAIL),
    ],
)
def test_only_who_lost_a_lock_with_its_lease_may_fail_for_it(
    kind: str, lease_lost: bool, error: int, outcome: Outcome
) -> None:
    conditions = replace(SYNC, windows=(Window(FaultEffects(lease_lost=lease_lost), CUT),))
    late = did(kind, 0, 1, CUT + 1, CUT + 2, error=error)
    assert judge_errors(History([late]), conditions).outcome is outcome
    early = late._replace(issued_ns=CUT - 9, ended_ns=CUT - 8)
    assert judge_errors(History([early]), conditions).outcome is Outcome.FAIL
