"""The file of known differences: what is read, and what is refused with a reason."""

from datetime import date
from pathlib import Path

import pytest

from raidproof.core.errors import RequestError
from raidproof.record.known import KnownKind, load_known

ENTRY = """[[known]]
cell = "level=5 *"
checker = "fsync"
kind = "broken"
reason = "md sends data before the flush has ended"
until = 2027-03-31
"""


def read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "known.toml"
    path.write_text(text)
    load_known(path)


def test_an_entry_is_read(tmp_path: Path) -> None:
    path = tmp_path / "known.toml"
    path.write_text(ENTRY)
    [entry] = load_known(path)
    assert (entry.cell, entry.checker, entry.kind) == ("level=5 *", "fsync", KnownKind.BROKEN)
    assert entry.until == date(2027, 3, 31)


def test_the_file_of_the_current_directory_is_read_if_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert list(load_known()) == []
    (tmp_path / "known.toml").write_text(ENTRY)
    assert len(load_known()) == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (ENTRY.replace("broken", "slower"), "kind 'slower' is for checker 'throughput'"),
        (ENTRY.replace("fsync", "throughput"), "kind 'broken' for every other checker"),
        (ENTRY.replace("broken", "wet"), "known[1].kind"),
        (ENTRY.replace("until = 2027-03-31\n", ""), "known[1].until: is missing"),
        (ENTRY.replace("2027-03-31", '"soon"'), "known[1].until"),
        (ENTRY + "colour = 1\n", "known[1].colour: unknown key"),
        (ENTRY.replace("[[known]]", "[[knwon]]"), "unknown key"),
        ("known = [", "is not a valid TOML file"),
    ],
)
def test_a_malformed_file_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(RequestError) as refused:
        read(tmp_path, text)
    assert reason in str(refused.value)
    assert "known.toml" in str(refused.value)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"x\.toml cannot be read: No such file"):
        load_known(tmp_path / "x.toml")
