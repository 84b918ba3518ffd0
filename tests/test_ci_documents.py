"""The recipes for continuous integration and the page of the command line agree with the program."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from raidproof.cli.defaults import Defaults
from raidproof.cli.main import app
from raidproof.cli.reference.man import MEANINGS
from raidproof.cli.reference.schema import SUFFIX, published
from raidproof.core.command import HOST, WIRE, parse_host_packages
from raidproof.core.errors import Status

HOME = Path(__file__).resolve().parents[1]
RECIPES = sorted((HOME / "docs" / "ci").glob("*.yml"))
PAGES = [HOME / "docs" / name for name in ("ci.md", "command-line.md")]
CONTAINERFILE = HOME / "Containerfile"


def lines(part: Any) -> Iterator[str]:
    """Yield each line of each text in a YAML document."""
    if isinstance(part, str):
        yield from part.splitlines()
    elif isinstance(part, dict | list):
        for one in part.values() if isinstance(part, dict) else part:
            yield from lines(one)


def calls(texts: Iterator[str]) -> list[list[str]]:
    """Return the arguments of each call of raidproof."""
    found = []
    for text in texts:
        if match := re.match(r"^\s*(?:\S*/)?raidproof (?!\S*:)(.*)$", text):
            words = shlex.split(re.split(r" >>? |   +|#", match[1])[0])
            found.append(words)
    return found


def unknown(words: list[str]) -> list[str]:
    """Return the command, or the options, that raidproof does not have."""
    command = getattr(typer.main.get_command(app), "commands", {}).get(words[0])
    if command is None:
        return words[:1]
    known = {name for option in command.params for name in option.opts} | {"--help"}
    return [word for word in words[1:] if word.startswith("-") and word not in known]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_is_yaml_and_names_commands_that_exist(recipe: Path) -> None:
    found = calls(lines(yaml.safe_load(recipe.read_text())))
    assert {words[0] for words in found} >= {"doctor", "run", "summary"}
    assert [unknown(words) for words in found if unknown(words)] == []


def test_a_command_or_an_option_that_does_not_exist_is_found() -> None:
    assert calls(iter(["./raidproof/raidproof run x --json > f", "echo raidproof"])) == [["run", "x", "--json"]]
    assert unknown(["rn", "x"]) == ["rn"]
    assert unknown(["run", "x", "--jsn"]) == ["--jsn"]
    assert unknown(["run", "x", "--json"]) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_page_names_commands_that_exist(page: Path) -> None:
    blocks = re.findall(r"^    (\S.*)$", page.read_text(), re.MULTILINE)
    assert [unknown(words) for words in calls(iter(blocks)) if unknown(words)] == []


def test_steps_of_github_are_a_workflow() -> None:
    workflow = yaml.safe_load((HOME / "docs" / "ci" / "github-actions.yml").read_text())
    steps = workflow["jobs"]["raidproof"]["steps"]
    assert all(("run" in step) != ("uses" in step) for step in steps)
    (cached,) = [step["with"]["path"] for step in steps if step.get("uses", "").startswith("actions/cache@")]
    assert workflow["jobs"]["raidproof"]["env"]["RAIDPROOF_CACHE"].endswith(f"/{cached}")
    assert any("GITHUB_STEP_SUMMARY" in step.get("run", "") for step in steps)


def test_the_job_of_gitlab_keeps_cache_and_reports() -> None:
    job = yaml.safe_load((HOME / "docs" / "ci" / "gitlab-ci.yml").read_text())["raidproof"]
    assert job["variables"]["RAIDPROOF_CACHE"].endswith(f"/{job['cache']['paths'][0]}")
    assert job["artifacts"]["reports"]["junit"] == "results/*/junit.xml"


def test_the_container_image_has_every_package_of_the_lists() -> None:
    (script,) = re.findall(r"packages=\$\((.*?)\) \\", CONTAINERFILE.read_text())
    made = subprocess.run(["sh", "-c", script], cwd=HOME, capture_output=True, text=True, check=True)  # noqa: S607
    listed = [one.names for path in (HOST, WIRE) for one in parse_host_packages(path.read_text())]
    assert made.stdout.split() == [names[-1] for names in listed]


def test_the_page_explains_each_option_of_the_container() -> None:
    page = PAGES[0].read_text()
    (named,) = re.findall(r"podman run (--rm(?:.*\\\n)*.*) raidproof demo", CONTAINERFILE.read_text())
    options = set(re.findall(r"--(?:device|cap-add|shm-size|volume) \S+", named))
    assert len(options) == 5
    for option in options:
        for part in re.split(r"[ ,]", option):
            assert part.strip('"').split(":")[0].split("/")[-1] in page


def rows(page: Path, title: str) -> list[list[str]]:
    part = re.split(r"^## ", page.read_text().partition(f"## {title}\n")[2], flags=re.MULTILINE)[0]
    table = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")]
    return table[1:]


def test_every_exit_status_is_documented() -> None:
    table = {int(row[0]): set(row[1].split(", ")) for row in rows(PAGES[1], "Exit statuses")}
    names: dict[int, set[str]] = {}
    for name, status in Status.__members__.items():
        names.setdefault(status.value, set()).add(name)
    assert table == names


def test_the_manual_page_gives_an_exit_status_the_same_meaning() -> None:
    table = {int(row[0]): row[2].replace("`", "") for row in rows(PAGES[1], "Exit statuses")}
    meanings = {status.value: re.sub(r"^[A-Z]+: ", "", text).replace("`", "") for status, text in MEANINGS.items()}
    assert table == meanings


def test_every_key_of_the_file_of_defaults_is_documented() -> None:
    keys = {key for row in rows(PAGES[1], "Defaults in files") for key in re.findall(r"`(\w+)`", row[0])}
    assert keys == set(Defaults.model_fields)


def test_every_schema_is_documented() -> None:
    text = PAGES[0].read_text()
    assert all(f"schema/{name}{SUFFIX}" in text for name in published())
