"""An application in a machine: each operation is one committed transaction of an SQLite database.

Arguments: the step, the journal mode, the value of the pragma synchronous, and the pause between transactions in ms.
"""

import random
import sqlite3
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import raidproof_app as raidproof

DATABASE = Path(raidproof.directory()) / "entries.db"
LARGEST = 6000
"""Greatest number of bytes of an entry: some need several pages of the database."""


def opened(mode: str, synchronous: str) -> sqlite3.Connection:
    connection = sqlite3.connect(DATABASE, isolation_level=None, timeout=60)
    if mode == "wal":
        # Before the first access: then the WAL mode needs no memory that processes share, which NFS does not have
        # (https://www.sqlite.org/wal.html, "Use of WAL Without Shared-Memory"). Not with DELETE: a process with an
        # exclusive lock overwrites the journal's header instead of unlinking the journal.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    (found,) = connection.execute(f"PRAGMA journal_mode = {mode}").fetchone()
    assert found.lower() == mode, f"SQLite uses journal_mode {found}"
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    return connection


def text_of(number: int) -> str:
    return f"{number:08}" * (1 + random.Random(number).randrange(LARGEST) // 8)


def prepare(mode: str, synchronous: str) -> None:
    with opened(mode, synchronous) as connection:
        connection.execute("CREATE TABLE entry (number INTEGER PRIMARY KEY, text TEXT NOT NULL)")
        connection.execute("CREATE TABLE total (entries INTEGER NOT NULL)")
        connection.execute("INSERT INTO total VALUES (0)")
    connection.close()


def run(mode: str, synchronous: str, pause_ms: str) -> None:
    connection = opened(mode, synchronous)
    for number in count(1):
        raidproof.begun(number)
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO entry VALUES (?, ?)", (number, text_of(number)))
        connection.execute("UPDATE total SET entries = entries + 1")
        connection.execute("COMMIT")
        raidproof.acknowledged(number)
        time.sleep(int(pause_ms) / 1000)


def check() -> None:
    if not DATABASE.exists():
        return
    connection = sqlite3.connect(DATABASE)
    try:
        (answer,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        entries = connection.execute("SELECT number, text FROM entry ORDER BY number").fetchall()
        (total,) = connection.execute("SELECT entries FROM total").fetchone()
    except sqlite3.DatabaseError as error:
        print(error, file=sys.stderr)
        raidproof.damaged("malformed")
        return
    if answer != "ok":
        raidproof.damaged("integrity-check")
    if total != len(entries):
        raidproof.damaged("half-a-transaction")
    for number, text in entries:
        if text == text_of(number):
            raidproof.present(number)
        else:
            raidproof.wrong(number, "other-text")


if __name__ == "__main__":
    step, *words = sys.argv[1:]
    steps: dict[str, Callable[..., None]] = {"prepare": prepare, "run": run, "check": check}
    steps[step](*words)
