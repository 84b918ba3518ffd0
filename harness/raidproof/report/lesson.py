"""Lessons on the terminal: texts, questions, measured values as tables and bars, and the results of a class."""

from collections.abc import Sequence
from itertools import groupby

from rich import box
from rich.console import Console, RenderableType
from rich.markdown import Markdown
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from raidproof.core.terminal import printable
from raidproof.record.lesson import (
    ActionRecord,
    ClassRecord,
    LessonEntry,
    LessonRecord,
    QuestionRecord,
    ResultRecord,
    TextRecord,
    ValueRecord,
)
from raidproof.report.words import UNKNOWN, number, titled

LETTERS = "abcdefgh"
"""The letters of choices."""
BAR_WIDTH = 30
"""Width of a bar in characters."""
UNEXPECTED = (
    "Observation: the lesson expects another result. The measured values on this machine count, and not the text of "
    "the lesson."
)
NO_ANSWER = "The values that decide this question were not measured, so that the question has no answer."
SAME_SEED = (
    "Records with the same seed have the same plan: the same configurations, the same operations, the same times of "
    "the cuts after the beginning of the work. The speed of each machine differs, and with it the number of "
    "operations, the phase of the write-back at the cut, and so the loss."
)
SKIPPED = (
    "No terminal and no file of answers: every question is skipped. `--answers FILE` reads the answers from a file, "
    "`--answers -` from standard input."
)


def in_column(value: float | None, unit: str = "") -> str:
    """Return a value as text for a column whose heading has the unit."""
    return with_unit(value) if value is None or not unit else number(value)


def with_unit(value: float | None, unit: str = "") -> str:
    """Return a value as text: a number of things with all its digits, other values with three, and the unit."""
    if value is None:
        return UNKNOWN
    text = f"{value:,.0f}" if not unit and value.is_integer() else number(value)
    return f"{text}\N{NO-BREAK SPACE}{unit}" if unit else text


def answer_text(question: QuestionRecord, value: float | None) -> str:
    """Return a guess or a measured answer as text; a choice with its letter."""
    if value is None:
        return UNKNOWN
    if not question.choices:
        return with_unit(value, question.unit)
    place = int(value) - 1
    return f"{LETTERS[place]}) {question.choices[place]}"


def show_head(record: LessonRecord, minutes: float, console: Console) -> None:
    """Print the title of a lesson."""
    under = f"about {minutes:g} minutes, seed {record.seed}" + (f", {record.learner}" if record.learner else "")
    console.print(Panel(Text(printable(record.title), style="bold"), subtitle=Text(printable(under)), expand=False))


def show_text(text: TextRecord, console: Console) -> None:
    """Print a text of the lesson."""
    console.print(Padding(Markdown(printable(text.markdown), hyperlinks=False), (1, 0, 0, 0)))


def show_skipped(console: Console) -> None:
    """Print that all questions are skipped."""
    console.print(Text(SKIPPED, style="yellow"))


def show_question(ask: str, choices: Sequence[str], console: Console) -> None:
    """Print a question and its choices."""
    lines = [ask, *(f"  {letter}) {text}" for letter, text in zip(LETTERS, choices, strict=False))]
    console.print()
    console.print(Panel(Text(printable("\n".join(lines))), title="Question", title_align="left", expand=False))


def show_begin(title: str, console: Console) -> None:
    """Print that an action begins."""
    console.print()
    console.print(Text.assemble(("On the machines: ", "bold"), printable(title)))


