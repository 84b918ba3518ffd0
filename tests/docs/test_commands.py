"""Every command and every Python snippet of the documents works with this version of the program."""

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import typer.main

import site_commands
import site_output
from raidproof.cli.main import app, main
from raidproof.cli.project_tests import pytest_arguments
from raidproof.core.errors import Status
from site_commands import Shown

HOME = site_commands.HOME
COMMANDS, MENTIONS = site_commands.commands(), site_commands.mentions()
PYTEST = {"scenarios"}
"""Commands whose arguments go to pytest."""
QUICK = re.compile(
    r"(ls( --plan tiny --since 7d| --rebuild)?|show latest(:mail)?|config|schema|man|version|findings( list)?"
    r"|export latest:tiny --output values\.csv|baseline list|history 'level=5 export=sync'|summary RUN)"
)
"""Commands that need no machine and change nothing but files of the current folder."""
DRY = re.compile(r"(run|ab) \S+\.toml(?! --inventory)(?!.*(FOLDER|\.deb|\./| --resume| --against))")
"""Commands that a test runs with --dry-run: they name neither files of the reader nor stored runs."""


def command(words: list[str]) -> tuple[Any, list[str], Any]:
    """Return the command that words name, the words after its name, and the context above."""
    group: Any = typer.main.get_command(app)
    context = group.make_context("raidproof", [], resilient_parsing=True)
    rest = list(words)
    while rest and hasattr(group, "commands") and rest[0] in group.commands:
        group = group.commands[rest.pop(0)]
        if hasattr(group, "commands"):
            context = group.make_context(group.name, [], parent=context, resilient_parsing=True)
    return group, rest, context


def wrong(words: list[str]) -> str | None:
    """Return why raidproof refuses a command line; None if it accepts the line."""
    found, rest, context = command(words)
    if found.name == "raidproof":
        return f"no command {words[0]!r}"
    try:
        found.make_context(found.name, rest, parent=context)
    except typer.TyperException as error:
        return str(error.format_message())
    return None


@pytest.mark.parametrize("shown", COMMANDS, ids=lambda one: f"{one.document}: {one.text}")
def test_raidproof_accepts_the_command(shown: Shown, options: set[str]) -> None:
    if shown.words[0] in PYTEST:
        assert unknown_to_pytest(pytest_arguments(shown.words[1:]), options) == []
    else:
        assert wrong(shown.words) is None


@pytest.mark.parametrize("words", [["rn", "x"], ["run"], ["run", "x", "--jsn"], ["run", "x", "--repeats", "many"]])
def test_a_mistake_in_a_command_is_found(words: list[str]) -> None:
    assert wrong(words)


@pytest.mark.parametrize("shown", MENTIONS, ids=lambda one: f"{one.document}: {one.text}")
def test_a_command_in_a_sentence_exists(shown: Shown) -> None:
    words = re.sub(r"[\[\]|]", " ", shown.text).split()
    if words[0] in {"COMMAND", "--help", "--show-completion"} or words[0] in PYTEST:
        return
    found, rest, _ = command(words)
    assert found.name != "raidproof", f"no command {words[0]!r}"
    own = rest[: rest.index("--")] if "--" in rest else rest
    known = {name for option in found.params for name in option.opts} | {"--help"}
    assert [word for word in own if word.startswith("-") and word not in known] == []


@pytest.fixture
def options(pytestconfig: pytest.Config) -> set[str]:
    """The options of pytest with raidproof's plugins, which this pytest has loaded, too."""
    parser = pytestconfig._parser
    return {name for group in (*parser._groups, parser._anonymous) for one in group.options for name in one.names()}


def unknown_to_pytest(arguments: list[str], options: set[str]) -> list[str]:
    """Return the arguments that pytest would refuse: unknown long options, and paths that do not exist."""
    before = ["", *arguments]
    paths = [word for last, word in zip(before, arguments, strict=False) if "/" in word and not last.startswith("-")]
    named = [word.partition("=")[0] for word in arguments if word.startswith("--")]
    return [
        *(path for path in paths if not (HOME / path.partition("::")[0]).exists()),
        *(option for option in named if option not in options),
    ]


def test_a_mistake_in_the_arguments_of_pytest_is_found(options: set[str]) -> None:
    assert unknown_to_pytest(["scenarios/no_such_test.py", "--kernal", "debian/sid"], options) == [
        "scenarios/no_such_test.py",
        "--kernal",
    ]
    assert unknown_to_pytest(["scenarios/durability", "--kernel", "FOLDER/X"], options) == []


def pytest_calls() -> list[tuple[str, list[str], str]]:
    """Return the calls of pytest that documents show, each with the name and the text of the document."""
    found = []
    for document in site_commands.DOCUMENTS:
        text = document.read_text()
        for line in site_commands.lines(text):
            match = re.match(r"(?:\S*python3? -m |\S*/)?pytest +(.*)", re.split(r" +#", line)[0])
            if match:
                found.append((document.name, shlex.split(match[1]), text))
    return found


