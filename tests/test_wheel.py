"""An installed raidproof is complete and works in every folder."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[1]
OWN_TEST = """
def test_fixtures_are_there(request):
    for fixture in ("cycle", "explore", "lab", "current_run"):
        assert request._fixturemanager.getfixturedefs(fixture, request.node), fixture
"""

SUITES_TEST = """
def test_the_plugin_is_there(request):
    assert request._fixturemanager.getfixturedefs("suite", request.node)
    assert request.config.option.suite_path == ["fsx=/bin/fsx"]
"""

Installed = Callable[..., subprocess.CompletedProcess[str]]
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


def install_wheel(copy: Path, target: Path) -> None:
    """Build a wheel of a copy of a distribution's sources, and install it into a folder."""
    built = [*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(copy / "dist"), str(copy)]
    subprocess.run(built, check=True, capture_output=True, text=True)
    (wheel,) = (copy / "dist").glob("*.whl")
    unpacked = [*PIP, "install", "--no-deps", "--target", str(target), str(wheel)]
    subprocess.run(unpacked, check=True, capture_output=True)


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
    shutil.copytree(HOME / "docs" / "man", copy / "docs" / "man")
    install_wheel(copy, target)

    def run(*words: str, others: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(target), *others])}
        command = [sys.executable, "-P", *words]
        return subprocess.run(command, cwd=empty, env=environment, capture_output=True, text=True, check=False)

    where = run("-c", "import raidproof; print(raidproof.__file__)")
    assert Path(where.stdout.strip()).is_relative_to(target), where
    return run


def test_the_doctor_finds_its_lists(installed: Installed) -> None:
    said = installed("-m", "raidproof", "doctor")
    assert "provider uml" in said.stdout, said.stderr


def test_the_manual_page_is_installed(installed: Installed) -> None:
    where = installed("-c", "import raidproof; print(raidproof.__file__)").stdout.strip()
    page = Path(where).parents[1] / "share" / "man" / "man1" / "raidproof.1"
    assert page.read_text() == installed("-m", "raidproof", "man").stdout


def test_kernels_and_images_are_known(installed: Installed) -> None:
    code = "from raidproof.image import kernel, recipe; print(recipe.names(), kernel.DEFAULT)"
    said = installed("-c", code)
    assert "debian/trixie" in said.stdout, said.stderr


def test_a_foreign_test_has_the_fixtures(installed: Installed, tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(OWN_TEST)
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={tmp_path}")
    said = installed(*words, str(tmp_path / "test_mine.py"))
    assert "1 passed" in said.stdout, said


def test_the_suites_are_a_plugin_of_their_own(installed: Installed, tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("*.egg-info", "__pycache__", "build")
    copy = shutil.copytree(HOME / "scenarios" / "suites", tmp_path / "copy", ignore=ignored)
    install_wheel(copy, tmp_path / "plugins")
    (tmp_path / "test_mine.py").write_text(SUITES_TEST)
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={tmp_path}", "--suite-path=fsx=/bin/fsx")
    said = installed(*words, str(tmp_path / "test_mine.py"), others=[str(tmp_path / "plugins")])
    assert "1 passed" in said.stdout, said
    code = "from raidproof.workload.workload import WORKLOADS; print(WORKLOADS['fsx'].__module__)"
    said = installed("-c", code, others=[str(tmp_path / "plugins")])
    assert said.stdout == "raidproof_suites.fsx\n", said.stderr


def test_commands_that_need_a_clone_are_refused(installed: Installed) -> None:
    for command in (["test", "lint"], ["scenarios"]):
        said = installed("-m", "raidproof", *command)
        assert said.returncode == 2, said
        assert "a clone" in said.stderr