def show_action(action: ActionRecord, console: Console) -> None:
    """Print the values that an action measured, and those of its repetitions as bars."""
    if action.error is not None:
        console.print(Text(printable(f"{action.outcome.value}: nothing was measured: {action.error}"), style="red"))
        return
    shown = [value for name in action.shown if (value := action.value(name)) is not None]
    table = Table(box=box.SIMPLE_HEAD, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    for value in shown:
        table.add_row(plain(value.meaning), with_unit(value.middle, value.unit))
    console.print(table)
    if shown and len(shown[-1].each) > 1:
        console.print(bars(shown[-1]))
    for sentence in action.observed:
        console.print(Text(f"- {printable(sentence)}", style="dim"))
    for page in action.pages:
        console.print(Text(f"page: {printable(page)}"))


def bars(value: ValueRecord) -> RenderableType:
    """Return the repetitions of a value as bars."""
    rows = [(f"repetition {place}", one) for place, one in enumerate(value.each, start=1)]
    return bar_table(value.meaning, value.unit, rows)


def bar_of(value: float | None, greatest: float) -> Text:
    """Return a bar whose length is proportional to a value; a value above 0 has at least half a character."""
    if value is None or value <= 0 or greatest <= 0:
        return Text("")
    halves = max(1, round(2 * BAR_WIDTH * value / greatest))
    return Text("█" * (halves // 2) + "▌" * (halves % 2), style="cyan")


def plain(text: str) -> Text:
    """Return a text of a lesson or a record for the terminal, which interprets nothing in it."""
    return Text(printable(text))


def bar_table(title: str, unit: str, rows: Sequence[tuple[str, float | None]]) -> Table:
    """Return values as a table with bars from 0 to the greatest value."""
    table = Table(box=None, title=plain(title), title_justify="left", title_style="", pad_edge=False)
    table.add_column("")
    table.add_column(plain(unit), justify="right")
    table.add_column("", min_width=BAR_WIDTH, no_wrap=True)
    greatest = max((value for _, value in rows if value is not None), default=0.0)
    for name, value in rows:
        table.add_row(plain(name), in_column(value, unit), bar_of(value, greatest))
    return table


def show_answer(question: QuestionRecord, console: Console) -> None:
    """Print guess and measurement of a question, and the explanation."""
    lines = Text()
    lines.append(f"{printable(question.ask)}\n", style="dim")
    lines.append(f"your guess:  {printable(answer_text(question, question.guess))}\n")
    lines.append(f"measured:    {printable(answer_text(question, question.measured))}", style="bold")
    if question.near is not None:
        said = "your guess agrees with the measurement" if question.near else "your guess differs from the measurement"
        lines.append(f"\n{said}", style="green" if question.near else "yellow")
    console.print(Panel(lines, title="Answer", title_align="left", expand=False))
    if question.measured is None:
        console.print(Text(NO_ANSWER, style="yellow"))
    if question.as_expected is False:
        console.print(Text(UNEXPECTED, style="yellow"))
    if question.explanation:
        console.print(Markdown(printable(question.explanation), hyperlinks=False))


def show_result(result: ResultRecord, console: Console) -> None:
    """Print a table that compares actions, with bars."""
    table = Table(box=box.SIMPLE_HEAD, title=plain(result.title), title_justify="left", pad_edge=False)
    table.add_column("")
    for title, unit in zip(result.columns, result.units, strict=True):
        table.add_column(plain(titled(title, unit)), justify="right")
    table.add_column(plain(f"bars: {result.columns[result.bar]}"), min_width=BAR_WIDTH, no_wrap=True)
    for row in result.rows:
        bar = bar_of(row.values[result.bar], most(result))
        texts = map(in_column, row.values, result.units)
        table.add_row(plain(row.title), *texts, bar)
    console.print(table)
    for title, meaning in zip(result.columns, result.meanings, strict=True):
        console.print(Text(f"{title}: {meaning}", style="dim"))


def guesses(record: LessonRecord) -> str:
    """Return a sentence: how many guesses agree with the measurement."""
    near = [one.near for one in record.questions if one.near is not None]
    return f"{sum(near)} of {len(near)} guesses agree with the measurement." if near else "No question was answered."


def most(result: ResultRecord) -> float:
    """Return the greatest value of the column that is shown as bars."""
    return max((row.values[result.bar] or 0.0 for row in result.rows), default=0.0)


def show_end(record: LessonRecord, handout: str, console: Console) -> None:
    """Print the end of a lesson: how many guesses agree, the time on the machines, and the path of the handout."""
    console.print()
    console.print(Text(guesses(record)))
    console.print(Text(f"{record.outcome.value}: {printable(record.reason)}"))
    booted = f", boot {number(record.boot_s)} s while you read" if record.boot_s is not None else ""
    console.print(Text(f"The machines worked for {number(record.machine_s)} s{booted}."))
    show_handout(handout, console)


def show_handout(handout: str, console: Console) -> None:
    """Print the path of the handout, also of a lesson that ended early."""
    console.print(Text(f"handout: {printable(handout)}"), soft_wrap=True)


def show_list(entries: Sequence[LessonEntry], console: Console) -> None:
    """Print the list of lessons."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("lesson", "level", "minutes", "what one learns"):
        table.add_column(title, justify="right" if title == "minutes" else "left")
    for entry in entries:
        learn = Text("\n".join([entry.title, *(f"- {one}" for one in entry.learn)]))
        table.add_row(Text(entry.name, style="bold"), entry.level, f"{entry.minutes:g}", learn)
    console.print(table)
    console.print("raidproof teach NAME begins a lesson; raidproof teach FILE.md begins your own.", markup=False)


def show_class(found: ClassRecord, console: Console) -> None:
    """Print the results of a class: guess and measurement of each learner, and the spread of the measured values."""
    for (_, _, title), group in groupby(found.lessons, key=lambda one: (one.lesson, one.digest, one.title)):
        records = list(group)
        console.print(Text(printable(f"{title}: {len(records)} records"), style="bold"))
        for place, question in enumerate(records[0].questions):
            asked = [(one, one.questions[place]) for one in records if len(one.questions) > place]
            console.print(_question_table(question, asked))
            if not question.choices:
                rows = [(name_of(one), answer.measured) for one, answer in asked]
                console.print(bar_table(f"measured, {spread(rows)}", question.unit, rows))
                console.print()
    if len({one.seed for one in found.lessons}) < len(found.lessons):
        console.print(Text(SAME_SEED), soft_wrap=True)
    for unread in found.unread:
        console.print(Text(printable(f"not read: {unread.path}: {unread.reason}"), style="yellow"), soft_wrap=True)


def name_of(record: LessonRecord) -> str:
    """Return the name of a learner, or of the run if the learner gave no name."""
    return f"{record.learner or record.run} (seed {record.seed})"


def spread(rows: Sequence[tuple[str, float | None]]) -> str:
    """Return least and greatest measured value as text."""
    values = [value for _, value in rows if value is not None]
    return f"{number(min(values))} to {number(max(values))}" if values else "no value"


def _question_table(question: QuestionRecord, asked: Sequence[tuple[LessonRecord, QuestionRecord]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=plain(question.ask), title_justify="left", pad_edge=False)
    for title in ("learner", "guess", "measured", "guess and measurement"):
        table.add_column(title)
    for record, answer in asked:
        agree = UNKNOWN if answer.near is None else "agree" if answer.near else "differ"
        cells = (name_of(record), answer_text(answer, answer.guess), answer_text(answer, answer.measured), agree)
        table.add_row(*map(plain, cells))
    near = [answer.near for _, answer in asked if answer.near is not None]
    table.caption = f"{sum(near)} of {len(near)} guesses agree" if near else None
    return table
