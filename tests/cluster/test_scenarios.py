"""Scenarios on a cluster: which files are tasks, and what their results are together."""

from pathlib import Path
from typing import Any

import pytest
from junitparser import JUnitXml

from raidproof.cluster import scenarios as module
from raidproof.cluster.round_pool import RoundPool
from raidproof.cluster.scenarios import Ended, ScenarioFile, ScenarioJob, collected, is_path, run_scenarios_on
from raidproof.cluster.spec import ClusterSpec
from raidproof.core.errors import RequestError, RigError, Status
from tests.cluster.made_up_plan import labs

JUNIT = '<testsuites><testsuite name="s" tests="1"><testcase name="{name}"/></testsuite></testsuites>'


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home" / "scenarios"
    folder.mkdir(parents=True)
    (folder / "test_one.py").write_text("def test_a(): pass\ndef test_b(): pass\n")
    (folder / "test_two.py").write_text("def test_c(): assert False\n")
    return folder.parent


def test_each_file_with_a_selected_scenario_is_a_task(home: Path) -> None:
    assert collected(["scenarios"], home) == ["scenarios/test_one.py", "scenarios/test_two.py"]
    assert collected(["scenarios", "-k", "test_c"], home) == ["scenarios/test_two.py"]
    with pytest.raises(RequestError, match="finds no scenario"):
        collected(["scenarios", "-k", "nothing"], home)


def test_which_arguments_are_paths(home: Path) -> None:
    assert is_path("scenarios", home)
    assert is_path("scenarios/test_one.py::test_a", home)
    assert not any(is_path(word, home) for word in ("-k", "sync", "--exhaustive"))


def test_a_machine_without_the_file_refuses(tmp_path: Path) -> None:
    with pytest.raises(RigError, match="no clone with the file scenarios/test_none"):
        ScenarioJob(()).carried_out(ScenarioFile("scenarios/test_none.py"), tmp_path)


def maker(job: Any, request: ScenarioFile, wanted: Any) -> Ended:
    files = {"run/report.json": request.label.encode()}
    return Ended(
        int(request.label == "test_two"), f"output of {request.label}", JUNIT.format(name=request.label), files
    )


def test_results_of_all_workers_are_together(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:

    with labs(2) as client:

        class Connected:
            def __init__(self, _: ClusterSpec) -> None:
                pass

            def __enter__(self) -> Any:
                return client

            def __exit__(self, *error: object) -> None:
                pass

        monkeypatch.setattr(module, "connected", Connected)
        original = RoundPool.__init__
        monkeypatch.setattr(RoundPool, "__init__", lambda self, client, job: original(self, client, job, maker))
        results = tmp_path / "results"
        status = run_scenarios_on(ClusterSpec(kind="local"), ["scenarios"], home, results)
    assert status is Status.FAIL
    printed = capsys.readouterr().out
    assert "output of test_one" in printed
    assert "output of test_two" in printed
    for name in ("test_one", "test_two"):  # both workers named their run alike
        assert (results / f"scenarios.{name}" / "run" / "report.json").read_text() == name
    names = {case.name for suite in JUnitXml.fromfile(str(results / "junit.xml")) for case in suite}
    assert names == {"test_one", "test_two"}
