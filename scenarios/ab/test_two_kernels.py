"""`raidproof ab` reports how the machines of two sides differ, and measures nothing if the sides are equal."""

from pathlib import Path

import pytest

from raidproof.cli.main import main
from raidproof.core.errors import Status
from raidproof.core.waiting import unwinding_on_signals
from raidproof.image.kernel.catalogue import DEFAULT
from raidproof.record import RunStore
from raidproof.record.comparison import ComparisonRecord, PairFinding
from raidproof.record.outcome import Outcome

ONE_CELL = """
hardware = { disks = { count = 3, size = "512MiB" } }
workload = { tool = "dd", count = 16 }
run = { repeats = 1, allow_cache = true, reference = false }
"""
KERNELS = {"debian/bookworm": "6.1.", "debian/trixie": "6.12."}


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """Return the path of a plan with one cell."""
    path = tmp_path / "one.toml"
    path.write_text(ONE_CELL)
    return path


def compared(plan: Path, *words: str) -> tuple[int, ComparisonRecord]:
    """Run `raidproof ab` on a plan; return its exit status and the stored comparison."""
    with unwinding_on_signals():
        status = main(["ab", str(plan), "--provider", "uml", "--results", str(plan.parent), *words])
    (stored,) = plan.parent.glob("*-one-ab/comparison.json")
    assert (stored.parent / "comparison.html").is_file()
    return status, ComparisonRecord.model_validate_json(stored.read_text())


def test_a_new_server_is_compared_with_an_old_one(plan: Path) -> None:
    base, new = KERNELS
    status, comparison = compared(plan, f"--base=kernel={base}", f"--new=kernel={base}", f"--new=server.kernel={new}")
    [kernel] = comparison.different
    assert (kernel.machine, kernel.what) == ("server", "kernel")
    assert str(kernel.base).startswith(KERNELS[base])
    assert str(kernel.new).startswith(KERNELS[new])
    [pair] = comparison.pairs
    assert (len(pair.base.values), len(pair.new.values)) == (1, 1)
    # With one repetition on each side no difference can be shown, whatever the two values are.
    assert pair.finding in {PairFinding.UNDECIDED, PairFinding.NOT_COMPARABLE}
    assert (status, comparison.outcome) == (Status.INCONCLUSIVE, Outcome.INCONCLUSIVE)
    for side in (comparison.base, comparison.new):
        assert RunStore.find(side.run, plan.parent).load().ended_early is None


def test_the_default_kernel_and_the_same_kernel_by_name_are_not_compared(plan: Path) -> None:
    status, comparison = compared(plan, f"--new=kernel={DEFAULT}")
    assert (status, comparison.outcome) == (Status.INVALID, Outcome.INVALID)
    assert "nothing was compared" in comparison.reason
    assert all(not pair.base.values and not pair.new.values for pair in comparison.pairs)
