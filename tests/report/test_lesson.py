import re
from io import StringIO

import pytest
from rich.console import Console

from raidproof.record.lesson import ClassRecord, LessonRecord, QuestionRecord, ResultRecord, ResultRow, UnreadRecord
from raidproof.record.outcome import Outcome
from raidproof.report.handout import markdown, render_handout, share
from raidproof.report.lesson import (
    answer_text,
    show_action,
    show_class,
    show_end,
    show_result,
    spread,
    with_unit,
)
from tests.teach.measured import cut, new_record


def question(**changes: object) -> QuestionRecord:
    usual = {"name": "q", "ask": "How long?", "unit": "s", "decided_by": ["a.lost_seconds"]}
    return QuestionRecord.model_validate({**usual, **changes})


def screen() -> tuple[Console, StringIO]:
    file = StringIO()
    return Console(file=file, width=100), file


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(None, "s", "-"), (1234.0, "", "1,234"), (0.5, "", "0.500"), (12.345, "s", "12.3 s"), (3.0, "1/s", "3.00 1/s")],
)
def test_a_value_has_its_unit(value: float | None, unit: str, text: str) -> None:
    assert with_unit(value, unit).replace("\N{NO-BREAK SPACE}", " ") == text


def test_an_answer_is_a_number_or_a_choice_with_its_letter() -> None:
    assert answer_text(question(choices=["no", "yes"], unit=""), 2.0) == "b) yes"
    assert answer_text(question(), None) == "-"


def test_repetitions_are_shown_as_bars() -> None:
    console, file = screen()
    show_action(cut("a", [1, 2, 4], [1.0, 2.0, 4.0]), console)
    bars = [line.count("█") for line in file.getvalue().splitlines() if line.startswith("repetition")]
    assert bars == [7, 15, 30]
    assert "▌" in file.getvalue()


def test_a_result_has_bars_of_its_column_and_names_its_values() -> None:
    result = ResultRecord(
        title="Loss",
        columns=["lost", "lost seconds"],
        meanings=["missing operations", "time of the loss"],
        units=["", "s"],
        bar=0,
        rows=[ResultRow(title="one", values=[10.0, 1.0]), ResultRow(title="two", values=[None, 2.0])],
    )
    console, file = screen()
    show_result(result, console)
    shown = file.getvalue()
    assert "lost seconds [s]" in shown
    assert re.search(r"one +10 +1\.00 +█{30}", shown)
    assert re.search(r"two +- +2\.00 *\n", shown)
    assert "lost: missing operations" in shown


def test_the_end_counts_the_guesses_that_agree() -> None:
    record = new_record(
        steps=[question(near=True), question(near=False), question()], outcome=Outcome.PASS, reason="r"
    )
    console, file = screen()
    show_end(record, "/tmp/handout.html", console)
    assert "1 of 2 guesses agree with the measurement." in file.getvalue()
    assert "handout: /tmp/handout.html" in file.getvalue()


def learner(name: str, guess: float | None, measured: float, seed: int = 7) -> LessonRecord:
    near = None if guess is None else abs(guess - measured) < 1
    return new_record(learner=name, seed=seed, steps=[question(guess=guess, measured=measured, near=near)])


def test_a_class_is_shown_with_guesses_measurements_and_spread() -> None:
    found = ClassRecord(
        folder="class",
        lessons=[learner("ann", 5.0, 4.5), learner("ben", 20.0, 9.0), learner("cid", None, 2.25)],
        unread=[UnreadRecord(path="dan.json", reason="cut off")],
    )
    console, file = screen()
    show_class(found, console)
    shown = file.getvalue().replace("\N{NO-BREAK SPACE}", " ")
    assert re.search(r"ann \(seed 7\) +5\.00 s +4\.50 s +agree", shown)
    assert re.search(r"ben \(seed 7\) +20\.0 s +9\.00 s +differ", shown)
    assert re.search(r"cid \(seed 7\) +- +2\.25 s +-", shown)
    assert "1 of 2 guesses agree" in shown
    assert "measured, 2.25 to 9.00" in shown
    assert re.search(r"ben \(seed 7\) +9\.00 +█{30}", shown)
    assert "the same plan" in shown
    assert "not read: dan.json: cut off" in shown


def test_records_of_different_versions_of_a_lesson_are_not_mixed() -> None:
    other = learner("ben", 5.0, 4.0).model_copy(update={"digest": "ffff"})
    console, file = screen()
    show_class(ClassRecord(folder="class", lessons=[learner("ann", 5.0, 4.5), other]), console)
    assert file.getvalue().count("What is left: 1 records") == 2


def test_markup_in_a_lesson_is_text() -> None:
    result = ResultRecord(
        title="[bold]Loss[/]",
        columns=["lost"],
        meanings=["m"],
        units=["x"],
        bar=0,
        rows=[ResultRow(title="[red]one", values=[1.0])],
    )
    console, file = screen()
    show_result(result, console)
    assert "[bold]Loss[/]" in file.getvalue()
    assert "[red]one" in file.getvalue()


def test_the_spread_of_nothing() -> None:
    assert spread([("a", None)]) == "no value"


def test_texts_of_a_lesson_reach_the_handout_without_html_scripts_or_images() -> None:
    text = "# A <b>head</b>\n\n<script>alert(1)</script>\n\n![x](http://example.org/x.png) [y](javascript:z)\n\n`code`"
    made = str(markdown(text))
    assert "<script" not in made
    assert "<img" not in made
    assert 'href="javascript' not in made
    assert "<code>code</code>" in made
    assert made.startswith("<h2>A &lt;b&gt;head")


def test_a_handout_names_no_external_resource() -> None:
    record = new_record(
        learner="<i>ann</i>",
        steps=[question(guess=1.0, measured=4.0, near=False, as_expected=True, explanation="**Because.**")],
    )
    page = render_handout(record)
    assert re.findall(r"(?:src|href)=|@import|url\(|<script", page) == []
    assert "&lt;i&gt;ann" in page
    assert "<strong>Because.</strong>" in page
    assert "./raidproof teach left" in page


def test_the_length_of_a_bar() -> None:
    assert (share(2.0, 4.0), share(None, 4.0), share(0.0, 0.0)) == ("50.0", "0.0", "0")
