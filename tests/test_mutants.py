"""Mutation testing begins with a run on unchanged code, in a copy of the tree: what the copy has, what is imported."""

import sys
from pathlib import Path

import pytest

from raidproof.core.command import run

pytest.importorskip("cosmic_ray", reason="the mutation extra is not installed")
pytest.importorskip("coverage", reason="the mutation extra is not installed")
from benchmarks.mutants import ROOT, in_copy, left_out

NOTED = """
import sys
from pathlib import Path
from benchmarks import mutant_tests
mutant_tests.EVERYTHING = ("test_it.py",)
mutant_tests.noted(Path(sys.argv[1]), None)
"""


def test_packages_named_as_the_folder_of_results_are_copied() -> None:
    names = ["results", "build", "verdict", "__pycache__", ".venv.d", ".git"]
    assert left_out(str(ROOT), names) == {"results", "build", "__pycache__", ".venv.d", ".git"}
    assert left_out(str(ROOT / "harness" / "raidproof" / "record"), names) == {"__pycache__", ".venv.d", ".git"}


@pytest.mark.parametrize(
    ("folder", "copied"),
    [
        (ROOT, Path("/copy")),
        (ROOT / "harness", Path("/copy/harness")),
        (ROOT / "scenarios" / "suites", Path("/copy/scenarios/suites")),
        (ROOT / ".venv" / "lib", None),
        (ROOT.parent, None),
    ],
)
def test_no_folder_of_the_tree_is_imported_from(folder: Path, copied: Path | None) -> None:
    assert in_copy(folder, Path("/copy")) == (copied or folder.resolve())


@pytest.mark.parametrize(
    ("test", "said"),
    [
        ("def test_red() -> None:\n    assert 2 + 2 == 5\n", "assert (2 + 2) == 5"),
        ("import absent_module\n", "No module named 'absent_module'"),
    ],
)
def test_a_test_that_fails_on_unchanged_code_is_named_with_its_reason(tmp_path: Path, test: str, said: str) -> None:
    tree = tmp_path / "tree"
    (tree / "harness").mkdir(parents=True)
    (tree / "tests").mkdir()
    (tree / "conftest.py").write_text("")
    (tree / "tests" / "test_it.py").write_text(test)
    # In a process of its own: the program forks, and pytest captures the output of this process.
    ended = run([sys.executable, "-c", NOTED, str(tree)], environment={"PYTHONPATH": str(ROOT)})
    assert ended.status == 1
    assert ended.stderr.startswith("a test fails on the unchanged code: tests/test_it.py")
    assert said in ended.stderr
