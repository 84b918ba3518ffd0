"""Each answer of a reproducer, and the properties that it stores."""

from typing import cast

import pytest

from findings.answer import conclude
from raidproof.core.errors import Inconclusive, ProductError
from raidproof.machine.machine import Machine
from raidproof.record.finding import ANSWER, KERNEL, MEASURED


class FakeServer:
    def succeed(self, argv: list[str]) -> str:
        assert argv == ["uname", "--kernel-release"]
        return "6.12.101\n"


@pytest.mark.parametrize(
    ("wrong", "seen", "raised", "answer"),
    [(1, 3, ProductError, "affected"), (0, 3, None, "not affected"), (0, 2, Inconclusive, "undecided")],
)
def test_an_answer_is_stored_and_ends_the_reproducer(
    wrong: int, seen: int, raised: type[Exception] | None, answer: str
) -> None:
    stored: dict[str, object] = {}
    server = cast(Machine, FakeServer())
    said = "so many of so many"
    if raised is None:
        conclude(stored.__setitem__, server, said, wrong=wrong, seen=seen, least=3)
    else:
        with pytest.raises(raised, match=said):
            conclude(stored.__setitem__, server, said, wrong=wrong, seen=seen, least=3)
    assert stored == {KERNEL: "6.12.101", MEASURED: said, ANSWER: answer}
