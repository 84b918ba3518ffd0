"""What the check command of an application prints, and what the harness reads in it."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.guest import application as guest

NUMBERS = st.integers(0, 20)


@given(st.lists(st.one_of(NUMBERS.map(lambda n: f"present {n}\n"), NUMBERS.map(lambda n: f"wrong {n} half\n"))))
def test_each_operation_is_counted_by_its_lines(lines: list[str]) -> None:
    found = guest.read_check("".join(lines))
    times = Counter(int(line.split()[1]) for line in lines)
    assert {*found["ids"]} | {number for number, _ in found["wrong"]} == {*times}
    assert dict(found["repeated"]) == {number: count for number, count in times.items() if count > 1}


@pytest.mark.parametrize(
    ("output", "repeated"),
    [
        ("present 1\npresent 2\n", []),
        ("present 1\npresent 2\npresent 1\npresent 1\n", [[1, 3]]),
        ("present 5\nwrong 5 torn\n", [[5, 2]]),
        ("wrong 5 torn\nwrong 5 half\n", [[5, 2]]),
    ],
)
def test_an_operation_that_is_printed_again_is_repeated(output: str, repeated: list[list[int]]) -> None:
    assert guest.read_check(output)["repeated"] == repeated
