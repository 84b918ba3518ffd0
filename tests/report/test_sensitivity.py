"""What a PASS is worth, in the words and figures of reports."""

from xml.etree import ElementTree

from raidproof.record.cell import Explored
from raidproof.record.outcome import Outcome
from raidproof.record.run import CrashTestRecord, RunRecord
from raidproof.record.sensitivity import Defect, Noticed, Sensitivity, Subject
from raidproof.report.html import render as render_page
from raidproof.report.junit import render
from raidproof.report.results.summary import summary_of_run
from raidproof.report.sensitivity import clauses, figures, in_checked, least_sensitive, noticed_in_words, worth
from raidproof.verdict.crash_states import noticed_by
from tests.report.test_terminal import shown

FLUSHES = Sensitivity(defect=Defect.FLUSH_OF_A_MEMBER, instances=963, in_some_state=116, in_this_cut=2)
SAID = "a missing flush of one member would have lost acknowledged data in 116 of 963 cases in some crash state"


def explored(noticed: int | None) -> Explored:
    return Explored(file="a.json", judged=60, broken=0, outcome=Outcome.PASS, reason="so", noticed=noticed)


def safe(run: RunRecord) -> CrashTestRecord:
    """Return the crash test of a stored run that lost nothing, with its sensitivity."""
    cycle = run.cycles[0]
    cycle.sensitivity = [FLUSHES, FLUSHES.model_copy(update={"defect": Defect.FUA, "in_this_cut": None})]
    cycle.explored = [explored(13), explored(None), explored(40)]
    return cycle


def test_each_defect_has_a_clause(run: RunRecord) -> None:
    first, second = clauses(safe(run))
    assert first == f"{SAID}, in 2 in this power cut, in 40 in 60 checked crash states"
    assert second.startswith("a FUA write that is executed without FUA would have lost")
    assert second.endswith("in some crash state"), "the exploration counts flushes"


def test_names_and_the_order_of_requests_have_words_of_their_own(run: RunRecord) -> None:
    cycle = safe(run)
    names = FLUSHES.model_copy(update={"subject": Subject.NAMES, "in_this_cut": None})
    first = FLUSHES.model_copy(update={"defect": Defect.COMMIT_FIRST, "in_this_cut": None})
    cycle.sensitivity = [names, first]
    assert clauses(cycle) == [
        f"{SAID.replace('data', 'changes of names')}",
        "a commit record that is written before the flush that must precede it would have been durable before older "
        "requests in 116 of 963 cases in some crash state",
    ]
    told = figures(cycle)
    assert (told["flushes"], told["flushes_missed_in_checked_states"]) == (None, 40), "the figures are about data"


def test_a_pass_without_a_loss_is_worth_its_first_clause(run: RunRecord) -> None:
    cycle = safe(run)
    assert worth(cycle) == clauses(cycle)[0]
    cycle.outcome = Outcome.INCONCLUSIVE
    assert not worth(cycle)
    losing = run.cycles[1]
    losing.sensitivity = [FLUSHES]
    assert losing.outcome is Outcome.PASS
    assert not worth(losing), "the second crash test loses data"


def test_without_a_write_log_nothing_is_known(run: RunRecord) -> None:
    assert not worth(run.cycles[0])
    assert set(figures(run.cycles[0]).values()) == {None}


def test_junit_has_the_figures(run: RunRecord) -> None:
    safe(run)
    case = next(ElementTree.fromstring(render(run)).iter("testcase"))  # noqa: S314  our own XML
    properties = {str(one.get("name")): one.get("value") for one in case.iter("property")}
    told = {name: value for name, value in properties.items() if name.startswith("flushes")}
    assert told == {
        "flushes": "963",
        "flushes_missed_in_some_state": "116",
        "flushes_missed_in_the_power_cut": "2",
        "flushes_missed_in_checked_states": "40",
    }
    assert properties["crash_states"] == "180", "those of all explorations"
    assert f"sensitivity: {SAID}" in (case.findtext("system-out") or "")


def test_the_summary_has_the_clause(run: RunRecord) -> None:
    safe(run)
    assert f"sync export, honest disks: {SAID}" in summary_of_run(run)


def test_a_table_has_the_number_of_crash_states(run: RunRecord) -> None:
    assert noticed_in_words(noticed_by(safe(run))) == "40 of 963 (with 180 crash states)"
    assert noticed_in_words(Noticed(noticed=2, of=963)) == "2 of 963"
    assert noticed_in_words(None) == "-"


def test_the_page_has_the_figures_of_the_checked_crash_states(run: RunRecord) -> None:
    cycle = safe(run)
    cycle.sensitivity.append(FLUSHES.model_copy(update={"subject": Subject.NAMES}))
    assert [in_checked(cycle, one) for one in cycle.sensitivity] == ["40", "-", "-"]
    page = render_page(run)
    assert ">a loss in 180 checked crash states</th>" in page
    assert f">{Defect.FLUSH_OF_A_MEMBER.value}, changes of names</th>" in page
    cycle.explored = []
    assert [in_checked(cycle, one) for one in cycle.sensitivity] == ["-"] * 3


def test_the_terminal_names_the_power_cut_whose_pass_is_worth_least(plan_run: RunRecord) -> None:
    assert least_sensitive(plan_run.cycles) is None
    assert "least sensitive" not in shown(plan_run, 160)
    (first,) = (one for one in plan_run.cycles if one.name == "sync")
    first.sensitivity = [FLUSHES]
    second = first.model_copy(deep=True, update={"name": "other", "title": "another"})
    second.sensitivity = [FLUSHES.model_copy(update={"in_this_cut": 1})]
    failed = second.model_copy(deep=True, update={"name": "failed", "outcome": Outcome.FAIL})
    plan_run.cycles += [second, failed]
    assert least_sensitive(plan_run.cycles) is second
    text = " ".join(shown(plan_run, 160).split())
    place = plan_run.cycles.index(second) + 1
    said = f"{place} another: least sensitive of the power cuts that passed: {SAID}, in 1 in this power cut"
    assert said in text
