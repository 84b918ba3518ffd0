import pytest

from raidproof.core.errors import RequestError
from raidproof.teach.action import Cut, Explore, Locks, Measure
from raidproof.teach.catalog import FOLDER, entries, find_lesson, names
from raidproof.teach.lesson import Text
from tests.test_glossary import found


@pytest.mark.parametrize("name", names())
def test_each_lesson_asks_before_it_measures_and_explains_each_answer(name: str) -> None:
    lesson = find_lesson(name)
    assert len(lesson.questions) >= 4
    assert isinstance(lesson.steps[0], Text)
    measured: set[str] = set()
    for step in lesson.steps:
        match step:
            case Cut() | Explore() | Locks() | Measure():
                measured.add(step.name)
        if step in lesson.questions:
            assert not step.needs <= measured, f"{step.name} is asked after its answer was measured"
            assert step.explain


@pytest.mark.parametrize("name", names())
def test_lessons_keep_to_the_glossary(name: str) -> None:
    assert found((FOLDER / f"{name}.md").read_text().replace("```", "")) == []


@pytest.mark.parametrize("name", names())
def test_each_lesson_takes_at_most_four_minutes(name: str) -> None:
    assert find_lesson(name).head.minutes <= 4


def test_the_list_has_every_lesson_the_easier_ones_first() -> None:
    listed = entries()
    assert {one.name for one in listed} == set(names()) == {"async", "flush", "locks", "small-writes", "write-hole"}
    assert listed[0].level == "beginner"
    assert listed[-1].level == "advanced"
    assert all(one.learn for one in listed)


def test_an_unknown_lesson_names_the_nearest() -> None:
    with pytest.raises(RequestError, match="did you mean 'async'"):
        find_lesson("asyn")
    with pytest.raises(RequestError, match="cannot be read"):
        find_lesson("./no.md")
