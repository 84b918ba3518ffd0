import pytest
from pydantic import ValidationError

from raidproof.existing.fact import Fact, LeftOut, default, read


def test_a_fact_has_a_source_or_a_reason() -> None:
    assert str(read(5, "exports:3")) == "from exports:3"
    assert str(default(5, "not given")) == "default: not given"
    assert read(5, "a").was_read
    assert not default(5, "a").was_read


@pytest.mark.parametrize("fields", [{}, {"source": "a", "why_default": "b"}])
def test_a_fact_with_both_or_neither_is_refused(fields: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="either a source or a reason"):
        Fact(value=5, **fields)


def test_what_is_left_out_is_a_sentence() -> None:
    assert str(LeftOut(what="LVM", source="lsblk", why="not re-created")) == "LVM (lsblk): not re-created"
