from contextlib import closing
from pathlib import Path

import pytest

from raidproof.core.errors import RequestError
from raidproof.crash.journal import Begun, Journal, Line, begun_in, lines_of
from raidproof.crash.sampler import Policy
from raidproof.crash.states import CrashState, Survivor
from raidproof.record.exploration import End, Observation

BEGUN = Begun(cycle="c", log_digest="d", seed=1, tear=512)
SEEN = Observation(end=End.READ, found={"f@0": {"blocks": [1], "names": ["f"]}})
STATES = [CrashState(cut, (Survivor(cut, ((0, 512),)),)) for cut in range(4)]


def line(number: int, digest: str, seen: Observation | None) -> Line:
    return Line(state=STATES[number].dump(), policy=Policy.RANDOM, number=0, digest=digest, observation=seen)


@pytest.fixture
def lines() -> list[Line]:
    return [line(0, "a", SEEN), line(1, "b", SEEN), line(2, "a", None), line(3, "c", SEEN)]


@pytest.fixture
def path(lines: list[Line], tmp_path: Path) -> Path:
    with closing(Journal(tmp_path / "states.jsonl", BEGUN)) as journal:
        for one in lines:
            journal.add(one)
    return tmp_path / "states.jsonl"


def test_what_was_added_is_read(path: Path, lines: list[Line]) -> None:
    assert begun_in(path) == BEGUN
    assert list(lines_of(path)) == lines


def test_the_lines_of_some_states_include_the_observations_of_their_contents(path: Path, lines: list[Line]) -> None:
    assert list(lines_of(path, {STATES[2].name})) == [lines[0], lines[2]]
    assert list(lines_of(path, {STATES[1].name, STATES[3].name})) == [lines[1], lines[3]]
    assert list(lines_of(path, ())) == []


def test_a_journal_that_is_continued_has_its_observations(path: Path, lines: list[Line]) -> None:
    with path.open("ab") as file:
        file.write(lines[0].dump()[:-5])
    with closing(Journal(path, BEGUN)) as journal:
        assert list(journal.stored()) == lines
        assert [one in journal for one in "abcd"] == [True, True, True, False]
        newer = SEEN.model_copy(update={"said": "again"})
        before = journal.place("a")
        journal.add(line(0, "a", newer))
        assert journal.place("a") > before
        assert journal.observation("a") == newer


@pytest.mark.parametrize("bad", [b"{}\n", b"no JSON\n"])
def test_a_line_of_another_format_is_refused(path: Path, bad: bytes) -> None:
    with path.open("ab") as file:
        file.write(bad)
    with pytest.raises(RequestError, match=r"states.jsonl:6: the line does not have the format of a journal"):
        list(lines_of(path))
