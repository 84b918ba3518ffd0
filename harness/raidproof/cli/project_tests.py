"""`raidproof scenarios` and `raidproof test`: the project's own tests, in a clone."""

import configparser
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from raidproof.core.errors import RequestError, Status, nearest
from raidproof.core.waiting import interrupted

HOME = Path(__file__).resolve().parents[3]
"""The folder of the clone, if raidproof runs from a clone."""
TO_PYTEST = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
"""Settings of the command `scenarios`, which passes its arguments to pytest."""


def run_tests(
    parts: Annotated[
        list[str] | None,
        typer.Argument(help="lint, type, docs, unit, core (default: these five); rest, all, fuzz, soak"),
    ] = None,
) -> None:
    """Run linter, type checker, the build of the documents, unit tests, then the core of the scenarios.

    `all` also runs the rest of the scenarios. `fuzz` runs unit tests with newly generated examples. `soak` runs 1,000
    crash tests that a seed draws from configurations and faults, half of them while the host's processors are busy.
    """
    require_clone()
    from tox.run import main as tox  # noqa: PLC0415

    arguments = tox_arguments(parts or [], Parts.read((HOME / "tox.ini").read_text()))
    # In this process, so that SIGTERM interrupts tox as Ctrl-C does, and tox ends the programs that it runs.
    failed = tox(arguments) != Status.PASS
    raise typer.Exit(Status.INTERRUPTED if interrupted() else Status.FAIL if failed else Status.PASS)


def scenarios(arguments: Annotated[list[str] | None, typer.Argument(help="pytest's arguments")] = None) -> None:
    """Run the end-to-end scenarios. All arguments but --cluster CLUSTER are passed to pytest."""
    require_clone()
    os.chdir(HOME)
    cluster, others = without_option(arguments or [], "--cluster")
    if cluster is not None:
        from raidproof.cluster.scenarios import run_scenarios_on  # noqa: PLC0415
        from raidproof.cluster.spec import ClusterSpec  # noqa: PLC0415

        results, others = without_option(others, "--results")
        words = pytest_arguments(others)
        raise typer.Exit(run_scenarios_on(ClusterSpec.read(cluster), words, HOME, Path(results or "results")))
    # Replace this process, so that pytest itself receives the signals.
    words = [sys.executable, "-m", "raidproof.pytest_plugin", *pytest_arguments(arguments or [])]
    os.execv(sys.executable, words)  # noqa: S606


def require_clone() -> None:
    """Check that raidproof runs from a clone of the project, which has the project's tests.

    Raises:
        RequestError: raidproof runs from an installed package.
    """
    if not (HOME / "tox.ini").is_file():
        remedy = "run ./raidproof in a clone of the project; for your own tests, run pytest, which loads the plugin"
        raise RequestError("the project's tests and scenarios are not part of an installed raidproof", remedy=remedy)


@dataclass(frozen=True)
class Parts:
    """The parts of the project's tests, which tox.ini defines as environments."""

    usual: tuple[str, ...]
    """The parts that run by default."""
    labels: Mapping[str, tuple[str, ...]]
    """For each name of several parts: these parts."""
    known: tuple[str, ...]
    """All parts."""

    @classmethod
    def read(cls, ini: str) -> "Parts":
        """Return the parts that a tox.ini with this content defines."""
        parser = configparser.ConfigParser(interpolation=None)
        parser.read_string(ini)
        lines = parser["tox"]["labels"].strip().splitlines()
        labels = {name.strip(): names(listed) for name, _, listed in (line.partition("=") for line in lines)}
        known = [name.removeprefix("testenv:") for name in parser.sections() if name.startswith("testenv:")]
        return cls(names(parser["tox"]["env_list"]), labels, tuple(known))


def names(text: str) -> tuple[str, ...]:
    """Return the names in a list of tox.ini, which commas or line ends separate."""
    return tuple(name.strip() for name in text.replace(",", "\n").splitlines() if name.strip())


def tox_arguments(requested: Sequence[str], parts: Parts) -> list[str]:
    """Return the arguments with which tox runs the requested parts in the current Python environment.

    Raises:
        RequestError: tox.ini defines neither an environment nor a label with a requested name.
    """
    chosen: list[str] = []
    for name in requested:
        if name not in parts.known and name not in parts.labels:
            raise RequestError(
                f"unknown part of the tests: {name!r}", remedy=nearest(name, [*parts.known, *parts.labels])
            )
        chosen += parts.labels.get(name, (name,))
    config = ["--conf", str(HOME / "tox.ini")]
    return ["run", "--current-env", *config, "-e", ",".join(dict.fromkeys(chosen or parts.usual))]


def without_option(arguments: Sequence[str], name: str) -> tuple[str | None, list[str]]:
    """Return the value of an option, None without it, and the other arguments.

    Raises:
        RequestError: the option has no value.
    """
    others = list(arguments)
    for place, word in enumerate(others):
        if word.startswith(f"{name}="):
            return word.partition("=")[2], [*others[:place], *others[place + 1 :]]
        if word == name:
            if place + 1 == len(others):
                raise RequestError(f"{name} needs a value")
            return others[place + 1], [*others[:place], *others[place + 2 :]]
    return None, others


def pytest_arguments(arguments: Sequence[str]) -> list[str]:
    """Return pytest's arguments, with ``scenarios`` added unless one names a path there, or a file of tests."""
    tests = ("scenarios", "findings", ".py")
    named = any(not argument.startswith("-") and any(one in argument for one in tests) for argument in arguments)
    return [*arguments] if named else ["scenarios", *arguments]
