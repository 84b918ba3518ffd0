"""Scenarios on a cluster: a task is one file of scenarios, which pytest runs in a process of its own on a worker."""

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from junitparser import JUnitXml

from raidproof.cluster.connection import connected
from raidproof.cluster.round_pool import Done, RoundPool
from raidproof.cluster.spec import ClusterSpec
from raidproof.core.errors import RequestError, RigError, Status, worst
from raidproof.core.files import make_directory, write_durably
from raidproof.core.log import say

COLLECT_S = 120.0
"""Time limit in seconds for the collection of the scenarios."""
END_S = 120.0
"""Time limit in seconds for the end of interrupted scenarios, with their labs."""


@dataclass(frozen=True)
class ScenarioFile:
    """A file of scenarios."""

    path: str
    """Path of the file in the clone, relative to its folder."""

    @property
    def label(self) -> str:
        """Name of the request, for folders and messages."""
        return Path(self.path).stem

    @property
    def folder(self) -> str:
        """Name of the folder of its runs: ``scenarios.nfs.test_locks``. Runs on two workers can have equal names."""
        return ".".join(Path(self.path).with_suffix("").parts)


@dataclass(frozen=True)
class Ended:
    """What pytest made of a file of scenarios."""

    status: int
    """raidproof's exit status."""
    output: str
    """What pytest printed."""
    junit: str
    """The results as JUnit XML."""
    files: dict[str, bytes]
    """Content of the files of the runs, by their path in the folder of results."""


@dataclass(frozen=True)
class ScenarioJob:
    """The options of pytest for all files."""

    options: tuple[str, ...]

    def carried_out(self, request: ScenarioFile, folder: Path) -> Ended:
        """Run the scenarios of a file.

        Raises:
            RigError: raidproof on this machine is no clone with this file.
        """
        home = Path(__file__).resolve().parents[3]
        if not (home / request.path).is_file():
            raise RigError(f"raidproof on this machine is no clone with the file {request.path}")
        results, junit, output = folder / "results", folder / "junit.xml", folder / "pytest.txt"
        words = [request.path, *self.options, f"--junitxml={junit}", f"--results={results}", "-p", "no:xdist"]
        with output.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "raidproof.pytest_plugin", *words], cwd=home, stdout=file, stderr=file
            )
        try:
            status = process.wait()
        except BaseException:
            # pytest ends the labs of an interrupted scenario.
            process.send_signal(signal.SIGINT)
            process.wait(END_S)
            raise
        files = {
            str(file.relative_to(results)): file.read_bytes()
            for file in sorted(results.rglob("*"))
            if file.is_file() and not file.is_symlink()
        }
        return Ended(status, output.read_text(errors="replace"), junit.read_text() if junit.exists() else "", files)


def run_scenarios_on(spec: ClusterSpec, arguments: Sequence[str], home: Path, results: Path) -> Status:
    """Run scenarios on a cluster; print the output of each file as it ends, and return the exit status.

    ``arguments``: those of pytest, without ``--results``. ``home``: the folder of the clone. ``results``: the folder
    for the runs, with a folder for each file; it also gets ``junit.xml`` with the results of all files.

    Raises:
        RequestError: pytest finds no scenario, or an argument is invalid.
        RigError: no worker is left, or the scheduler is lost.
    """
    files = collected(arguments, home)
    options = tuple(word for word in arguments if not is_path(word, home))
    made: list[Done[ScenarioFile, Ended]] = []
    with connected(spec) as client, RoundPool[ScenarioFile, Ended](client, ScenarioJob(options)) as pool:
        for done in pool.results(map(ScenarioFile, files)):
            made.append(done)
            say(f"{len(made)} of {len(files)}: {done.request.path} by worker {done.worker.name}")
            print(done.made.output)  # noqa: T201
            for name, content in done.made.files.items():
                path = results / done.request.folder / name
                make_directory(path.parent, exist_ok=True)
                write_durably(path, content)
    write_junit(results / "junit.xml", (one.made.junit for one in made))
    return worst([Status(one.made.status) for one in made])


def collected(arguments: Sequence[str], home: Path) -> list[str]:
    """Return the paths of the files with selected scenarios, relative to the folder of the clone.

    Raises:
        RequestError: pytest finds none, or an argument is invalid.
    """
    words = [sys.executable, "-m", "pytest", *arguments, "--collect-only", "--quiet", "-p", "no:cacheprovider"]
    ended = subprocess.run(
        words, cwd=home, capture_output=True, text=True, errors="replace", timeout=COLLECT_S, check=False
    )
    files = list(dict.fromkeys(line.partition("::")[0] for line in ended.stdout.splitlines() if "::" in line))
    if not files:
        said = (ended.stderr or ended.stdout).strip().splitlines()
        raise RequestError(f"pytest finds no scenario: {said[-1] if said else 'no output'}")
    return files


def is_path(word: str, home: Path) -> bool:
    """Return whether an argument of pytest selects scenarios by a path: each task has its own path."""
    return not word.startswith("-") and (home / word.partition("::")[0]).exists()


def write_junit(path: Path, parts: Iterator[str]) -> None:
    """Write the results of all files as one JUnit XML file."""
    merged = JUnitXml()
    for part in parts:
        if part:
            merged += JUnitXml.fromstring(part.encode())
    make_directory(path.parent, exist_ok=True)
    merged.write(str(path))
