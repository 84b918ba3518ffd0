"""The crash page of a real exploration shows the stripes and files that the exploration found."""

import pytest

from raidproof.crash.journal import lines_of
from raidproof.pytest_plugin.fixtures import CrashTestRunner, Explore, stack_of
from raidproof.record.results.names import JOURNAL, crash_page_of
from raidproof.run.crash_page import data_of
from raidproof.storage.filesystem import XfsSpec
from scenarios.crash.browsed import chromium, wrong

pytestmark = pytest.mark.exhaustive

STATES = 200


def test_page_shows_what_the_exploration_found(cycle: CrashTestRunner, explore: Explore) -> None:
    explored = explore(cycle(stack_of(filesystem=XfsSpec())).must_pass(), states=STATES, crash_page=True)
    source, stem = explored.source, explored.page.stem
    states = {line.crash.name: line.crash for line in lines_of(source.store.path / stem / JOURNAL)}
    page = data_of(source, stem)
    assert len([one for one in page.states if one.files is not None]) == STATES
    with chromium() as browser:
        browser.open(source.store.path / crash_page_of(stem))
        assert wrong(browser, page, source.recording, states) == []
        assert browser.errors == []
