"""`raidproof teach`: lessons on real machines, and the results of a class."""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raidproof.cli.config_files import split
from raidproof.cli.options import Json, Results, with_platform
from raidproof.cli.output import emit, say, screen
from raidproof.core.errors import RequestError, Status
from raidproof.run.options import RESULTS

if TYPE_CHECKING:
    from rich.console import Console

    from raidproof.teach.answers import Answers

STDIN = "-"
"""Name of standard input in place of a file of answers."""


@with_platform(before="results")
def teach(
    asked: typer.Context,
    lesson: Annotated[
        str | None, typer.Argument(help="name of a lesson, or path of a lesson file *.md; without it, list lessons")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of all random choices; equal seeds give equal plans.")] = 1,
    name: Annotated[str, typer.Option(help="Name of the learner, for the handout and the class.")] = "",
    handout: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Handout to write (default: in the folder of the run).")
    ] = None,
    answers: Annotated[
        str | None, typer.Option(metavar="FILE", help="Read the answers from a file, one a line; -: standard input.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Check the lesson file; start no machine.")] = False,
    compare: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Show the records of a class in this folder; no lesson.")
    ] = None,
    results: Results = RESULTS,
    json: Json = False,
) -> None:
    """Give a lesson on real machines, with a question before each answer.

    The measurement gives the answers. At the end there is a handout, an HTML page. Exit status 5: a measurement is
    not as the lesson expects.
    """
    if compare is not None:
        if lesson is not None:
            raise RequestError("--compare shows records, and gives no lesson", remedy=f"omit {lesson!r} or --compare")
        show_class_of(compare, as_json=json)
        return
    if lesson is None:
        from raidproof.report.lesson import show_list  # noqa: PLC0415
        from raidproof.teach.catalog import entries  # noqa: PLC0415

        listed = entries()
        emit(listed, json, lambda console: show_list(listed, console))
        return
    from raidproof.teach.catalog import find_lesson  # noqa: PLC0415

    found = find_lesson(lesson)
    if check:
        say(
            screen(json),
            [f"{found.source}: {len(found.actions)} actions, {len(found.questions)} questions, no error"],
        )
        return
    from raidproof.report.lesson import show_end  # noqa: PLC0415
    from raidproof.run.platform import platform_for  # noqa: PLC0415
    from raidproof.teach.conduct import conduct  # noqa: PLC0415

    given, defaults = split(asked)
    platform = platform_for(given, None, defaults)
    console = screen(json)
    record, page = conduct(
        found,
        results,
        answers_from(answers, console),
        console,
        platform=platform,
        seed=seed,
        learner=name,
        handout=handout,
    )
    emit(record, json, lambda shown: show_end(record, str(page), shown))
    raise typer.Exit(Status[record.outcome.name])


def show_class_of(folder: Path, *, as_json: bool) -> None:
    """Print the results of a class.

    Raises:
        RequestError: the folder has no record of a lesson.
    """
    from raidproof.report.lesson import show_class  # noqa: PLC0415
    from raidproof.teach.class_results import gather  # noqa: PLC0415

    found = gather(folder)
    emit(found, as_json, lambda console: show_class(found, console))


def answers_from(name: str | None, console: "Console") -> "Answers":
    """Return the source of answers: a file, standard input, the terminal, or none if there is no terminal.

    Raises:
        RequestError: the file cannot be read.
    """
    from raidproof.teach.answers import NoAnswers, ScriptedAnswers, TypedAnswers  # noqa: PLC0415

    if name is not None:
        return ScriptedAnswers(lines_of(name), "standard input" if name == STDIN else name)
    if not (sys.stdin.isatty() and console.is_terminal):
        return NoAnswers()
    return TypedAnswers(partial(console.input, markup=False), partial(console.print, markup=False))


def lines_of(name: str) -> list[str]:
    """Return the lines of a file, or of standard input.

    Raises:
        RequestError: the file cannot be read.
    """
    try:
        text = sys.stdin.read() if name == STDIN else Path(name).read_text()
    except OSError as error:
        raise RequestError(f"the answers in {name} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise RequestError(f"the answers in {name} are not UTF-8") from error
    return text.splitlines()
