"""The answers to the questions of a lesson: typed, from a file, or none."""

import re
from collections.abc import Callable, Iterable
from typing import Protocol

from raidproof.core.errors import RequestError
from raidproof.record.lesson import AnswersFrom
from raidproof.report.lesson import LETTERS
from raidproof.teach.lesson import Question

SKIPPED = frozenset({"", "-", "skip"})
"""Texts that skip a question."""
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)")
MOST_DIGITS = 15


def read_guess(question: Question, text: str) -> float | None:
    """Return a typed answer as a number: that of the choice, from 1, or the number itself; None for a skipped one.

    Raises:
        RequestError: the text is no answer to this question.
    """
    word = text.strip().lower()
    if word in SKIPPED:
        return None
    if question.choices:
        letters = LETTERS[: len(question.choices)]
        numbers = [str(number) for number in range(1, len(letters) + 1)]
        for known in (list(letters), numbers):
            if word in known:
                return float(known.index(word) + 1)
        raise RequestError(f"{text.strip()[:40]!r} is not one of the letters {', '.join(letters)}")
    number = word.replace(",", ".").removesuffix("s").removesuffix("%").strip()
    if _NUMBER.fullmatch(number) is None or len(number) > MOST_DIGITS:
        raise RequestError(f"{text.strip()[:40]!r} is not a number, such as 12 or 3.5")
    return float(number)


class Answers(Protocol):
    """A source of answers."""

    source: AnswersFrom

    def guess(self, question: Question) -> float | None:
        """Return the guess of the learner; None if the question is skipped."""

    def wait(self) -> None:
        """Wait until the learner has read."""


class NoAnswers:
    """Skips every question."""

    source = AnswersFrom.NONE

    def guess(self, question: Question) -> float | None:  # noqa: ARG002
        """Return None."""
        return None

    def wait(self) -> None:
        """Return at once."""


class ScriptedAnswers:
    """Answers from lines: one answer for each question; empty lines and lines that begin with ``#`` do not count."""

    source = AnswersFrom.FILE

    def __init__(self, lines: Iterable[str], name: str) -> None:
        numbered = ((number, line.strip()) for number, line in enumerate(lines, start=1))
        self._left = [(number, line) for number, line in numbered if line and not line.startswith("#")]
        self._name = name

    def guess(self, question: Question) -> float | None:
        """Return the next answer; None if none is left.

        Raises:
            RequestError: the next answer does not fit the question; the message names file and line.
        """
        if not self._left:
            return None
        number, line = self._left.pop(0)
        try:
            return read_guess(question, line)
        except RequestError as error:
            raise RequestError(f"{self._name}:{number}: question {question.name}: {error}") from error

    def require_fitting(self, questions: Iterable[Question]) -> None:
        """Verify all answers before a machine boots.

        Raises:
            RequestError: an answer does not fit its question, or answers are left over.
        """
        kept = list(self._left)
        for question in questions:
            self.guess(question)
        if self._left:
            number, line = self._left[0]
            raise RequestError(f"{self._name}:{number}: the lesson has no question for the answer {line[:40]!r}")
        self._left = kept

    def wait(self) -> None:
        """Return at once."""


class TypedAnswers:
    """Answers that the learner types; ``read`` prints a prompt and returns one line."""

    source = AnswersFrom.TERMINAL

    def __init__(self, read: Callable[[str], str], say: Callable[[str], object]) -> None:
        self._read = read
        self._say = say

    def guess(self, question: Question) -> float | None:
        """Ask until the learner gives an answer; an empty line skips the question, as does the end of the input."""
        letters = f"letter a to {LETTERS[len(question.choices) - 1]}" if question.choices else "number"
        while True:
            try:
                return read_guess(question, self._read(f"Your guess ({letters}, Enter to skip): "))
            except EOFError:
                return None
            except RequestError as error:
                self._say(f"{error}")

    def wait(self) -> None:
        """Wait for the Enter key."""
        try:
            self._read("[Enter] ")
        except EOFError:
            return
