"""fsx, the file system exerciser, on NFS on RAID: every read returns the written data."""

from collections.abc import Callable
from pathlib import Path

import pytest

from raidproof.core.waiting import Deadline
from raidproof.lab.lab import Lab
from raidproof.plan.cell import cells_of
from raidproof.pytest_plugin.fixtures import Measure, stack_of
from raidproof.storage.stack import Stack
from raidproof_suites import Fsx
from raidproof_suites.suites import Suites

PLAN = Path(__file__).with_name("fsx.toml")


@pytest.mark.parametrize("level", ["5", pytest.param("10", marks=pytest.mark.exhaustive)])
def test_fsx(suite: Suites, level: str) -> None:
    suite(stack_of(level), Fsx(operations=3000)).must_pass()


def test_fsx_sees_a_second_writer(suite: Suites) -> None:
    suite(stack_of("5"), Fsx(operations=20000), meanwhile=a_second_writer).must_fail()


def a_second_writer(lab: Lab, stack: Stack) -> Callable[[], object]:
    """Let another process of the client write into the file of fsx; return the function that ends the process."""
    client = lab.clients[0]
    directory = f"{stack.mounts[client.name].directory}/fsx-{client.name}"
    each = f"for file in {directory}/fsx-file {directory}/LTP_*/*"
    write = 'printf 0123456789abcdef | dd of="$file" bs=16 seek=9 conv=notrunc status=none'
    loop = f'while :; do {each}; do [ ! -f "$file" ] || {write}; done; done'
    writer = client.start_command(["sh", "-c", f"({loop}) & cat; kill $!; wait"])
    return lambda: writer.wait(Deadline.after(30))


@pytest.mark.exhaustive
def test_fsx_in_every_cell_of_a_plan(measure: Measure) -> None:
    for cell in cells_of(PLAN):
        measure(cell).must_be_measured()
