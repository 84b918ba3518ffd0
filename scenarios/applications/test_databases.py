"""SQLite on NFS and LMDB on the server: each acknowledged transaction is there after a power cut, and in crash states.

SQLite's documentation says that "WAL does not work over a network filesystem" because its index is in memory that all
processes share; with `locking_mode = EXCLUSIVE` one process uses no such memory (https://www.sqlite.org/wal.html).
"""

import pytest

from raidproof.pytest_plugin.fixtures import CrashTestRunner, Explore, stack_of
from scenarios.applications.databases import lmdb, sqlite
from scenarios.crash.known_findings import KNOWN

STATES = 25
WORK_S = 3.0
"""Seconds that a database works before the cut: a transaction takes tens of milliseconds."""
MORE_STATES = 400
SLOW = pytest.mark.exhaustive
NUMBERS = [pytest.param(STATES, id="few"), pytest.param(MORE_STATES, id="many", marks=SLOW)]


@pytest.mark.parametrize(
    ("mode", "synchronous"),
    [
        ("delete", "FULL"),
        pytest.param("wal", "FULL", marks=SLOW),
        pytest.param("delete", "EXTRA", marks=SLOW),
        pytest.param("wal", "EXTRA", marks=SLOW),
    ],
)
@pytest.mark.parametrize("states", NUMBERS)
def test_sqlite_on_nfs_keeps_every_transaction(
    database_cycle: CrashTestRunner, database_explore: Explore, mode: str, synchronous: str, states: int
) -> None:
    ended = database_cycle(stack_of(), application=sqlite(mode, synchronous), ledger_seconds=WORK_S)
    ended.must_keep_every_promise()
    database_explore(ended, states, cold=False).must_keep_every_promise(but=KNOWN)


@pytest.mark.parametrize("states", NUMBERS)
def test_lmdb_on_the_server_keeps_every_transaction(
    database_cycle: CrashTestRunner, database_explore: Explore, states: int
) -> None:
    ended = database_cycle(stack_of(), application=lmdb("server"), ledger_seconds=WORK_S)
    ended.must_keep_every_promise()
    database_explore(ended, states, cold=False).must_keep_every_promise(but=KNOWN)


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_sqlite_on_an_async_export_loses_transactions_by_design(database_cycle: CrashTestRunner, mode: str) -> None:
    database_cycle(stack_of(sync=False), application=sqlite(mode, "EXTRA")).must_lose_by_design()


@pytest.mark.exhaustive
def test_extra_keeps_on_the_server_what_full_loses(database_cycle: CrashTestRunner, database_explore: Explore) -> None:
    """FULL does not sync the directory after the removal of the journal; the finding is sqlite-full-directory."""
    ended = database_cycle(
        stack_of(), application=sqlite("delete", "EXTRA", on="server", pause_ms=20), ledger_seconds=WORK_S
    )
    ended.must_keep_every_promise()
    database_explore(ended, MORE_STATES, cold=False).must_keep_every_promise(but=KNOWN)