@pytest.mark.parametrize(("name", "arguments", "text"), pytest_calls(), ids=lambda one: str(one)[:60])
def test_pytest_accepts_the_arguments(name: str, arguments: list[str], text: str, options: set[str]) -> None:
    there = [word for word in arguments if not (word.endswith(".py") and f"`{word}`" in text)]
    assert unknown_to_pytest(there, options) == [], name


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a reader of the documents: the plans that they show, and a stored run."""
    tutorial = (HOME / "docs" / "tutorial.md").read_text()
    site_output.prepare(tmp_path, tutorial)
    (run,) = (tmp_path / "results").iterdir()
    run.with_name("20261123-010000-tiny").mkdir()
    record = (run / "report.json").read_text().replace(run.name, "20261123-010000-tiny")
    (run.with_name("20261123-010000-tiny") / "report.json").write_text(record)
    for name in {word for shown in COMMANDS for word in shown.words if word.endswith(".toml") and "/" not in word}:
        (tmp_path / name).write_text(site_output.PLAN.findall(tutorial)[0])
    (tmp_path / "scenarios").symlink_to(HOME / "scenarios")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAIDPROOF_CONFIG", "")
    return tmp_path


def chosen(kind: re.Pattern[str]) -> list[str]:
    """Return the commands of all documents that match a pattern."""
    every = [shown.text.replace("\n", " ") for shown in (*COMMANDS, *MENTIONS)]
    return list(dict.fromkeys(text for text in every if kind.fullmatch(text) or (kind is DRY and kind.match(text))))


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("text", chosen(QUICK))
def test_a_quick_command_runs(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(shlex.split(text.replace("RUN", "latest:mail"))) == Status.PASS
    capsys.readouterr()


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("text", chosen(DRY))
def test_a_run_is_possible(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(text)
    sides = {"kernel=A": "kernel=debian/sid", "kernel=B": "kernel=debian/trixie"}
    asked = [sides.get(word, word) for word in words if word not in {"--dry-run", "--json"}]
    # The plan of the tutorial has no axis wsize.
    asked = [word.replace("wsize=8KiB", "export=async") for word in asked]
    assert main([*asked, "--dry-run"]) == Status.PASS, capsys.readouterr().err


def test_the_plan_of_the_readme_is_possible(reader: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (plan,) = site_output.PLAN.findall((HOME / "README.md").read_text())
    (reader / "mine.toml").write_text(plan)
    assert main(["run", "mine.toml", "--dry-run"]) == Status.PASS, capsys.readouterr().err
    assert "cells: 4 of 4 combinations" in capsys.readouterr().out


def test_enough_commands_run() -> None:
    assert len(COMMANDS) > 60
    assert len(chosen(QUICK)) >= 8
    assert len(chosen(DRY)) >= 5


SNIPPETS = site_commands.snippets()


@pytest.mark.parametrize(("name", "code"), SNIPPETS, ids=[f"{name}-{n}" for n, (name, _) in enumerate(SNIPPETS)])
def test_a_snippet_compiles_and_its_imports_exist(name: str, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compile(code, name, "exec")
    # A module of one file that readers copy into their own project.
    for module in re.findall(r"^(?:from|import) (raidproof_\w+)", code, re.MULTILINE):
        for path in sorted((HOME / "vms").rglob(f"{module}.py")):
            monkeypatch.syspath_prepend(str(path.parent))
    # A snippet may be a program, which must not run here.
    imports: list[ast.stmt] = [node for node in ast.parse(code).body if isinstance(node, ast.Import | ast.ImportFrom)]
    exec(compile(ast.Module(imports, []), name, "exec"), {"__name__": "snippet"})  # noqa: S102  the project's documents


def test_the_scenarios_of_the_documents_are_collected(tmp_path: Path) -> None:
    tests = [(name, code) for name, code in SNIPPETS if "def test_" in code]
    assert len(tests) >= 4
    for number, (name, code) in enumerate(tests):
        (tmp_path / f"test_{number}_{Path(name).stem.replace('-', '_')}.py").write_text(code)
    (tmp_path / "scenarios").symlink_to(HOME / "scenarios")
    names = sorted(path.name for path in tmp_path.glob("test_*.py"))
    words = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", f"--rootdir={tmp_path}"]
    ended = subprocess.run([*words, *names], cwd=tmp_path, capture_output=True, text=True, check=False)
    expected = sum(code.count("def test_") for _, code in tests)
    assert ended.returncode == 0, ended.stdout
    assert len(set(re.findall(r"::(test_\w+)", ended.stdout))) == expected
