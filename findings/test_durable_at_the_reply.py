"""Fsynced data are durable on the disks before the server replies."""

from collections.abc import Iterator

import pytest

from findings.answer import Record, conclude
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.run.crash_test import CrashTestSpec
from raidproof.run.run import Run
from raidproof.storage.filesystem import Ext4Spec, F2fsSpec, FilesystemSpec
from raidproof.verdict.checks.volatile import late_ns
from raidproof.verdict.evidence import CrashTestEvidence
from raidproof.workload.ledger import LedgerSpec

NAME = "durable-at-the-reply"
SETTINGS: dict[str, FilesystemSpec] = {
    "f2fs-strict": F2fsSpec(fsync_mode="strict"),
    "ext4-fast-commit": Ext4Spec(fast_commit=True),
}
DATA = LedgerSpec(kinds=("fsync", "fdatasync", "o_sync", "o_dsync", "o_direct", "msync", "pages", "unaligned"))
"""A ledger that changes only data: nfsd does not commit new names on F2FS."""
SECONDS = 3.0
LEAST = 300
"""Number of acknowledged operations without a late flush that show that the defect is absent."""


@pytest.fixture
def own(current_run: Run) -> Iterator[Run]:
    """Yield a separate run, so that the expected failure does not fail the shared run."""
    current_run.discard_lab()
    with Run(NAME, current_run.store.path, current_run.topology) as one:
        yield one


@pytest.mark.parametrize("settings", SETTINGS)
def test_fsynced_data_are_durable_at_the_reply(own: Run, record: Record, settings: str) -> None:
    recorded = own.cycle(
        CrashTestSpec(
            name=NAME,
            title=NAME,
            stack=stack_of(filesystem=SETTINGS[settings]),
            ledger=DATA,
            ledger_seconds=SECONDS,
            solo_seconds=0,
        )
    )
    data = CrashTestEvidence(recorded, own.store.path).data
    assert data is not None
    late = late_ns(data.needed, data.requests)
    most_ms = max(late.values(), default=0.0) / 1e6
    measured = (
        f"the data of {len(late)} of {len(data.needed)} acknowledged operations were volatile at the reply, "
        f"for up to {most_ms:.1f} ms"
    )
    conclude(record, own.lab.server, measured, wrong=len(late), seen=len(data.needed), least=LEAST)
