"""The lessons of raidproof, and lessons in files of teachers."""

from pathlib import Path

from raidproof.core.errors import RequestError, nearest
from raidproof.record.lesson import LessonEntry
from raidproof.teach.lesson import Lesson
from raidproof.teach.reader import load_lesson

FOLDER = Path(__file__).parent / "lessons"
SUFFIX = ".md"
LEVELS = ("beginner", "intermediate", "advanced")


def names() -> list[str]:
    """Return the names of raidproof's lessons."""
    return sorted(path.stem for path in FOLDER.glob(f"*{SUFFIX}"))


def find_lesson(name: str) -> Lesson:
    """Return the lesson of this name, or the lesson in the file of this path (with a ``/`` or the ending ``.md``).

    Raises:
        RequestError: no lesson has this name, or the file is no lesson.
    """
    if "/" in name or name.endswith(SUFFIX):
        return load_lesson(Path(name))
    if name not in names():
        raise RequestError(f"unknown lesson {name!r}", remedy=f"{nearest(name, names())}; or the path of a file *.md")
    return load_lesson(FOLDER / f"{name}{SUFFIX}")


def entries() -> list[LessonEntry]:
    """Return the list of raidproof's lessons, the easier ones first."""
    lessons = [find_lesson(name) for name in names()]
    lessons.sort(key=lambda one: (LEVELS.index(one.head.level), one.name))
    return [
        LessonEntry(
            name=one.name,
            title=one.head.title,
            level=one.head.level,
            minutes=one.head.minutes,
            learn=list(one.head.learn),
        )
        for one in lessons
    ]
