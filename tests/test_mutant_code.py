"""Changing a file in a process that has imported it: what can be replaced, and what must be imported again."""

import gc
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks.mutant_code import apply, swaps, within

SOURCE = """
from functools import cache

def twice(number, more=0):
    return number * 2 + more

TABLE = [twice(one) for one in range(3)]
WORDS = {"add": lambda one: one + 1}

class Counter:
    step: int = 1

    @cache
    def next(self, at):
        def inner():
            return at + self.step
        return inner()
"""


@pytest.fixture
def module(tmp_path: Path) -> Iterator[ModuleType]:
    path = tmp_path / "changing.py"
    path.write_text(SOURCE)
    spec = spec_from_file_location("changing", path)
    assert spec is not None
    assert spec.loader is not None
    made = module_from_spec(spec)
    sys.modules["changing"] = made
    spec.loader.exec_module(made)
    yield made
    del sys.modules["changing"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("number * 2", "number * 3", (6, 2, 2)),
        ("one + 1", "one - 1", (4, 0, 2)),
        ("at + self.step", "at - self.step", (4, 2, 0)),
    ],
)
def test_changed_functions_behave_as_their_new_code(
    module: ModuleType, old: str, new: str, said: tuple[int, int, int]
) -> None:
    counter = module.Counter()
    found = swaps(str(module.__file__), SOURCE, SOURCE.replace(old, new))
    assert found
    # tests/conftest.py freezes what it imports; gc.get_objects leaves out frozen functions.
    gc.freeze()
    assert apply(found)
    assert (module.twice(2), module.WORDS["add"](1), counter.next(1)) == said


def test_a_function_that_is_not_in_this_process_is_not_changed() -> None:
    absent = SOURCE.replace("number * 2", "number * 1000")
    found = swaps("absent.py", absent, absent.replace("+ more", "- more"))
    assert found
    assert not apply(found)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("more=0", "more=1"),
        ("range(3)", "range(4)"),
        ("[twice(one)", "[-twice(one)"),
        ("step: int = 1", "step: int = 2"),
        ("    @cache\n", "\n"),
        ("def twice(", "def thrice("),
    ],
)
def test_what_an_import_does_is_to_be_imported_again(old: str, new: str) -> None:
    assert swaps("changing.py", SOURCE, SOURCE.replace(old, new)) is None


def test_a_function_that_ran_during_the_import_is_recognised() -> None:
    ran = swaps("changing.py", SOURCE, SOURCE.replace("number * 2", "number * 3"))
    not_ran = swaps("changing.py", SOURCE, SOURCE.replace("at + self", "at - self"))
    assert ran
    assert not_ran
    imported = {2, 4, 5, 7, 8, 10, 11, 13, 14}
    assert within(ran, imported)
    assert not within(not_ran, imported)
