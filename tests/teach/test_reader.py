import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from raidproof.core.errors import RequestError
from raidproof.teach.lesson import Question, Text
from raidproof.teach.reader import MOST_BYTES, load_lesson, read_lesson
from tests.teach.measured import TEXT


def read(text: str) -> None:
    read_lesson(text, source="my.md", name="my")


def refusal_of(text: str) -> str:
    """Return the message of the error that a text causes; empty if the text is a lesson."""
    try:
        read_lesson(text, source="my.md", name="my")
    except RequestError as error:
        return str(error)
    return ""


def changed(old: str, new: str, text: str = TEXT) -> str:
    assert old in text
    return text.replace(old, new, 1)


def line_of(part: str, text: str = TEXT) -> int:
    return text[: text.index(part)].count("\n") + 1


def test_a_lesson_has_texts_questions_actions_and_results_in_the_order_of_the_file() -> None:
    lesson = read_lesson(TEXT, source="my.md", name="my")
    kinds = ["Text", "Question", "Question", "Cut", "Cut", "Result", "Text"]
    assert [type(step).__name__ for step in lesson.steps] == kinds
    assert lesson.steps[0] == Text("# Before\n\nThe server replies early.")
    assert [one.line for one in lesson.placed][:2] == [line_of("# Before"), line_of("```question")]
    assert lesson.actions["early"].repeats == 2
    assert lesson.actions["late"].seconds == (3.0, 3.0)


def test_other_blocks_are_part_of_the_text() -> None:
    lesson = read_lesson(TEXT + "\n```bash\nmount\n```\n\n    indented\n", source="my.md", name="my")
    assert "```bash\nmount\n```" in lesson.steps[-1].markdown


def test_lines_may_end_as_in_dos() -> None:
    assert len(read_lesson(TEXT.replace("\n", "\r\n"), source="my.md", name="my").steps) == 7


@pytest.mark.parametrize(
    ("old", "new", "at", "said"),
    [
        ("+++\n", "", "title =", "a lesson begins with a line +++"),
        ("minutes = 1\n", "", "title =", "minutes: is missing"),
        ("minutes = 1", "minuts = 1", "minutes =", "unknown key 'minuts'; did you mean 'minutes'?"),
        ("minutes = 1", "minutes = ", "minutes =", "not TOML"),
        ("expect = [1, 40]", "expect = [1,", "explain =", "not TOML"),
        ('```action\nname = "late"', '```acton\nname = "late"', '```action\nname = "late"', "unknown block 'acton'"),
        ('do = "cut"\ntitle', 'do = "cutt"\ntitle', 'do = "cut"', "did you mean 'cut'"),
        ("repeats = 2", "repeats = 99", "repeats = 2", "repeats: "),
        ("repeats = 2", "python = 2", "repeats = 2", "unknown key 'python'"),
        ("seconds = [1, 2]", "seconds = [2, 1]", "seconds = [1", "seconds: two numbers"),
        ('export = "async"', 'exprt = "async"', '```action\nname = "early"', "unknown axis 'exprt'"),
        ("expect = [1, 40]", 'expect = "a"', "expect = [1", "expect: write the least and the greatest"),
        ('expect = "a"', 'expect = "d"', 'expect = "a"', "expect: write the letter"),
        ('measured = "early.lost_seconds"', 'measured = "early.lost_secs"', '```question\nname = "lost"', "no value"),
        (
            'measured = "early.lost_seconds"',
            'measured = "erly.lost"',
            '```question\nname = "lost"',
            "no action 'erly'",
        ),
        ('measured = "early.lost_seconds"', 'measured = "import os"', "measured =", "not a measured value"),
        ('when = "late.lost = 0"', 'when = "late.lost"', "when =", "not a comparison"),
        ('name = "late"', 'name = "early"', '```action\nname = "late"', "the name 'early' is used twice"),
        ('name = "any"', 'name = "lost"', '```question\nname = "any"', "the name 'lost' is used twice"),
        ('columns = ["lost",', 'columns = ["loss",', "```result", "did you mean 'lost'"),
        ("{late.lost} of", "{later.lost} of", "The end", "no action 'later'"),
        ("replies early.", "replies early: {late.lost}.", "# Before", "before this text"),
    ],
)
def test_an_error_names_file_and_line(old: str, new: str, at: str, said: str) -> None:
    text = changed(old, new)
    with pytest.raises(RequestError) as raised:
        read(text)
    message = str(raised.value)
    line = 1 if new == "" and old.startswith("+++") else line_of(at)
    line = int(re.match(r"my\.md:(\d+): ", message)[1]) if at == "title =" else line  # type: ignore[index]
    assert message.startswith(f"my.md:{line}: "), message
    assert said in message


