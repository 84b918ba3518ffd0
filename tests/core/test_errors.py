from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.errors import RigError, nearest


def test_remedy_follows_the_cause() -> None:
    assert str(RigError("socket gone", remedy="start again")) == "socket gone (start again)"
    assert str(RigError("socket gone")) == "socket gone"


def test_nearest_comes_first() -> None:
    assert nearest("raid55", ["raid5", "raid6", "linear"]).startswith("did you mean 'raid5'? ")


def test_nothing_near_still_lists_what_is_valid() -> None:
    assert nearest("zzzz", ["sync", "async"]) == "valid: async, sync"


@given(st.text(), st.lists(st.text()))
def test_every_valid_word_is_named(word: str, valid: list[str]) -> None:
    assert all(known in nearest(word, valid) for known in valid)
