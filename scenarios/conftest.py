"""Fixtures that several folders of scenarios share."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from raidproof.core.errors import RequirementMissing
from raidproof.provider.enclosed_lab import EnclosedLab
from raidproof.run.campaign import Campaign
from scenarios.hosts.hardware import Hardware


@pytest.fixture
def hardware(campaign: Campaign) -> Iterator[Hardware]:
    """Return the machines of a lab as existing hardware with adopted disks."""
    if os.geteuid() != 0:
        raise RequirementMissing("only root may enter another lab's network")
    campaign.discard_lab()
    lab = campaign.lab
    if not isinstance(lab, EnclosedLab):
        raise RequirementMissing("the machines of this run were not made by it")
    with tempfile.TemporaryDirectory(prefix="hw-") as folder:
        made = Hardware(lab, Path(folder))
        with made.powered():
            made.adopt()
            yield made
    campaign.discard_lab()
