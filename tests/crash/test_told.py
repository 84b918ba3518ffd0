from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from harness.crash.told import smallest_history
from harness.workload.agent import ABSENT, GARBAGE
from harness.workload.history import Ended, History, Operation, WorkerSpec

BLOCKS = WorkerSpec(number=0, client="client1", kind="fsync", path="f", file=0, blocks=8)
NAMES = WorkerSpec(number=1, client="client2", kind="metadata", path="m", file=1, blocks=4)


def wrote(place: int, generation: int, ended_ns: int | None, sequence: int | None = None) -> Operation:
    number = generation if sequence is None else sequence
    ended = Ended.UNKNOWN if ended_ns is None else Ended.OK
    return Operation(0, number, "fsync", place, generation, (ended_ns or 10**9) - 5, ended_ns, ended, 0)


def changed(kind: str, sequence: int, ended_ns: int) -> Operation:
    return Operation(1, sequence, kind, 0, 0, ended_ns - 5, ended_ns, Ended.OK, 0)


def found(*states: int, names: dict[str, Any] | None = None) -> dict[str, Any]:
    blocks = [*states, *[ABSENT] * (8 - len(states))]
    return {BLOCKS.key: {"names": ["f"], "blocks": blocks}, NAMES.key: names or {}}


def test_names_the_first_acknowledgement_that_does_not_hold() -> None:
    history = History([wrote(0, 1, 100), wrote(1, 2, 200), wrote(0, 3, 300), wrote(1, 4, 400)])
    (told,) = smallest_history((BLOCKS, NAMES), history, found(1, 2), 1000)
    assert (told.operation.generation, told.operation.place, told.worker.client) == (3, 0, "client1")
    assert told.operation.ended_ns == 300
    assert told.at_s(100) == 200 / 1e9
    assert str(told) == "client1: fsync of 0 in f, generation 3"


def test_words_that_came_after_the_cut_bind_nobody() -> None:
    history = History([wrote(0, 1, 100), wrote(0, 2, 200)])
    assert smallest_history((BLOCKS, NAMES), history, found(1), 150) == ()
    assert len(smallest_history((BLOCKS, NAMES), history, found(1), 250)) == 1


def test_what_is_there_is_no_loss() -> None:
    history = History([wrote(0, 1, 100), wrote(1, 2, None)])
    assert smallest_history((BLOCKS, NAMES), history, found(1), 1000) == ()


def test_garbage_that_nobody_was_told_about_needs_no_acknowledgement() -> None:
    assert smallest_history((BLOCKS, NAMES), History([wrote(0, 1, None)]), found(GARBAGE), 1000) == ()


def test_what_was_begun_still_explains_what_is_there() -> None:
    """Torn while it was being written again: no loss of the generation before it, nor with fewer acknowledgements."""
    history = History([wrote(0, 1, 100), wrote(0, 2, None, 2), wrote(1, 3, 300)])
    (told,) = smallest_history((BLOCKS, NAMES), history, found(GARBAGE), 1000, torn=True)
    assert told.operation.place == 1


def test_a_later_change_covers_an_earlier_one() -> None:
    whole = {"d0": [0o40755, 0, 0, None]}
    history = History([changed("mkdir", 0, 100), changed("create", 1, 200), changed("remove", 2, 300)])
    (told,) = smallest_history((BLOCKS, NAMES), history, found(names=whole), 1000)
    assert (told.operation.kind, told.worker.client) == ("create", "client2")


@given(st.lists(st.integers(0, 7), min_size=1, max_size=60), st.lists(st.integers(0, 60), min_size=8, max_size=8))
def test_one_acknowledgement_shows_any_loss_of_blocks(places: list[int], states: list[int]) -> None:
    operations = [wrote(place, number, 100 * number) for number, place in enumerate(places, 1)]
    lost = [one for one in operations if states[one.place] < one.generation]
    told = smallest_history((BLOCKS, NAMES), History(operations), found(*states), 10**6)
    assert [one.operation for one in told] == lost[: len(told)]
    assert len(told) == bool(lost)
