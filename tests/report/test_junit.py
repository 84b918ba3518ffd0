from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raidproof.record.outcome import Outcome
from raidproof.record.run import ControlSpec, RunRecord
from raidproof.report.junit import render, write_junit


def cases(record: RunRecord) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(render(record)).iter("testcase"))  # noqa: S314  our own XML


def test_one_case_a_cycle(run: RunRecord, tmp_path: Path) -> None:
    write_junit(run, tmp_path / "junit.xml")
    suite = ElementTree.parse(tmp_path / "junit.xml").find("testsuite")  # noqa: S314
    assert suite is not None
    assert [case.get("name") for case in suite.iter("testcase")] == [
        "sync export, honest disks",
        "async export, honest disks",
        "control: sync export, lying disks",
        "control: sync export, clean reboot",
    ]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("4", "0", "0")
    properties = {one.get("name"): one.get("value") for one in suite.findall("properties/property")}
    assert properties["SAFE"] == "sync export, honest disks"
    assert properties["LOSES DATA"] == "async export, honest disks"
    assert suite.get("time") == "97.4"


def test_the_title_of_a_control_has_the_word_once(run: RunRecord, plan_run: RunRecord) -> None:
    for record in (run, plan_run):
        for cycle in record.cycles:
            if cycle.control is not None:
                cycle.title = "control: lying disks"
    titles = [str(case.get("name")) for record in (run, plan_run) for case in cases(record)]
    assert titles.count("control: lying disks") == sum("control" in title for title in titles) > 0


def test_a_case_says_whether_its_configuration_is_safe(run: RunRecord) -> None:
    told = [{one.get("name"): one.get("value") for one in case.iter("property")} for case in cases(run)]
    assert [one["safety"] for one in told] == ["SAFE", "LOSES DATA", "LOSES DATA", "NOT SHOWN"]
    assert (
        told[1]["safety_size"] == "20,047 of 20,183 acknowledged operations lost, the earliest 2.9 s before the fault"
    )
    assert "LOSES DATA: 20,047 of 20,183" in (cases(run)[1].findtext("system-out") or "")


@pytest.mark.parametrize(
    ("outcome", "tag"),
    [
        (Outcome.FAIL, "failure"),
        (Outcome.ERROR, "error"),
        (Outcome.INVALID, "error"),
        (Outcome.INCONCLUSIVE, "error"),
        (Outcome.SKIP, "skipped"),
    ],
)
def test_each_end_has_its_element(run: RunRecord, outcome: Outcome, tag: str) -> None:
    run.cycles[1].outcome, run.cycles[1].reason = outcome, "because"
    run.outcome = outcome
    [element] = [element for element in cases(run)[1] if element.tag not in {"system-out", "properties"}]
    assert (element.tag, element.get("type"), element.get("message")) == (tag, outcome.value, "because")


def test_nothing_is_green_in_an_invalid_run(invalid_run: RunRecord) -> None:
    found = cases(invalid_run)
    assert found[2].find("error") is not None
    assert all(case.find("skipped") is not None for place, case in enumerate(found) if place != 2)


def test_an_end_that_no_cycle_shows_is_not_lost(run: RunRecord) -> None:
    run.outcome, run.reason = Outcome.ERROR, "the lab did not stop"
    error = cases(run)[-1].find("error")
    assert error is not None
    assert error.get("message") == "the lab did not stop"


def test_one_case_a_cell_with_its_figures(plan_run: RunRecord) -> None:
    found = {case.get("name"): case for case in cases(plan_run)}
    assert len(found) == len(plan_run.cells) + len(plan_run.cycles)
    first = found["level=10 chunk=64KiB export=sync"]
    properties = {one.get("name"): one.get("value") for one in first.iter("property")}
    assert (properties["median"], properties["unit"], properties["rank"]) == ("112.4", "write_mb_s", "1")
    assert properties["lost"] == "0 of 1,518"
    assert (properties["safety"], properties["safety_size"]) == ("SAFE", "all 1,518 acknowledged operations survived")
    assert [one.tag for one in first] == ["properties", "system-out"]
    unranked = found["level=10 chunk=64KiB export=async"]
    names = {one.get("name") for one in unranked.iter("property")}
    assert "rank" not in names
    assert "why_not_ranked" in names


def test_a_cell_ends_as_a_cycle_does(plan_run: RunRecord) -> None:
    found = {case.get("name"): case for case in cases(plan_run)}
    assert found["level=5 chunk=16KiB export=async"].find("error") is not None
    assert found["level=6 chunk=64KiB export=sync"].find("failure") is not None
    assert found["power cut: level=5 chunk=16KiB export=async"].find("error") is not None
    plan_run.cycles.append(
        plan_run.cycles[0].model_copy(
            update={"name": "c", "control": ControlSpec(expects_loss=True), "outcome": Outcome.INVALID}
        )
    )
    assert all(
        case.find("skipped") is not None or case.find("error") is not None or case.find("failure") is not None
        for case in cases(plan_run)
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text())
def test_whatever_a_console_says_is_valid_xml(run: RunRecord, text: str) -> None:
    run.cycles[0].title = run.cycles[0].reason = run.reason = f"<b>{text}"
    run.cycles[0].outcome = Outcome.FAIL
    assert "<b>" in (cases(run)[0].get("name") or "")


def properties(element: ElementTree.Element) -> dict[str | None, str | None]:
    return {one.get("name"): one.get("value") for one in element.findall("properties/property")}


def test_each_case_says_what_was_tested_and_its_outcome(run: RunRecord) -> None:
    assert run.environment is not None
    for case in cases(run):
        shown = properties(case)
        assert shown["outcome"] == "PASS"
        assert shown["provider"] == run.environment.provider
        assert shown["kernel"] == run.environment.kernels


def test_cells_name_their_plan(plan_run: RunRecord) -> None:
    assert plan_run.plan is not None
    assert {properties(case).get("plan") for case in cases(plan_run)} == {plan_run.plan.path}
    outcomes = {case.get("name"): properties(case)["outcome"] for case in cases(plan_run)}
    assert {cell.name: cell.outcome.value for cell in plan_run.cells}.items() <= outcomes.items()


def test_an_outcome_that_does_not_count_is_still_shown(invalid_run: RunRecord) -> None:
    shown = [(properties(case)["outcome"], case.find("skipped") is not None) for case in cases(invalid_run)]
    assert ("PASS", True) in shown
    assert ("PASS", False) not in shown


def test_a_run_without_machines_names_neither_kernel_nor_plan(run: RunRecord) -> None:
    run.environment, run.topology, run.plan = None, {}, None
    assert {"kernel", "provider", "plan"}.isdisjoint(properties(cases(run)[0]))
