import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from raidproof.cli.main import main
from raidproof.cli.reference.schema import SUFFIX, published, text_of, write_all
from raidproof.core.errors import Status

HOME = Path(__file__).resolve().parents[3]
STORED = HOME / "docs" / "schema"


@pytest.mark.parametrize("name", published())
def test_the_stored_schema_is_the_programs(name: str) -> None:
    again = "./raidproof schema --write docs/schema"
    assert (STORED / f"{name}{SUFFIX}").read_text() == text_of(name, published(built_in=True)[name]) + "\n", again


def test_no_other_schema_is_stored() -> None:
    assert {path.name for path in STORED.iterdir()} == {f"{name}{SUFFIX}" for name in published()}


@pytest.mark.parametrize("name", published())
def test_a_schema_is_valid_and_says_which_one_it_is(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", name]) == Status.PASS
    schema = json.loads(capsys.readouterr().out)
    Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"urn:raidproof:schema:{name}:{schema['version']}"
    assert schema["title"].startswith("raidproof: ")


def test_fields_are_described(capsys: pytest.CaptureFixture[str]) -> None:
    main(["schema", "run"])
    cell = json.loads(capsys.readouterr().out)["$defs"]["CellRecord"]["properties"]
    assert cell["lost_operations"]["description"].startswith("Number of lost acknowledged operations")


def test_names_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == Status.PASS
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(published())


def test_an_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "plann"]) == Status.BAD_REQUEST
    assert "did you mean 'plan'?" in capsys.readouterr().err


def test_files_of_other_schemas_are_removed_and_other_files_stay(tmp_path: Path) -> None:
    for name in (f"old{SUFFIX}", "README.md"):
        (tmp_path / name).write_text("")
    write_all(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {f"{name}{SUFFIX}" for name in published()} | {"README.md"}


def test_a_folder_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["schema", "--write", str(tmp_path / "file")]) == Status.BAD_REQUEST
    assert "cannot write schemas to" in capsys.readouterr().err


def wrong(plan: dict[str, Any]) -> list[str]:
    schema = json.loads((STORED / f"plan{SUFFIX}").read_text())
    return [error.json_path for error in Draft202012Validator(schema).iter_errors(plan)]


PLANS = [path for path in (HOME / "scenarios").glob("**/plans/*.toml") if "[[workload]]" in path.read_text()]
EXAMPLES = re.findall(r"^```toml\n(.*?)^```", (HOME / "docs" / "plans.md").read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_every_plan_fits_its_schema(path: Path) -> None:
    assert wrong(tomllib.loads(path.read_text())) == []


@pytest.mark.parametrize("text", [text for text in EXAMPLES if "[[workload]]" in text])
def test_every_example_fits_its_schema(text: str) -> None:
    assert wrong(tomllib.loads(text)) == []


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("axes.levle = [5]", "$.axes"),
        ("axes.level = [7]", "$.axes.level[0]"),
        ("axes.level = 5", "$.axes.level"),
        ('axes.export = ["snyc"]', "$.axes.export[0]"),
        ('axes.chunk = ["64 KiB each"]', "$.axes.chunk[0]"),
        ("fixed.vers = 5", "$.fixed.vers"),
        ('hardware.disks.profile = "no-such-drive"', "$.hardware.disks"),
        ('hardware.memory.server = "much!"', "$.hardware.memory.server"),
        ("run.repeats = 0", "$.run.repeats"),
        ('run.provider = "umll"', "$.run.provider"),
        ("hardwar.clients = 1", "$"),
    ],
)
def test_a_mistake_is_found(text: str, path: str) -> None:
    assert wrong(tomllib.loads(f'workload = {{ tool = "dd" }}\n{text}')) == [path]


@pytest.mark.parametrize("work", ['tool = "ddd"', 'tool = "dd", cuont = 4', 'bs = "4k"', 'tool = "fio", preset = "x"'])
def test_a_mistake_in_a_workload_is_found(work: str) -> None:
    assert wrong(tomllib.loads(f"workload = {{ {work} }}")) == ["$.workload"]


@pytest.mark.parametrize(
    "text",
    [
        "axes.vers = [3, 4.2]",
        'axes.vers = ["3", "4.2"]',
        'axes.level = ["raid5", 6, "1+0"]',
        "axes.chunk = [65536]",
        'axes.delay = ["100us"]',
        'hardware.disks = { profile = "my/drive.toml" }',
        'hardware.network.rate = "1Gbit"',
        'run.kernel = "./linux"',
        'fixed."workload.bs" = "4k"',
    ],
)
def test_each_notation_of_a_value_fits(text: str) -> None:
    assert wrong(tomllib.loads(f'workload = {{ tool = "dd" }}\n{text}')) == []
