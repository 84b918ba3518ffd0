"""An installed raidproof is complete and works in every folder."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[1]
OWN_TEST = """
def test_fixtures_are_there(request):
    for fixture in ("cycle", "explore", "lab", "campaign"):
        assert request._fixturemanager.getfixturedefs(fixture, request.node), fixture
"""

Installed = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Builds a wheel of a copy of the sources, unpacks it, and runs its modules in an empty folder."""
    copy, target, empty = (tmp_path_factory.mktemp(name) for name in ("copy", "target", "empty"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(HOME / name, copy)
    for name in ("harness", "vms"):
        shutil.copytree(
            HOME / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__")
        )
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    built = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(copy / "dist"), str(copy)]
    subprocess.run(built, check=True, capture_output=True, text=True)
    (wheel,) = (copy / "dist").glob("raidproof-*.whl")
    subprocess.run(
        [*pip, "install", "--no-deps", "--target", str(target), str(wheel)], check=True, capture_output=True
    )

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(target)}
        command = [sys.executable, "-P", *words]
        return subprocess.run(command, cwd=empty, env=environment, capture_output=True, text=True, check=False)

    where = run("-c", "import raidproof; print(raidproof.__file__)")
    assert Path(where.stdout.strip()).is_relative_to(target), where
    return run


def test_the_doctor_finds_its_lists(installed: Installed) -> None:
    said = installed("-m", "raidproof", "doctor")
    assert "provider uml" in said.stdout, said.stderr


def test_kernels_and_images_are_known(installed: Installed) -> None:
    code = "from raidproof.image import kernel, recipe; print(recipe.names(), kernel.DEFAULT)"
    said = installed("-c", code)
    assert "debian/trixie" in said.stdout, said.stderr


def test_a_foreign_test_has_the_fixtures(installed: Installed, tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(OWN_TEST)
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={tmp_path}")
    said = installed(*words, str(tmp_path / "test_mine.py"))
    assert "1 passed" in said.stdout, said


def test_commands_that_need_a_clone_are_refused(installed: Installed) -> None:
    for command in (["test", "lint"], ["scenarios"]):
        said = installed("-m", "raidproof", *command)
        assert said.returncode == 2, said
        assert "a clone" in said.stderr
