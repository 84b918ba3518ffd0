"""SQLite on a local file system keeps a committed transaction over a power cut."""

from collections.abc import Iterator

import pytest

from findings.answer import Record, conclude
from raidproof.pytest_plugin.fixtures import CrashTestRunner, Explore, stack_of
from raidproof.run.run import Run
from scenarios.applications.databases import sqlite, with_databases

STATES = 25
LEAST = 10
WORK_S = 4.0
PAUSE_MS = 20
"""Pause between transactions: meanwhile nothing flushes the disks."""


@pytest.fixture
def own(current_run: Run) -> Iterator[Run]:
    """Yield a separate run, whose machines have SQLite; its failures are the finding."""
    current_run.discard_lab()
    with Run("sqlite", current_run.store.path, with_databases(current_run.topology)) as one:
        yield one


@pytest.mark.parametrize("synchronous", ["FULL", pytest.param("EXTRA", marks=pytest.mark.exhaustive)])
def test_a_committed_transaction_is_durable(own: Run, record: Record, synchronous: str) -> None:
    application = sqlite("delete", synchronous, on="server", pause_ms=PAUSE_MS)
    ended = CrashTestRunner(own, f"sqlite-{synchronous.lower()}")(
        stack_of(), application=application, ledger_seconds=WORK_S
    )
    # Each cut is at an acknowledgement, and all unflushed data are lost.
    explored = Explore(own)(ended, STATES, at_replies=True).record
    measured = (
        f"journal_mode DELETE, synchronous {synchronous}: in {explored.broken} of {explored.judged} power cuts at the "
        "instant of a commit a committed transaction is missing"
    )
    conclude(record, own.lab.server, measured, wrong=explored.broken, seen=explored.judged, least=LEAST)
