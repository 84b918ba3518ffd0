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
    """Yield the machines of a lab in the role of existing hardware, whose disks raidproof may overwrite."""
    if os.geteuid() != 0:
        raise RequirementMissing("only root may enter the network namespace of another lab")
    current_run.discard_lab()
    lab = current_run.lab
    if not isinstance(lab, NamespaceLab):
        raise RequirementMissing("this run uses existing machines; this scenario needs a lab of provider uml or qemu")
    with tempfile.TemporaryDirectory(prefix="hw-") as folder:
        made = Hardware(lab, Path(folder))
        with made.powered():
            made.adopt()
            yield made
    current_run.discard_lab()
