"""A whole lesson: machines, presentation, record and handout."""

import sys
from pathlib import Path

from rich.console import Console

from raidproof.core.files import write_durably
from raidproof.core.topology import Platform
from raidproof.core.waiting import wall_clock
from raidproof.record.lesson import LESSON_RECORD, LessonRecord
from raidproof.record.outcome import Outcome
from raidproof.report.handout import HANDOUT, write_handout
from raidproof.report.lesson import show_handout, show_head
from raidproof.run.run import command_line
from raidproof.teach.answers import Answers, ScriptedAnswers
from raidproof.teach.experiment import Experiment
from raidproof.teach.lesson import Lesson
from raidproof.teach.presentation import Presentation


def new_record(lesson: Lesson, answers: Answers, *, seed: int, learner: str) -> LessonRecord:
    """Return the record of a lesson that has not begun."""
    return LessonRecord(
        lesson=lesson.name,
        title=lesson.head.title,
        digest=lesson.digest,
        learner=learner,
        seed=seed,
        answers_from=answers.source,
        started=wall_clock(),
        command=command_line(sys.argv),
    )


def conduct(
    lesson: Lesson,
    results: Path,
    answers: Answers,
    console: Console,
    *,
    platform: Platform | None = None,
    seed: int = 1,
    learner: str = "",
    handout: Path | None = None,
) -> tuple[LessonRecord, Path]:
    """Conduct a lesson on new machines; return its record and the path of the handout.

    ``handout``: the path of the handout; None: a file in the directory of the run.

    Raises:
        RequestError: an answer does not fit, the kernel is unknown, or the handout cannot be written.
        RequirementMissing: this host cannot run a lab.
        KeyboardInterrupt: the user interrupted; the record and the handout have the steps until then.
    """
    if isinstance(answers, ScriptedAnswers):
        answers.require_fitting(lesson.questions)
    record = new_record(lesson, answers, seed=seed, learner=learner)
    show_head(record, lesson.head.minutes, console)
    with Experiment(lesson, results, platform=platform, seed=seed) as experiment:
        folder = experiment.run.store.path
        record.run = folder.name
        page = handout or folder / HANDOUT
        complete = False
        try:
            Presentation(lesson, record, answers, console).run(experiment.perform)
            complete = True
        except BaseException as error:
            record.outcome, record.reason = Outcome.ERROR, f"ended early: {str(error) or type(error).__name__}"
            raise
        finally:
            record.environment, record.boot_s = experiment.environment, experiment.boot_s
            record.ended = wall_clock()
            write_durably(folder / LESSON_RECORD, record.model_dump_json(indent=1) + "\n")
            write_handout(record, page)
            if not complete:
                show_handout(str(page), console)
    return record, page
