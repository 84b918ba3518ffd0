from hypothesis import given
from hypothesis import strategies as st

from raidproof.crash.stats import Marks
from raidproof.record.exploration import StateMark


def mark(name: str, *, broken: bool = False) -> StateMark:
    return StateMark(name=name, policy="random", at_s=float(len(name)), checked=True, broken=broken)


@given(st.lists(st.tuples(st.text("abc"), st.booleans()), unique_by=lambda one: one[0]), st.randoms())
def test_which_marks_are_kept_does_not_depend_on_their_order(states: list[tuple[str, bool]], draw: object) -> None:
    made, mixed = [mark(name, broken=broken) for name, broken in states], Marks(most=3)
    in_order = Marks(most=3)
    for one in made:
        in_order.add(one)
    getattr(draw, "shuffle")(made)  # noqa: B009  hypothesis has no type for it
    for one in made:
        mixed.add(one)
    assert mixed.kept() == in_order.kept()
    assert mixed.count == len(made)
    for kind in (False, True):
        of_kind = [one for one in made if one.broken is kind]
        assert sum(one.broken is kind for one in mixed.kept()) == min(3, len(of_kind))


def test_few_marks_are_all_kept_in_the_order_of_their_cuts() -> None:
    marks = Marks()
    for name in ("ccc", "a", "bb"):
        marks.add(mark(name))
    assert [one.name for one in marks.kept()] == ["a", "bb", "ccc"]
