from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.layer import UUID_PREFIX, uuid_of


@given(st.text())
def test_a_uuid_of_ours_is_one_and_is_known_by_its_beginning(text: str) -> None:
    assert str(UUID(uuid_of(text))) == uuid_of(text)
    assert uuid_of(text).startswith(UUID_PREFIX)


def test_two_texts_have_two() -> None:
    assert uuid_of("disk8") != uuid_of("disk9")
