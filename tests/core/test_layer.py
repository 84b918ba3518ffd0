from collections.abc import Sequence
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.command import DEFAULT_DEADLINE_S, Completed
from raidproof.core.errors import NotEffective, RequestError, RigError
from raidproof.core.layer import (
    Machine,
    Spec,
    differences,
    found_in,
    one_of,
    power_of_two,
    read_files,
    require_effective,
    try_all,
)
from tests.guest_files import FilesByCommands


class Tool(Spec):
    colour: Literal["red", "green"] | None = None
    number: int = 1
    parts: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"color": "red"}, "Tool has no field 'color'; did you mean 'colour'"),
        ({"colour": "gren"}, "did you mean 'green'"),
        ({"number": "many"}, "number: "),
        ({"parts": "one"}, r'parts must be a list of words, for example \["a", "b"\]'),
    ],
)
def test_a_request_is_refused_with_a_hint(asked: dict[str, object], reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        Tool.model_validate(asked)
    with pytest.raises(RequestError, match=reason):
        Tool(**asked)


def test_a_request_is_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Tool().number = 2  # type: ignore[misc]


def test_one_of_names_the_nearest() -> None:
    assert one_of("level", "5", ["5", "6"]) == "5"
    with pytest.raises(RequestError, match="did you mean 'left-symmetric'"):
        one_of("layout", "left-symetric", ["left-symmetric", "right-symmetric"])


def test_what_was_not_asked_may_be_anything() -> None:
    assert differences({"wsize": None}, {"wsize": 4096}) == ()
    require_effective("mount", {"wsize": None, "sync": False}, {"wsize": 4096, "sync": False})


def test_each_field_that_differs_is_named() -> None:
    different = "wsize: requested 8192, effective 4096; sync: requested True, effective None"
    with pytest.raises(NotEffective, match=f"mount.*{different}"):
        require_effective("mount", {"wsize": 8192, "sync": True}, {"wsize": 4096})


@given(st.dictionaries(st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 2)), min_size=1))
def test_nothing_differs_from_itself(asked: dict[str, int | None]) -> None:
    assert differences(asked, asked) == ()


@given(st.integers(0, 2**20))
def test_power_of_two(number: int) -> None:
    assert power_of_two(number) == (number.bit_count() == 1)


def test_every_step_is_tried() -> None:
    done: list[int] = []

    def fail() -> None:
        raise RigError("no")

    with pytest.raises(ExceptionGroup, match="offline") as caught:
        try_all([fail, lambda: done.append(1), fail], "not offline")
    assert done == [1]
    assert len(caught.value.exceptions) == 2


class Reader(FilesByCommands):
    name = "server"
    address = "10.77.0.10"

    def __init__(self, printed: str) -> None:
        self.printed = printed

    def run(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = 0) -> Completed:
        return Completed(tuple(argv), 0, self.printed, "", self.name)

    def succeed(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = 0) -> str:
        return self.run(argv).stdout


def test_files_that_are_there_are_read() -> None:
    assert read_files(Reader("/a:1\n/b:x:y\n/b:z\n"), ["/a", "/b", "/c"]) == {"/a": "1", "/b": "x:y\nz"}


def test_files_none_of_which_is_there_are_the_rigs_fault() -> None:
    with pytest.raises(RigError, match="server: none of these files can be read: /a /b"):
        read_files(Reader(""), ["/a", "/b"])


def test_what_is_missing_is_named() -> None:
    assert found_in(r"^x=(\d+)$", "a\nx=12\n", "x") == "12"
    with pytest.raises(RigError, match="the x not found in empty output"):
        found_in(r"^x=(\d+)$", "", "the x")


class FakeMachine(FilesByCommands):
    """A fake machine that answers commands from a table and records them; other commands end with status 1."""

    def __init__(self, answers: dict[str, str] | None = None) -> None:
        self.answers = answers or {}
        self.ran: list[list[str]] = []
        self.name = "server"
        self.address = "10.77.0.10"

    def run(
        self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> Completed:
        self.ran.append(list(argv))
        answer = self.answers.get(argv[0])
        return Completed(tuple(argv), 0 if answer is not None else 1, answer or "", "", self.name)

    def succeed(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S) -> str:
        completed = self.run(argv, stdin=stdin, deadline_s=deadline_s)
        if not completed.ok:
            raise RigError(f"{argv[0]} failed")
        return completed.stdout


def test_a_machine_needs_no_more() -> None:
    machine: Machine = FakeMachine({"true": ""})
    assert machine.succeed(["true"]) == ""