def test_an_exploration_needs_an_earlier_cut() -> None:
    block = '\n```action\nname = "states"\ndo = "explore"\nof = "nothing"\n```\n'
    with pytest.raises(RequestError, match=r"my\.md:\d+: of: no action `cut` named 'nothing'"):
        read(TEXT + block)


def test_locks_need_two_clients() -> None:
    block = '\n```action\nname = "locks"\ndo = "locks"\nevent = "restart"\n```\n'
    with pytest.raises(RequestError, match="locks need two clients"):
        read(TEXT + block)
    read(changed("+++\n\n", "[hardware]\nclients = 2\n+++\n\n", TEXT) + block)


def test_a_missing_disk_must_be_a_member() -> None:
    with pytest.raises(RequestError, match="missing: the array has no member 'disk9'; valid: disk0, "):
        read(changed("repeats = 2", 'missing = "disk9"'))


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("+++\n", "a lesson begins with"),
        ("+++\ntitle", "no line \\+\\+\\+ ends the head"),
        ('+++\ntitle = "x"\nminutes = 1\nlearn = ["y"]\n+++\ntext', "the lesson has no action"),
        ("", "a lesson begins with"),
    ],
)
def test_a_file_that_is_cut_off(part: str, said: str) -> None:
    with pytest.raises(RequestError, match=said if part != "+++\n" else "no line"):
        read(part)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "binary.md").write_bytes(b"+++\n\xff\n")
    (tmp_path / "large.md").write_bytes(b"x" * (MOST_BYTES + 1))
    for name, said in (("none.md", "No such file"), ("binary.md", "binary.md:2: not UTF-8"), ("large.md", "1 MiB")):
        with pytest.raises(RequestError, match=said):
            load_lesson(tmp_path / name)
    with pytest.raises(RequestError, match="Is a directory"):
        load_lesson(tmp_path)


PIECES = st.sampled_from(
    [
        "+++",
        "```action",
        "```question",
        "```result",
        "```",
        "~~~action",
        "> ```action",
        'do = "cut"',
        'do = "explore"',
        'do = "measure"',
        'name = "x"',
        'of = "x"',
        "settings = { level = 5 }",
        "settings = 5",
        "seconds = nan",
        "seconds = [inf, -1]",
        "seconds = true",
        'measured = "x.lost"',
        'measured = "x.y.z"',
        "expect = [1]",
        'expect = ["a", "b"]',
        'when = "x.lost = 1 and"',
        'choices = [{ text = "a" }]',
        "{x.lost / x.lost}",
        "{",
        "\x00",
        'title = "t"',
        "minutes = 1e999",
        "minutes = -1",
        'learn = ["l"]',
        "[hardware]",
        "[[hardware]]",
        "clients = 99",
        "workload = 1",
        'workload = { tool = "dd" }',
        "[",
        "a.b.c.d = 1",
        "repeats = 1_000_000",
        "\u202e",
        "<script>",
    ]
)


@given(st.lists(st.one_of(PIECES, st.text(max_size=30)), max_size=25).map("\n".join))
def test_a_hostile_file_is_a_lesson_or_an_error_with_its_line(text: str) -> None:
    assert re.match(r"my\.md(:\d+)?: |\Z", refusal_of(text))


@example(place=TEXT.index("most}"), inserted="")
@given(place=st.integers(0, len(TEXT) - 1), inserted=st.text(max_size=8))
def test_a_damaged_lesson_is_a_lesson_or_an_error_with_its_line(place: int, inserted: str) -> None:
    text = TEXT[:place] + inserted + TEXT[place + 1 :]
    assert re.match(r"my\.md(:\d+)?: |\Z", refusal_of(text))


def test_a_question_knows_the_actions_that_it_needs() -> None:
    lesson = read_lesson(TEXT, source="my.md", name="my")
    first, second = (step for step in lesson.steps if isinstance(step, Question))
    assert first.needs == {"early"}
    assert second.needs == {"early", "late"}
