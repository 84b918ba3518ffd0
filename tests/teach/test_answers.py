from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.errors import RequestError
from raidproof.teach.answers import NoAnswers, ScriptedAnswers, TypedAnswers, read_guess
from raidproof.teach.lesson import Question
from raidproof.teach.reader import read_lesson
from tests.teach.measured import TEXT

NUMBER, CHOICE = read_lesson(TEXT, source="my.md", name="my").questions


@pytest.mark.parametrize(
    ("question", "text", "guess"),
    [
        (NUMBER, "12", 12.0),
        (NUMBER, " 3.5 s ", 3.5),
        (NUMBER, "0,5", 0.5),
        (NUMBER, "", None),
        (NUMBER, "-", None),
        (CHOICE, "b", 2.0),
        (CHOICE, "B", 2.0),
        (CHOICE, "3", 3.0),
        (CHOICE, "skip", None),
    ],
)
def test_a_guess(question: Question, text: str, guess: float | None) -> None:
    assert read_guess(question, text) == guess


@pytest.mark.parametrize(
    ("question", "text"), [(NUMBER, "many"), (NUMBER, "nan"), (NUMBER, "1e9"), (CHOICE, "d"), (CHOICE, "0")]
)
def test_no_guess(question: Question, text: str) -> None:
    with pytest.raises(RequestError):
        read_guess(question, text)


@given(st.text(max_size=20))
def test_any_text_is_a_guess_or_an_error(text: str) -> None:
    for question in (NUMBER, CHOICE):
        with suppress(RequestError):
            assert read_guess(question, text) is None or text.strip()


def test_a_file_has_one_answer_a_line() -> None:
    answers = ScriptedAnswers(["# my guesses", "", "7", "b"], "mine.txt")
    answers.require_fitting([NUMBER, CHOICE])
    assert (answers.guess(NUMBER), answers.guess(CHOICE), answers.guess(CHOICE)) == (7.0, 2.0, None)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["7", "z"], "mine.txt:2: question any: 'z' is not one of the letters a, b, c"),
        (["7", "a", "a"], "mine.txt:3: the lesson has no question for the answer 'a'"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_before_machines_boot(lines: list[str], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        ScriptedAnswers(lines, "mine.txt").require_fitting([NUMBER, CHOICE])


def test_a_typed_answer_is_asked_again_until_it_fits() -> None:
    typed, said = ["many", "x", "12"], list[str]()
    answers = TypedAnswers(lambda _prompt: typed.pop(0), said.append)
    assert answers.guess(NUMBER) == 12.0
    assert len(said) == 2


def test_the_end_of_the_input_skips_a_question() -> None:
    def ended(_prompt: str) -> str:
        raise EOFError

    answers = TypedAnswers(ended, print)
    assert answers.guess(CHOICE) is None
    answers.wait()
    assert NoAnswers().guess(CHOICE) is None
