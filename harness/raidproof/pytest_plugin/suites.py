"""The fixture that runs peers' suites."""

from collections.abc import Iterable

import pytest

from raidproof.core.errors import RequestError
from raidproof.provider.registry import Lab
from raidproof.pytest_plugin.fixtures import name_of
from raidproof.run.campaign import Campaign
from raidproof.run.cell.suite import Suites


@pytest.fixture
def suite(campaign: Campaign, lab: Lab, request: pytest.FixtureRequest) -> Suites:
    """Runs a peer's suite on a new stack: ``suite(stack_of("5"), Fsx()).must_pass()``."""
    paths = paths_of(request.config.option.suite_path or ())
    keep = campaign.record.suites.append
    return Suites(lab, campaign.store.path, name_of(request.node.name), keep=keep, paths=paths)


def paths_of(words: Iterable[str]) -> dict[str, str]:
    """Read ``fsx=/usr/local/bin/fsx``: where suites are, by name.

    Raises:
        RequestError: a word has another form.
    """
    pairs = [word.partition("=") for word in words]
    if wrong := next((name for name, equals, path in pairs if not (name and equals and path)), None):
        raise RequestError(f"--suite-path {wrong!r}: not NAME=PATH", remedy="for example fsx=/usr/local/bin/fsx")
    return {name: path for name, _, path in pairs}
