"""A TOML file that cannot be read is named, with the reason."""

from pathlib import Path

import pytest

from raidproof.core.errors import RequestError
from raidproof.core.toml import read_toml


def test_the_content_is_a_table(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('[b]\nc = "ü"\n', encoding="utf-8")
    assert read_toml(tmp_path / "a.toml") == {"b": {"c": "ü"}}


@pytest.mark.parametrize("content", [b"a = ", b"\xff = 1", None])
def test_what_is_wrong_is_said_with_the_path(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "a.toml"
    if content is not None:
        path.write_bytes(content)
    reason = "cannot be read: No such file" if content is None else "is not a valid TOML file"
    with pytest.raises(RequestError, match=f"a.toml {reason}"):
        read_toml(path)
