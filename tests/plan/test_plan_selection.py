import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.errors import RequestError
from raidproof.plan.plan import Selection

NAME = "level=10 chunk=64KiB export=async"


@pytest.mark.parametrize(
    ("expression", "matches"),
    [
        ("level=10", True),
        ("level=1", False),
        ("LEVEL", True),
        ("64k", True),
        ("async and 64KiB", True),
        ("async 64KiB", True),
        ("async level=5", False),
        ("not async", False),
        ("not not async", True),
        ("level=5 or async", True),
        ("level=5 or level=6", False),
        ("not (level=5 or level=6)", True),
        ("level=5 and level=6 or async", True),
        ("level=5 and (level=6 or async)", False),
        ("async or (level=5 and chunk=64KiB)", True),
    ],
)
def test_what_an_expression_means(expression: str, matches: bool) -> None:
    assert Selection(expression).matches(NAME) is matches


@pytest.mark.parametrize("expression", ["", "and", "level=5 or", "(level=5", "level=5)", "not", "()", "a and and b"])
def test_what_is_no_expression(expression: str) -> None:
    with pytest.raises(RequestError, match=r"-k .*write for example"):
        Selection(expression)


words = st.sampled_from(["level=10", "level=5", "async", "sync", "chunk=64KiB", "256"])
expressions = st.recursive(
    words,
    lambda inner: st.one_of(
        inner.map(lambda one: f"not ({one})"),
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda parts: f"({' '.join(parts)})"),
    ),
)


@given(expressions)
def test_logic_is_that_of_python(expression: str) -> None:
    names = NAME.split()
    python = expression
    for word in ("level=10", "level=5", "chunk=64KiB", "async", "256"):
        there = word in names if "=" in word else word in NAME
        python = python.replace(word, str(there))
    python = python.replace("sync", str("sync" in NAME))
    assert Selection(expression).matches(NAME) is eval(python)  # noqa: S307  True, False and connectives
