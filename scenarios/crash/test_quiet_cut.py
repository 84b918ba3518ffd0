"""Power cuts at the instants of the server's replies show a drive whose flushes are late or incomplete.

In a quiet recording, one client does one operation after the other. Therefore only the operation's own flushes can
have made its data durable at the reply.
"""

from collections.abc import Iterator

import pytest

from raidproof.core.errors import RequirementMissing
from raidproof.crash.exploration import Budget
from raidproof.disk.disk_fault import DiskFault, early_flushes, newest_unflushed, overwrites_unflushed
from raidproof.fault import FaultContext
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.record.exploration import ExplorationRecord
from raidproof.record.outcome import Outcome
from raidproof.run.crash_states import Options
from raidproof.run.crash_test import CrashTestSpec
from raidproof.run.exploration import explore_cycle
from raidproof.run.run import Run
from raidproof.run.source import source_of
from raidproof.workload.ledger import LedgerSpec
from scenarios.crash.quiet import quiet
from scenarios.crash.small_lab import small_lab
from scenarios.selftest.defects import Before, Places, PlantDefect, disks_of

EVERY_KIND = LedgerSpec()
EARLY_US = 1500
"""Microseconds by which the drive acknowledges a flush too early."""
LEDGER_SECONDS = 0.7
STATES, MINUTES = 40, 1.0
"""Budget of an exploration. The first states show the failures; the minutes are for repeating and shrinking them."""
MORE_STATES = 120
"""Number of crash states for a ledger with all kinds of workers. Flushes of other workers make most data durable in
time, so that only about one state in twenty shows a late flush."""
FLAWED = "disk1"
CULPRIT = f"the disks: {FLAWED} "

SLOW = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def own(current_run: Run) -> Iterator[Run]:
    """Yield a separate run with one client."""
    with small_lab(current_run, "quiet-cut") as one:
        yield one


def planted(disk_fault: DiskFault) -> PlantDefect:
    """Return a function that sets a disk fault of ``disk1``."""

    def plant(context: FaultContext, _places: Places) -> None:
        disks_of(context).set_disk_fault(FLAWED, disk_fault)

    return plant


def cut_at_replies(
    own: Run, name: str, ledger: LedgerSpec, disk_fault: DiskFault | None, budget: Budget
) -> ExplorationRecord:
    """Record a crash test, with or without a disk fault of ``disk1``; return an exploration of cuts at the replies."""
    during = () if disk_fault is None else (Before(planted(disk_fault)),)
    record = own.cycle(
        CrashTestSpec(
            name=name,
            title=name.replace("-", " "),
            stack=stack_of(),
            ledger=ledger,
            ledger_seconds=LEDGER_SECONDS,
            fault="none",
            during=during,
        )
    )
    replies = record.observed.replies
    assert replies is not None
    if replies.why_not:
        raise RequirementMissing(f"the server's replies cannot be captured: {replies.why_not}")
    assert replies.dated, replies
    explored, _ = explore_cycle(
        source_of(own.store, name), Options(budget, at_replies=True, cold=False, crash_page=False)
    )
    assert set(explored.policies) == {"at-reply"}
    return explored


@pytest.mark.parametrize(
    "ledger",
    [
        pytest.param(quiet(), id="quiet"),
        pytest.param(quiet("fsync"), id="fsync", marks=SLOW),
        pytest.param(EVERY_KIND, id="every-kind", marks=SLOW),
    ],
)
def test_acknowledged_operations_are_durable_at_the_reply(
    own: Run, ledger: LedgerSpec, request: pytest.FixtureRequest
) -> None:
    explored = cut_at_replies(own, f"sound-{request.node.callspec.id}", ledger, None, Budget(STATES, None))
    # INCONCLUSIVE is allowed, as some kinds have too few operations before the cuts: this test is about false alarms.
    assert explored.outcome in {Outcome.PASS, Outcome.INCONCLUSIVE}, explored.reason
    assert explored.judged
    assert not explored.failures


@pytest.mark.parametrize(
    ("disk_fault", "ledger", "budget", "damage"),
    [
        pytest.param(newest_unflushed(2), quiet(), Budget(STATES, MINUTES), "", id="newest", marks=SLOW),
        pytest.param(newest_unflushed(2), EVERY_KIND, Budget(MORE_STATES, None), "", id="newest-of-many", marks=SLOW),
        pytest.param(
            overwrites_unflushed(), quiet("fsync"), Budget(STATES, MINUTES), "older generation", id="overwrites"
        ),
        pytest.param(
            overwrites_unflushed(),
            EVERY_KIND,
            Budget(MORE_STATES, None),
            "older generation",
            id="overwrites-of-many",
            marks=SLOW,
        ),
        pytest.param(
            early_flushes(EARLY_US), EVERY_KIND, Budget(MORE_STATES, None), "", id="early-of-many", marks=SLOW
        ),
        pytest.param(early_flushes(EARLY_US), quiet("fsync"), Budget(STATES, None), "", id="early", marks=SLOW),
    ],
)
def test_a_drive_with_late_or_incomplete_flushes_is_found(
    own: Run,
    disk_fault: DiskFault,
    ledger: LedgerSpec,
    budget: Budget,
    damage: str,
    request: pytest.FixtureRequest,
) -> None:
    explored = cut_at_replies(own, request.node.callspec.id, ledger, disk_fault, budget)
    assert explored.outcome is Outcome.FAIL, explored.reason
    found = [one for one in explored.failures if damage in f"{one.promise}: {one.damage}" and one.confirmed]
    assert found, explored.failures
    assert all(str(one.blame).startswith(CULPRIT) for one in found), found
