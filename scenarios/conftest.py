"""Fixtures that several folders of scenarios share."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from raidproof.core.errors import RequirementMissing
from raidproof.provider.namespace_lab import NamespaceLab
from raidproof.run.run import Run
from scenarios.hosts.hardware import Hardware


@pytest.fixture
def hardware(current_run: Run) -> Iterator[Hardware]:
    """Return the machines of a lab as existing hardware with adopted disks."""
    if os.geteuid() != 0:
        raise RequirementMissing("only root may enter another lab's network")
    current_run.discard_lab()
    lab = current_run.lab
    if not isinstance(lab, NamespaceLab):
        raise RequirementMissing("the machines of this run were not made by it")
    with tempfile.TemporaryDirectory(prefix="hw-") as folder:
        made = Hardware(lab, Path(folder))
        with made.powered():
            made.adopt()
            yield made
    current_run.discard_lab()
