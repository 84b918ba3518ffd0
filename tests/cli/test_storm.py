"""The options of `raidproof storm`."""

from pathlib import Path
from typing import Any

import pytest

from raidproof.cli.main import main
from raidproof.cli.storm import seeds_of
from raidproof.core.errors import RequestError, Status
from raidproof.record.outcome import Outcome
from tests.report.test_storm import record

PLAN = Path(__file__).resolve().parents[2] / "scenarios" / "plans" / "tiny.toml"


@pytest.mark.parametrize(("text", "seeds"), [("1-200", range(1, 201)), ("17", range(17, 18)), (" 3-3 ", range(3, 4))])
def test_seeds_are_a_number_or_a_range(text: str, seeds: range) -> None:
    assert seeds_of(text) == seeds


@pytest.mark.parametrize("text", ["", "x", "5-1", "1,2", "1-", "-1"])
def test_what_is_not_a_range_of_seeds_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="write for example 1-200"):
        seeds_of(text)


def test_the_options_reach_the_storm_and_the_outcome_decides_the_status(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given: list[Any] = []

    def run(matrix: Any, results: Path, seeds: range, **options: Any) -> Any:
        given.append((len(matrix.cells), results, seeds, options))
        return record(), tmp_path / "storm.html"

    monkeypatch.setattr("raidproof.run.storm.storm.run_storm", run)
    asked = ["storm", str(PLAN), "-k", "level=10", "--seeds", "3-5", "--minutes", "2", "--beyond", "--resume"]
    kinds = ["--fault", "power-cut", "--fault", "network-cut", "--results", str(tmp_path)]
    assert main([*asked, *kinds]) == Status[Outcome.FAIL.name]
    cells, results, seeds, options = given[0]
    assert (cells, results, seeds) == (2, tmp_path, range(3, 6))
    assert options.pop("platform").provider == "uml"
    assert options == {"minutes": 2.0, "kinds": ["network-cut", "power-cut"], "beyond": True, "resume": True}
    assert "seeds 3, 5: it is FAIL" in capsys.readouterr().out
    assert main(["storm", str(PLAN), "--fault", "power-cutt"]) == Status.BAD_REQUEST
    assert "did you mean 'power-cut'" in capsys.readouterr().err
