from hypothesis import given
from hypothesis import strategies as st

from raidproof.guest.disk_probe import MAGIC as SEEN
from raidproof.guest.disk_probe import MARK as SEEN_BLOCK
from raidproof.provider.hosts.survey import BLOCK, MAGIC, Identity, Mark, decode, encode

WORD = st.text(max_size=40)
MARKS = st.builds(
    Mark,
    inventory=st.just("0" * 64),
    serial=st.just("disk0"),
    identity=st.builds(
        Identity, id=WORD, size=st.integers(0, 1 << 60), model=st.none() | WORD, serial=st.none() | WORD, wwn=st.none()
    ),
)


@given(MARKS)
def test_a_mark_is_read_as_it_was_written(mark: Mark) -> None:
    assert decode(encode(mark)) == mark
    assert len(encode(mark)) == BLOCK == SEEN_BLOCK
    assert encode(mark).startswith(SEEN)


@given(MARKS, st.integers(0, 200), st.integers(1, 255))
def test_a_damaged_mark_is_none(mark: Mark, at: int, by: int) -> None:
    block = bytearray(encode(mark))
    block[at] ^= by
    # Only the digits of the checksum may be written in another way.
    assert decode(bytes(block)) in {None, mark}


@given(st.binary(max_size=64))
def test_other_content_is_no_mark(content: bytes) -> None:
    assert decode(content) is None
    assert decode(MAGIC + content) is None


@given(MARKS)
def test_a_mark_is_no_partition_table(mark: Mark) -> None:
    assert encode(mark)[510:512] != b"\x55\xaa"
