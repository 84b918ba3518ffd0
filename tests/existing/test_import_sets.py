"""Each set of files in tests/data/servers gives a plan that --dry-run accepts, or a refusal in one line."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from raidproof.cli.main import main
from raidproof.core.errors import Status
from tests.existing.servers import NAMES, SERVERS, arguments, expectation

PLANS = [name for name in NAMES if "refused" not in expectation(name)]
REFUSED = [name for name in NAMES if "refused" in expectation(name)]


def out_of(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(words) == Status.PASS
    return json.loads(capsys.readouterr().out)


def test_there_are_at_least_twenty_sets() -> None:
    assert len(PLANS) + len(REFUSED) >= 20
    assert len(REFUSED) >= 5


@pytest.mark.parametrize("name", PLANS)
def test_a_set_gives_a_plan_that_a_dry_run_accepts(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, expected = tmp_path / "plan.toml", expectation(name)
    (found,) = out_of(capsys, *arguments(name), "--output", str(plan), "--json")["exports"]
    document = tomllib.loads(plan.read_text())
    assert found["plan"] == plan.read_text()
    values = {key: fact["value"] for key, fact in found["server"]["settings"].items()}
    assert {key: values.get(key) for key in expected["fixed"]} == expected["fixed"]
    assert not set(expected.get("absent", ())) & values.keys()
    drives = [(group["profile"], group["count"]) for group in document["hardware"]["disks"]]
    assert [profile for profile, count in drives for _ in range(count)] == expected["profiles"]
    for kind in ("left_out", "stand_ins"):
        those = [one["what"] for one in found["server"][kind]]
        for word in expected.get(kind, ()):
            assert any(word in what for what in those), (word, those)
    appliance = found["server"]["appliance"]
    assert (appliance["value"] if appliance else None) == expected.get("appliance")
    dry = out_of(capsys, "run", str(plan), "--dry-run", "--json")
    assert found["server"]["alternatives"] == expected.get("alternatives", [])
    assert len(dry["cells"]) == 2 ** (1 + len(expected.get("alternatives", [])))
    assert not dry["impossible"]
    assert all(cell["ceiling"]["mb_s"] > 0 for cell in dry["cells"])


@pytest.mark.parametrize("name", PLANS)
def test_the_warnings_of_a_set(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    expected = expectation(name)
    (found,) = out_of(capsys, *arguments(name), "--json")["exports"]
    fired = [one["rule"] for one in found["warnings"]]
    assert set(expected["warnings"]) <= set(fired)
    assert not set(expected.get("silent", ())) & set(fired)


@pytest.mark.parametrize("name", REFUSED)
def test_a_set_without_a_possible_plan_is_refused_in_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    expected = expectation(name)
    assert main(arguments(name)) == Status.BAD_REQUEST
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert expected["refused"] in said
    assert expected.get("remedy", "(") in said
    assert ("layout of" in said) == ("appliance" in expected)
    assert expected.get("appliance", "") in said


def test_each_value_in_a_plan_has_its_source_or_is_a_default(capsys: pytest.CaptureFixture[str]) -> None:
    name = "debian-11-raid5-xfs"
    assert main(arguments(name)) == Status.PASS
    lines = capsys.readouterr().out.splitlines()
    fixed = lines[lines.index("[fixed]") + 1 :]
    values = [place for place, line in enumerate(fixed) if " = " in line and not line.startswith("#")]
    values = values[: next(number for number, place in enumerate(values) if fixed[place].startswith("name"))]
    assert len(values) > 10
    assert all(fixed[place - 1].startswith("# ") for place in values)
    assert f"# {SERVERS / name / 'mdadm.txt'}:1" in fixed
    assert any(line.startswith("# DEFAULT: ") for line in fixed)


def test_btrfs_on_md_can_be_imported_with_another_file_system(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*arguments("synology-dsm-7-btrfs"), "--filesystem", "ext4", "--json"]
    (found,) = out_of(capsys, *words)["exports"]
    assert found["server"]["settings"]["filesystem"] == {
        "value": "ext4",
        "source": None,
        "why_default": "chosen by --filesystem",
    }


def test_a_plan_is_never_overwritten_without_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text("mine")
    words = [*arguments("debian-11-raid5-xfs"), "-o", str(plan)]
    assert main(words) == Status.BAD_REQUEST
    assert "already exists (give another name, or --force" in capsys.readouterr().err
    assert plan.read_text() == "mine"
    assert main([*words, "--force"]) == Status.PASS
    assert "[fixed]" in plan.read_text()


def test_several_exports_are_chosen_by_path_or_written_to_a_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exports = tmp_path / "exports"
    exports.write_text("/srv/data/a *(rw,sync)\n/srv/data/b *(rw,async)\n/elsewhere *(rw)\n")
    words = arguments("debian-11-raid5-xfs")
    words[words.index("--exports") + 1] = str(exports)
    assert main(words) == Status.BAD_REQUEST
    assert "3 exports are writable: /srv/data/a, /srv/data/b, /elsewhere" in capsys.readouterr().err
    (one,) = out_of(capsys, *words, "--export", "/srv/data/b", "--json")["exports"]
    assert one["server"]["settings"]["export"]["value"] is False
    folder = tmp_path / "plans"
    folder.mkdir()
    every = out_of(capsys, *words, "-o", str(folder), "--json")["exports"]
    assert sorted(path.name for path in folder.iterdir()) == ["srv-data-a.toml", "srv-data-b.toml"]
    assert every[2]["plan"] is None
    assert "/elsewhere is not on an md array" in every[2]["refused"]


def test_exports_whose_plans_would_have_the_same_name_have_plans_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exports = tmp_path / "exports"
    exports.write_text("/srv/data/a.b *(rw,sync)\n/srv/data/a-b *(rw,async)\n/srv/data/a-b-2 *(rw,sync)\n")
    words = arguments("debian-11-raid5-xfs")
    words[words.index("--exports") + 1] = str(exports)
    folder = tmp_path / "plans"
    folder.mkdir()
    every = out_of(capsys, *words, "-o", str(folder), "--force", "--json")["exports"]
    assert len({one["file"] for one in every}) == 3
    assert {one["file"]: one["plan"] for one in every} == {str(path): path.read_text() for path in folder.iterdir()}


def test_no_plan_is_written_if_one_file_exists(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exports = tmp_path / "exports"
    exports.write_text("/srv/data/a *(rw,sync)\n/srv/data/b *(rw,async)\n")
    words = arguments("debian-11-raid5-xfs")
    words[words.index("--exports") + 1] = str(exports)
    folder = tmp_path / "plans"
    folder.mkdir()
    (folder / "srv-data-b.toml").write_text("mine")
    assert main([*words, "-o", str(folder)]) == Status.BAD_REQUEST
    assert "srv-data-b.toml already exists" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["srv-data-b.toml"]


def test_without_a_file_nothing_is_imported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import"]) == Status.BAD_REQUEST
    assert "no file of the server is given" in capsys.readouterr().err


def test_a_plan_that_cannot_be_written_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*arguments("debian-11-raid5-xfs"), "-o", str(tmp_path / "none" / "plan.toml")]) == Status.BAD_REQUEST
    assert "cannot write" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_exports_of_a_directory_are_read_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "exports.d"
    folder.mkdir()
    (folder / "data.exports").write_text("/srv/data *(rw,async)\n")
    (folder / "ignored.txt").write_text("(")
    words = arguments("debian-11-raid5-xfs")
    words[words.index("--exports") + 1] = str(folder)
    (found,) = out_of(capsys, *words, "--json")["exports"]
    assert found["server"]["settings"]["export"]["source"] == f"{folder / 'data.exports'}:1"
