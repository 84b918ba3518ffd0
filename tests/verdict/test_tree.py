"""What is left of a directory's changes: any state that a crash can leave is right, and no other is."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.errors import RigError
from raidproof.guest.ledger_format import FRAGMENTS, LONG_NAME, MODE, OTHER_CONTENT, UNCUT, ZEROED, signed
from raidproof.verdict.tree import (
    BLOCK_FIELD,
    DIRECTORY,
    LOOSE,
    THERE,
    Content,
    Value,
    contradiction,
    course,
    directories,
    hold,
    scanned,
    shown,
)
from raidproof.workload.history import Ended, Operation
from raidproof.workload.ledger import ROUNDS

ALL = [steps for rounds in ROUNDS.values() for steps in rounds]
rounds = st.sampled_from(ALL)


def done(steps: tuple[str, ...], *, number: int = 3) -> list[Operation]:
    return [
        Operation(0, place, kind, number, place + 1, place, place, Ended.OK, 0) for place, kind in enumerate(steps)
    ]


def entries(content: Content) -> dict[str, list[Any]]:
    """Return what a scan says of a directory that holds that."""
    if not content.there:
        return {}
    found: dict[str, list[Any]] = {"": [0o40755, 0, 2, None]}
    for name, target in content.symlinks.items():
        found[name] = [0o120777, 1, 1, target]
    for name, kind in content.others.items():
        found[name] = [0o40755 if kind == DIRECTORY else 0o10600, 0, 1, None]
    for name, number in content.names.items():
        file = content.files[number]
        held = list(file.held) if isinstance(file.held, tuple) else file.held or "+"
        found[name] = [0o100000 | file.mode, file.size, content.links(number), held, *file[3:]]
    return found


@given(rounds, st.data())
def test_each_state_that_a_crash_can_leave_loses_nothing(steps: tuple[str, ...], data: st.DataObject) -> None:
    operations = done(steps)
    begun = data.draw(st.integers(0, len(steps)))
    least = data.draw(st.integers(0, begun))
    left = data.draw(st.integers(least, begun))
    content = course(steps, 3).contents[left]
    seen = hold(operations[:least], operations[:begun], entries(content))
    assert (seen.lost, seen.odd) == ((), ())


@given(rounds, st.data())
def test_each_change_that_an_older_state_lacks_is_lost_and_none_that_it_has(
    steps: tuple[str, ...], data: st.DataObject
) -> None:
    operations = done(steps)
    least = data.draw(st.integers(1, len(steps)))
    left = data.draw(st.integers(0, least - 1))
    ran = course(steps, 3)
    seen = hold(operations[:least], operations[:least], entries(ran.contents[left]))
    if entries(ran.contents[left]) == entries(ran.contents[least]):
        assert not seen.lost
        return
    assert seen.lost
    lost = {operation.sequence for operation, _ in seen.lost}
    if ran.contents[left].there:
        assert min(lost) >= left
    # What shows in the state that must be there shows in its absence too.
    visible = shown(steps, 3, least)
    assert any(visible[place] for place in range(left, least))


@pytest.mark.parametrize("steps", ALL, ids=" ".join)
@pytest.mark.parametrize("field", range(7))
def test_no_field_of_a_file_may_have_another_value(steps: tuple[str, ...], field: int) -> None:
    content = course(steps, 3).contents[-1]
    for name in content.names:
        found = entries(content)
        if field == 3 and not found[name][1]:
            continue  # an empty file has no content
        found[name][field] = [0o100000, 7, 9, OTHER_CONTENT, "other", "1:2", 7][field]
        seen = hold(done(steps), done(steps), found)
        assert seen.lost or seen.odd, (name, field)


@pytest.mark.parametrize("steps", ALL, ids=" ".join)
def test_no_subdirectory_or_pipe_may_be_missing_or_of_another_kind(steps: tuple[str, ...]) -> None:
    content = course(steps, 3).contents[-1]
    for name in content.others:
        for other in (None, [0o120777, 1, 1, "a"], [0o140755, 0, 1, None]):
            found = {key: one for key, one in (entries(content) | {name: other}).items() if one}
            assert hold(done(steps), done(steps), found).lost, (name, other)


def test_a_name_that_a_rename_of_its_directory_left_behind_is_found() -> None:
    steps = ("mkdir", "create", "subdirectory", "rename_into", "rename_directory")
    both = entries(course(steps, 3).contents[-1]) | {"x": [0o40755, 0, 2, None]}
    seen = hold(done(steps), done(steps), both)
    assert [(one.kind, instead) for one, instead in seen.lost] == [("rename_directory", "the name x still exists")]


@pytest.mark.parametrize("kind", ROUNDS)
def test_each_operation_of_a_kind_of_worker_shows_at_the_end_of_some_round(kind: str) -> None:
    rounds = [tuple(step for step in steps if step != "setxattr") for steps in ROUNDS[kind]]
    seen = {
        step for steps in rounds for step, is_shown in zip(steps, shown(steps, 3, len(steps)), strict=True) if is_shown
    }
    assert seen == {step for steps in rounds for step in steps}


def test_the_operation_that_set_a_field_is_the_one_that_is_lost() -> None:
    steps = ("mkdir", "create", "append", "setattr", "link", "symlink")
    whole = entries(course(steps, 3).contents[-1])

    def lost(**found: Any) -> dict[str, str]:
        seen = hold(done(steps), done(steps), {key: one for key, one in (whole | found).items() if one})
        return {operation.kind: instead for operation, instead in seen.lost}

    assert lost(s=None) == {"symlink": "the name s is missing"}
    one_name = [0o100000 | MODE, 100, 1, "+", None]
    assert lost(b=None, a=one_name) == {"link": "the name b is missing"}
    old_mode = [0o100600, 100, 2, "+", None]
    assert lost(a=old_mode, b=old_mode) == {"setattr": "mode is 0600, not 0640"}
    empty = [0o100000 | MODE, 0, 2, "+", None]
    assert set(lost(a=empty, b=empty)) == {"append"}
    rubbish = [0o100000 | MODE, 100, 2, OTHER_CONTENT, None]
    assert lost(a=rubbish, b=rubbish) == {"append": "content is garbage"}
    unreadable = [0, 0, 0, "EIO"]
    assert set(lost(s=unreadable)) == {"symlink"}
    links = [0o100000 | MODE, 100, 1, "+", None]
    assert set(lost(a=links, b=links)) == {"link"}


@pytest.mark.parametrize("acknowledged", [True, False])
def test_zeroes_where_truncate_is_to_cut_are_allowed_while_it_is_under_way(acknowledged: bool) -> None:
    steps = ("mkdir", "create", "append", "rename", "truncate")
    operations = done(steps)
    found = entries(course(steps, 3).contents[-2])
    found["c"][3] = UNCUT
    seen = hold(operations if acknowledged else operations[:-1], operations, found)
    assert [one.kind for one, _ in seen.lost] == (["truncate"] if acknowledged else [])
    assert [one.kind for one, _ in hold(operations[:-1], operations[:-1], found).lost] == ["append"]


@pytest.mark.parametrize("under_way", [True, False])
def test_a_rename_that_is_half_done_is_found(under_way: bool) -> None:
    steps = ("mkdir", "create", "append", "rename")
    operations = done(steps)
    found = entries(course(steps, 3).contents[-1])
    del found["c"]
    seen = hold(operations[:-1] if under_way else operations, operations, found)
    assert {one.kind for one, _ in seen.lost} >= {"create"}


def test_only_changes_of_several_steps_may_be_half_done() -> None:
    assert "rename" not in LOOSE
    steps = ("mkdir", "create", "append", "setattr")
    operations = done(steps)
    for kind, least, mode, size in (("append", 2, 0o600, 50), ("setattr", 3, 0o600 | 0o7, 100)):
        found = entries(course(steps[:least], 3).contents[-1])
        found["a"] = [0o100000 | mode, size, 1, "+" if size else "", None]
        seen = hold(operations[:least], operations[: least + 1], found)
        assert bool(seen.lost or seen.odd) == (kind not in LOOSE)


@pytest.mark.parametrize(
    ("steps", "name"),
    [
        (("mkdir", "create"), "a"),
        (("mkdir", "create", "unlink", "recreate"), "a"),
        (("mkdir", "long_name"), LONG_NAME),
    ],
)
def test_a_file_whose_creation_is_under_way_may_have_the_verifier_of_an_exclusive_create_as_its_time(
    steps: tuple[str, ...], name: str
) -> None:
    operations, verifier = done(steps), 579796991
    found = entries(course(steps, 3).contents[-1])
    found[name] = [0o100000, 0, 1, "+", None, None, verifier]
    seen = hold(operations[:-1], operations, found)
    assert not seen.lost
    assert not seen.odd
    assert hold(operations, operations, found).lost, "the client got a reply to its SETATTR"


@pytest.mark.parametrize("acknowledged", [True, False])
def test_a_file_that_its_owner_may_not_read_is_odd_unless_its_creation_is_under_way(acknowledged: bool) -> None:
    begun = done(("mkdir", "create"))
    found: dict[str, list[Any]] = {"": [0o040755, 4096, 2, None], "a": [0, 0, 0, "EACCES"]}
    seen = hold(begun[: 1 + acknowledged], begun, found)
    assert bool(seen.lost or seen.odd) is acknowledged
    found["a"][3] = "EIO"
    assert hold(begun[:1], begun, found).odd == ["a: kind is EIO"]


def test_what_nobody_made_is_odd_and_what_somebody_is_making_is_not() -> None:
    operations = done(("mkdir", "create"))
    found = entries(course(("mkdir", "create"), 3).contents[-1])
    assert hold(operations[:1], operations[:1], found).odd == ["a: a name that no client created"]
    assert not hold(operations[:1], operations, found).odd


@pytest.mark.parametrize(
    ("name", "entry", "says"),
    [
        ("", [0o40755, 0, 2, None, None, "7:8"], "directory: owner is 7:8"),
        ("", [0o40777, 0, 2, None], "directory: mode is 0777"),
        ("", [0o41755, 0, 2, None], "directory: mode is 1755"),
        ("s", [0o120777, 1, 1, "a", None, "7:8"], "s: owner is 7:8"),
        ("x", [0o40775, 0, 2, None], "x: mode is 0775"),
        ("p", [0o10600, 0, 1, None, None, "0:0"], "p: owner is 0:0"),
    ],
)
def test_an_owner_and_a_mode_that_no_client_gave_are_odd(name: str, entry: list[Any], says: str) -> None:
    steps = ("mkdir", "create", "subdirectory", "symlink", "mknod")
    operations, found = done(steps), entries(course(steps, 3).contents[-1])
    assert not any(hold(operations, operations, found))
    assert hold(operations, operations, {**found, name: entry}).odd == [says]


def test_a_file_of_another_owner_is_odd() -> None:
    operations = done(("mkdir", "create"))
    found = entries(course(("mkdir", "create"), 3).contents[-1])
    found["a"] = [*found["a"][:5], "7:8", None]
    assert hold(operations, operations, found).odd == ["a: owner is 7:8"]


def test_a_scan_is_taken_apart_by_directory() -> None:
    found: dict[str, list[Any]] = {"d0": [1, 2, 3, None], "d0/a": [4, 5, 6, "+"], "d1": [7, 8, 9, None]}
    assert directories(found) == {"d0": {"": [1, 2, 3, None], "a": [4, 5, 6, "+"]}, "d1": {"": [7, 8, 9, None]}}
    assert scanned({})["", "there"] is False


def test_what_shows_is_what_nothing_has_covered() -> None:
    steps = ("mkdir", "create", "append", "link", "remove", "rename", "truncate")
    visible = dict(zip(steps, shown(steps, 0, len(steps)), strict=True))
    assert not visible["link"]
    assert all(visible[kind] for kind in ("mkdir", "create", "rename", "truncate", "remove"))


def test_an_unknown_kind_is_an_error_of_the_rig() -> None:
    with pytest.raises(RigError, match="no rule"):
        course(("mkdir", "spin"), 0)


def test_an_operation_answers_for_the_blocks_that_it_changed_alone() -> None:
    steps = ("mkdir", "create", "pages", "allocate", "punch")
    found = entries(course(steps, 3).contents[-1])
    found["a"][3] = ["-"] * len(found["a"][3])
    assert {one.kind for one, _ in hold(done(steps), done(steps), found).lost} == {"pages"}
    found = entries(course(steps, 3).contents[-1])
    found["a"][3][1] = "1.4"
    assert {one.kind: said for one, said in hold(done(steps), done(steps), found).lost} == {
        "punch": "a block of the file is other blocks"
    }
    found["a"][3][1] = "old"
    lost = {one.kind: said for one, said in hold(done(steps), done(steps), found).lost}
    assert lost["punch"] == "a block of the file is old data of the disk"


def test_each_extent_of_a_file_of_many_extents_counts() -> None:
    steps = ("mkdir", "create", "fragments", "punch", "zero_range")
    found = entries(course(steps, 3).contents[-1])
    blocks = found["a"][3]
    assert sum(one != "-" for one in blocks) == len(FRAGMENTS) - 2
    assert not hold(done(steps), done(steps), found).lost
    for place, kind in ((FRAGMENTS[-1], "fragments"), (ZEROED, "zero_range")):
        was, blocks[place] = blocks[place], "-" if blocks[place] != "-" else signed(place, 4)
        assert {one.kind for one, _ in hold(done(steps), done(steps), found).lost} == {kind}
        blocks[place] = was
    # A hole between two extents that has data that no operation wrote there.
    blocks[FRAGMENTS[-1] - 1] = "old"
    seen = hold(done(steps), done(steps), found)
    assert seen.lost or seen.odd


@pytest.mark.parametrize(
    ("key", "values", "wanted", "said"),
    [
        (("", THERE), {True}, None, "the directory still exists"),
        (("name", "a"), {"file"}, None, "the name a still exists"),
        (("name", "a"), {None}, "file", "the name a is missing"),
        (("name", "a"), {"symlink"}, "file", "the name a is symlink"),
        (("name", "a"), {"symlink", None}, "file", "the name a is missing and symlink"),
        (("f", THERE), {True}, None, "the file still exists"),
        (("f", THERE), {None}, True, "the file is missing under all of its names"),
        (("f", "size"), {None}, 10, "the file is missing under all of its names"),
        (("f", "mode"), {0o600}, 0o644, "mode is 0600, not 0644"),
        (("f", "size"), {0}, 10, "size is 0, not 10"),
        (("f", "size"), {0, None}, 10, "size is 0 and missing, not 10"),
        (("f", "held"), {OTHER_CONTENT}, "+", "content is garbage"),
        (("f", f"{BLOCK_FIELD}1"), {"-"}, "x", "a block of the file is zero"),
        (("f", f"{BLOCK_FIELD}1"), {None}, "x", "a block of the file is missing"),
        (("f", f"{BLOCK_FIELD}1"), {"old"}, "x", "a block of the file is old data of the disk"),
    ],
)
def test_what_contradicts_a_change_is_told_in_words(
    key: tuple[str, str], values: set[Value], wanted: Value, said: str
) -> None:
    assert contradiction(key, values, wanted) == said
