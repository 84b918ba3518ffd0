from pathlib import Path

import pytest

from raidproof.core.errors import RequestError
from raidproof.crash.exploration import Budget
from raidproof.crash.page import window as page_window
from raidproof.record.exploration import ExplorationRecord
from raidproof.run.crash_page import data_of, write_pages
from raidproof.run.crash_states import Options
from raidproof.run.exploration import explore_cycle
from raidproof.run.source import source_of
from tests.crash.stored import CYCLE, OnFakes, store_run

STEM = f"explore-{CYCLE}"


def explored(path: Path) -> OnFakes:
    source = OnFakes.of(source_of(store_run(path)))
    explore_cycle(source, Options(Budget(40), checkers=1, explained=0))
    return source


def test_exploration_writes_the_page_and_links_to_it(tmp_path: Path) -> None:
    source = explored(tmp_path)
    assert (tmp_path / f"{STEM}.crash.html").is_file()
    assert f'href="./{STEM}.crash.html"' in (tmp_path / f"{STEM}.html").read_text()
    assert f'href="./{STEM}.crash.html"' in (tmp_path / "report.html").read_text()
    page = data_of(source, STEM)
    record = ExplorationRecord.model_validate_json((tmp_path / f"{STEM}.json").read_text())
    judged = {state.name: state for state in page.states}
    assert {mark.name for mark in record.marks} <= set(judged)
    assert sum(state.outcome == "FAIL" for state in judged.values()) == record.broken > 0
    # The disks of this run have no array: the page says so, and shows no stripes.
    assert page.no_array == "no member has a whole superblock"
    assert page.rows == []


def test_no_page_is_written_unless_requested(tmp_path: Path) -> None:
    explore_cycle(OnFakes.of(source_of(store_run(tmp_path))), Options(Budget(40), checkers=1, crash_page=False))
    assert not (tmp_path / f"{STEM}.crash.html").exists()
    assert "crash.html" not in (tmp_path / f"{STEM}.html").read_text()


def test_a_stored_exploration_gets_its_page(tmp_path: Path) -> None:
    source = explored(tmp_path)
    page = tmp_path / f"{STEM}.crash.html"
    page.unlink()
    assert write_pages(source.store) == [page]
    assert page.is_file()


def test_a_run_without_exploration_has_no_page(tmp_path: Path) -> None:
    store = store_run(tmp_path)
    with pytest.raises(RequestError, match="has no exploration"):
        write_pages(store)
    with pytest.raises(RequestError, match="has no exploration"):
        data_of(source_of(store), STEM)


def test_an_exploration_that_no_page_can_show_goes_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_window, "MOST_REQUESTS", -1)
    explored(tmp_path)
    assert not (tmp_path / f"{STEM}.crash.html").exists()
    assert "crash.html" not in (tmp_path / f"{STEM}.html").read_text()
