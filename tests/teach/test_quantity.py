import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.errors import RequestError
from raidproof.teach.quantity import MEANINGS, Condition, Reference, Term, filled, heading_of, meaning_of
from tests.teach.measured import cut, done

DONE = {"a": cut("a", [40, 60], [3.0, 5.0]), "b": cut("b", [0], [0.0])}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a.lost", 50.0),
        ("a.lost.least", 40.0),
        ("a.lost_seconds.most", 5.0),
        ("0.5 * a.lost", 25.0),
        ("a.lost / a.acknowledged", 0.5),
        ("12", 12.0),
        ("a.lost / b.lost", None),
        ("c.lost", None),
        ("a.flushes", None),
    ],
)
def test_a_term_has_the_value_that_was_measured(text: str, value: float | None) -> None:
    assert Term.read(text).of(DONE) == value


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("b.lost = 0", True),
        ("a.lost > 50", False),
        ("a.lost >= 50 and b.lost <= 0", True),
        ("a.lost < 2 * a.lost and b.lost > 0", False),
        ("a.flushes = 0", None),
    ],
)
def test_a_condition_holds_or_not_or_is_undecided(text: str, holds: bool | None) -> None:
    assert Condition.read(text).holds(DONE) is holds


@pytest.mark.parametrize(
    "text", ["", "a", "a.lost ==", "__import__('os')", "a.lost = 0 or 1 = 1", "a.lost.mean > 1", "= 1"]
)
def test_other_texts_are_no_conditions(text: str) -> None:
    with pytest.raises(RequestError):
        Condition.read(text)


@given(st.text(max_size=60))
def test_any_text_is_a_condition_or_an_error(text: str) -> None:
    try:
        Condition.read(text).holds(DONE)
    except RequestError:
        return


def test_texts_get_the_measured_values_with_units() -> None:
    text = "{a.lost}, {a.lost_seconds}, {a.lost / a.acknowledged}, {c.lost}, {other}, {}"
    assert filled(text, DONE) == "50, 4.00\N{NO-BREAK SPACE}s, 0.500, (not measured), {other}, {}"


@pytest.mark.parametrize(
    ("kind", "name", "heading"),
    [
        ("cut", "lost_seconds", "lost seconds"),
        ("measure", "write_mb_s", "write"),
        ("measure", "fsync_p50_ms", "fsync p50"),
        ("measure", "member_reads", "member reads"),
    ],
)
def test_a_heading_is_the_name_of_the_value(kind: str, name: str, heading: str) -> None:
    assert heading_of(kind, name) == heading


def test_a_name_of_a_value_has_a_meaning() -> None:
    for kind, values in MEANINGS.items():
        for name, meaning in values.items():
            assert meaning_of(kind, name) is meaning
            assert Reference.read(f"x.{name}") == Reference("x", name)
    assert meaning_of("measure", "write_mb_s") == ("write: amount of data in each second", "MB/s")
    assert done("m", {"fsync_p50_ms": [1.0]}, do="measure").values[0].unit == "ms"
    with pytest.raises(RequestError, match="did you mean 'lost'"):
        meaning_of("cut", "losst")
