from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.errors import FEW, RigError, nearest


def test_remedy_follows_the_cause() -> None:
    assert str(RigError("socket gone", remedy="start again")) == "socket gone (start again)"
    assert str(RigError("socket gone")) == "socket gone"


def test_nearest_comes_first() -> None:
    assert nearest("raid55", ["raid5", "raid6", "linear"]).startswith("did you mean 'raid5'? ")


def test_nothing_near_still_lists_what_is_valid() -> None:
    assert nearest("zzzz", ["sync", "async"]) == "valid: async, sync"
    assert nearest("sync", []) == "there are none"


def test_of_many_valid_words_only_near_ones_are_named() -> None:
    many = ["level", "levels", *(f"axis{number}" for number in range(FEW))]
    assert nearest("levle", many) == "did you mean 'level'? (also similar: levels)"
    assert nearest("zzzz", many).count(", ") == len(many) - 1


@given(st.text(), st.lists(st.text(), max_size=FEW))
def test_every_valid_word_is_named(word: str, valid: list[str]) -> None:
    assert all(known in nearest(word, valid) for known in valid)
