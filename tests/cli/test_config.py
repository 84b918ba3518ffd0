import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from raidproof.cli.config_files import files
from raidproof.cli.defaults import BUILT_IN, Read, merged, options_of, read
from raidproof.cli.main import main
from raidproof.core.errors import RequestError, Status
from raidproof.core.waiting import wall_clock
from raidproof.record import RunRecord

HOME = Path(__file__).resolve().parents[2]
PLAN = 'workload.tool = "dd"\n'


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in a git work tree, and a user without a file."""
    monkeypatch.delenv("RAIDPROOF_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "tree" / ".git").mkdir(parents=True)
    (tmp_path / "tree" / "below").mkdir()
    (tmp_path / "config" / "raidproof").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "tree" / "below")
    return tmp_path / "tree"


def users(project: Path) -> Path:
    return project.parent / "config" / "raidproof" / "config.toml"


def dry(capsys: pytest.CaptureFixture[str], plan: str = PLAN, *words: str) -> Any:
    Path("plan.toml").write_text(plan)
    assert main(["run", "plan.toml", "--dry-run", "--json", *words]) == Status.PASS
    return json.loads(capsys.readouterr().out)


def test_the_projects_file_is_found_up_to_the_top_of_the_work_tree(project: Path) -> None:
    assert list(files()) == []
    (project.parent / "raidproof.toml").write_text("")  # above the work tree
    assert list(files()) == []
    (project / "raidproof.toml").write_text("")
    users(project).write_text("")
    assert list(files()) == [project / "raidproof.toml", users(project)]
    (project / "below" / "raidproof.toml").write_text("")
    assert next(files()) == project / "below" / "raidproof.toml"


def test_outside_of_a_work_tree_only_the_current_directory_counts(project: Path) -> None:
    (project / ".git").rmdir()
    (project / "raidproof.toml").write_text("")
    assert list(files()) == []


def test_the_variable_names_the_only_file(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "raidproof.toml").write_text("")
    (project / "other.toml").write_text("")
    monkeypatch.setenv("RAIDPROOF_CONFIG", str(project / "other.toml"))
    assert list(files()) == [project / "other.toml"]
    monkeypatch.setenv("RAIDPROOF_CONFIG", "")
    assert list(files()) == []
    monkeypatch.setenv("RAIDPROOF_CONFIG", "no-such.toml")
    with pytest.raises(RequestError, match="no file"):
        list(files())


def test_precedence(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dry(capsys)["repeats"] == 3
    users(project).write_text('repeats = 4\nkernel = "debian/sid"')
    assert dry(capsys)["repeats"] == 4
    (project / "raidproof.toml").write_text("repeats = 5")
    said = dry(capsys)
    assert (said["repeats"], said["platform"]["server"]["kernel"]) == (5, "debian/sid")
    of_plan = PLAN + 'run = { repeats = 6, kernel = "debian/bookworm" }'
    said = dry(capsys, of_plan)
    assert (said["repeats"], said["platform"]["server"]["kernel"]) == (6, "debian/bookworm")
    said = dry(capsys, of_plan, "--repeats", "7", "--kernel", "debian/trixie")
    assert (said["repeats"], said["platform"]["server"]["kernel"]) == (7, "debian/trixie")


def test_the_plans_provider_beats_the_files_inventory(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "raidproof.toml").write_text('inventory = "lab.toml"')
    said = dry(capsys)["platform"]
    assert (said["provider"], said["inventory"]) == ("hosts", str(project / "lab.toml"))
    assert dry(capsys, PLAN + 'run.provider = "qemu"')["platform"]["inventory"] is None
    assert dry(capsys, PLAN, "--provider", "uml")["platform"]["inventory"] is None


def test_software_of_one_role(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "raidproof.toml").write_text('packages = ["a.deb"]\n[server]\nkernel = "./linux"\npackages = ["b.deb"]')
    said = dry(capsys)["platform"]
    assert said["server"]["kernel"] == str(project / "linux")
    assert said["server"]["packages"] == [str(project / "a.deb"), str(project / "b.deb")]
    assert said["clients"]["kernel"] is None


def test_stored_runs_are_searched_in_the_files_directory(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "raidproof.toml").write_text('results = "kept"')
    seen: list[Path] = []

    def run_plan(_matrix: object, _plan: object, results: Path, **_: object) -> tuple[RunRecord, Path]:
        seen.append(results)
        return RunRecord(run="run", started=wall_clock(), command=[]), Path("report.html")

    monkeypatch.setattr("raidproof.run.plan_runner.run_plan", run_plan)
    Path("plan.toml").write_text(PLAN)
    main(["run", "plan.toml"])
    main(["run", "plan.toml", "--results", "here"])
    assert seen == [project / "kept", Path("here")]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("repeat = 3", "unknown key 'repeat'; did you mean 'repeats'?"),
        ('server.kernal = "x"', "server: unknown key 'kernal'; did you mean 'kernel'?"),
        ("repeats = 0", "repeats: "),
        ("repeats =", "not a valid TOML file"),
    ],
)
def test_a_mistake_is_one_line_with_the_file(
    project: Path, capsys: pytest.CaptureFixture[str], text: str, reason: str
) -> None:
    (project / "raidproof.toml").write_text(text)
    assert main(["gc"]) == Status.BAD_REQUEST
    said = capsys.readouterr().err
    assert said.startswith(f"raidproof: {project / 'raidproof.toml'}")
    assert reason in said
    assert said.count("\n") == 1


def test_help_works_in_spite_of_a_mistake(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "raidproof.toml").write_text("repeat = 3")
    assert main(["--help"]) == Status.PASS


def test_each_value_is_shown_with_its_origin(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "raidproof.toml").write_text("repeats = 5")
    users(project).write_text('repeats = 4\nclients.image = "debian/sid"')
    assert main(["config", "--json"]) == Status.PASS
    said = json.loads(capsys.readouterr().out)
    schema = json.loads((HOME / "docs" / "schema" / "settings.schema.json").read_text())
    Draft202012Validator(schema).validate(said)
    shown = {one["key"]: (one["value"], one["origin"]) for one in said["settings"]}
    assert shown["repeats"] == (5, str(project / "raidproof.toml"))
    assert shown["clients.image"] == ("debian/sid", str(users(project)))
    assert shown["provider"] == ("uml", BUILT_IN)
    main(["config"])
    lines = capsys.readouterr().out.splitlines()
    assert f"repeats        5  ({project / 'raidproof.toml'})" in lines


def test_without_a_file(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config"]) == Status.PASS
    assert "no file of defaults" in capsys.readouterr().out


def test_every_key_is_an_option(project: Path) -> None:
    (project / "raidproof.toml").write_text(
        'results = "r"\nprovider = "hosts"\ninventory = "i"\nkernel = "k"\nmodules = "m"\nimage = "i"\n'
        'packages = ["p.deb"]\nrepeats = 1\nseed = 2\nstates = 3\nminutes = 4\ncheckers = 5\n'
        'server.kernel = "s"\nclients.image = "c"\n'
    )
    found = [Read(project / "raidproof.toml", read(project / "raidproof.toml"))]
    assert set(merged(found)) == {
        *read(project / "raidproof.toml").model_fields_set - {"server", "clients"}, "server.kernel", "clients.image"
    }  # fmt: skip
    values = options_of(found)
    assert values["server"] == ["kernel=s"]
    assert values["package"] == [str(project / "p.deb")]
    assert set(values) == {
        "results", "provider", "inventory", "kernel", "modules", "image", "package", "server", "clients", "repeats",
        "seed", "states", "minutes", "checkers",
    }  # fmt: skip


def test_the_schema_knows_every_key() -> None:
    schema = json.loads((HOME / "docs" / "schema" / "config.schema.json").read_text())
    assert [*Draft202012Validator(schema).iter_errors({"repeats": 5, "server": {"kernel": "debian/sid"}})] == []
    assert [*Draft202012Validator(schema).iter_errors({"repeat": 5})]
