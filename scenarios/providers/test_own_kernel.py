"""Machines of provider `uml` boot the user's own kernel: a binary with its modules, or a kernel built from source."""

import json
import shutil
from pathlib import Path

import pytest

from raidproof.core import command
from raidproof.core.errors import RequirementMissing
from raidproof.core.topology import Platform, SoftwareSpec
from raidproof.image import kernel
from raidproof.image.kernel import source
from raidproof.record import RunRecord
from raidproof.record.outcome import Outcome
from raidproof.run.demo import demo_cycles, demo_topology, run_demo
from raidproof.run.run import Run

SOURCE = Path("debian/trixie")
"""The source for the kernel that is built."""


@pytest.fixture(autouse=True)
def _only_uml(current_run: Run) -> None:
    if current_run.topology.provider != kernel.USER_MODE:
        raise RequirementMissing(f"provider {current_run.topology.provider} boots no kernels of User-mode Linux")
    current_run.discard_lab()


def kernels_of(record: RunRecord) -> set[str]:
    """Return the releases that the machines of a run reported."""
    assert record.environment is not None
    return {machine.kernel for machine in record.environment.machines}


def test_a_binary_with_its_modules_keeps_every_promise(current_run: Run, tmp_path: Path) -> None:
    debians = kernel.get()
    binary, modules = tmp_path / "linux", tmp_path / "modules"
    shutil.copy(debians.binary, binary)
    modules.mkdir()
    command.succeed(["debugfs", "-R", f'rdump "/{debians.release}" "{modules}"', debians.modules_image])
    software = SoftwareSpec(kernel=str(binary), modules=str(modules))
    topology = demo_topology(Platform(server=software, clients=software))
    with Run("own-kernel", current_run.store.path, topology) as own:
        record = own.cycle(demo_cycles()[0])
    assert record.outcome is Outcome.PASS, record.reason
    assert kernels_of(own.record) == {debians.release}


@pytest.mark.exhaustive
def test_a_kernel_that_is_built_from_source_keeps_every_promise(current_run: Run) -> None:
    folder = source.build(SOURCE)
    software = SoftwareSpec(kernel=str(folder))
    record, _ = run_demo(current_run.store.path, platform=Platform(server=software, clients=software))
    assert record.outcome is Outcome.PASS, record.reason
    assert kernels_of(record) == {json.loads((folder / "kernel.json").read_text())["release"]}
