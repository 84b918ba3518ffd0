from pathlib import Path

import pytest

from raidproof.core.errors import RequestError
from raidproof.existing.given import LARGEST, Given, plain, read_file, shortened


def test_a_text_is_read_with_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\n")
    assert list(read_file(path).lines()) == [(1, "one"), (2, "two"), (3, "")]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"one\n\xff\xfe", "file:2: byte 0xff is not UTF-8"),
        (b"one\n\x00\x01", "file:2: contains the control character"),
        (b"a" * (LARGEST + 1), "more than 16 MiB"),
        (b"x\n" + b"a" * 10_000_000, "file:2: the line has more than 65,536 characters"),
    ],
)
def test_hostile_content_is_refused_in_one_line(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(RequestError, match=said) as refused:
        list(read_file(path).lines())
    assert "\n" not in str(refused.value)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="cannot be read: Is a directory"):
        read_file(tmp_path)
    with pytest.raises(RequestError, match="cannot be read: No such file"):
        read_file(tmp_path / "none")


def test_texts_in_messages_are_short_and_printable() -> None:
    assert plain("a\nb\x1b") == "a?b?"
    assert len(shortened("a" * 1000)) < 70


def test_a_line_is_named_in_a_refusal() -> None:
    with pytest.raises(RequestError, match=r"^it:7: wrong$"):
        Given("it", "").refuse(7, "wrong")
