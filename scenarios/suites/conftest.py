"""The fixture that runs peers' suites."""

import pytest

from harness.campaign import Campaign
from harness.cell.suite import Suites
from harness.fixtures import name_of
from harness.lab import Lab


@pytest.fixture
def suite(campaign: Campaign, lab: Lab, request: pytest.FixtureRequest) -> Suites:
    """Runs a peer's suite on a new stack: ``suite(stack_of("5"), Fsx()).must_pass()``."""
    return Suites(lab, campaign.store.path, name_of(request.node.name))
