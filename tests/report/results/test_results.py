from pathlib import Path

from raidproof.record.outcome import Outcome
from raidproof.record.results.entry import Kind, RunEntry, State
from raidproof.report.results.results import live, pages_of, render_results

RUN = "20261123-010203-tiny"


def entry(state: State, **more: object) -> RunEntry:
    fields = {"folder": RUN, "path": RUN, "kind": Kind.RUN, "state": state, **more}
    return RunEntry(**fields)


def test_the_report_comes_first(tmp_path: Path) -> None:
    for name in ("explore-cut.html", "report.html", "explore-cut.crash.html", "report.json"):
        (tmp_path / name).write_text("")
    assert pages_of(tmp_path) == [
        ("report.html", "report"),
        ("explore-cut.crash.html", "crash page: cut"),
        ("explore-cut.html", "exploration: cut"),
    ]


def test_outcomes_and_states_are_words(tmp_path: Path) -> None:
    runs = [
        entry(State.ENDED, outcome=Outcome.FAIL, reason="lost <all>"),
        entry(State.UNREADABLE, reason="no record"),
        entry(State.RUNNING),
    ]
    page = render_results(tmp_path, runs, 9)
    for words in ("FAIL", "lost &lt;all&gt;", "unreadable", "no record", "is running", "The newest 3 of 9 runs"):
        assert words in page


def test_an_empty_directory_says_so(tmp_path: Path) -> None:
    assert "This directory has no runs." in render_results(tmp_path, [], 0)


def test_a_running_run_without_progress_is_live(tmp_path: Path) -> None:
    assert live(tmp_path, [entry(State.RUNNING), entry(State.ENDED)]) == [{"run": RUN, "progress": None}]
