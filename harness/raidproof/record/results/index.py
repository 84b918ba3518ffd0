"""The index of all runs of a results directory: one SQLite file, which the directories of the runs can always restore.

The directories are the truth. Each opening compares their fingerprints with those in the index, and reads the records
of those that differ; a writer that is killed, or two writers of one run, leave at worst a fingerprint that differs.
"""

import fcntl
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from raidproof.core.errors import RigError
from raidproof.core.log import logger, step
from raidproof.core.waiting import Deadline, pause, wait_until, wall_clock
from raidproof.record.results.entry import (
    CellEntry,
    CrashTestEntry,
    Entry,
    ExplorationEntry,
    Kind,
    RunEntry,
    RunFilter,
    State,
)
from raidproof.record.results.names import COMPARISON, NAMED, RECORD
from raidproof.record.results.run_lock import is_locked

INDEX = "index.sqlite"
LOCK = "index.lock"
"""File that each user of the index locks (flock(2)): shared to use the index, exclusively to create it anew."""
VERSION = 3
"""Version of the tables; an index of another version is created anew."""
BUSY_S = 60.0
"""Seconds to wait for another process that writes."""
GRANULARITY_S = 0.02
"""Upper bound of the interval in which two changes of a file can have the same time stamp: two ticks of HZ=100."""
BATCH = 200
"""Number of runs that one transaction writes, so that other writers wait less than a second."""
PRIMARY = 0xFF
"""Mask of the primary result code in an extended result code of SQLite."""
UNUSABLE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
"""Errors of SQLite after which the index is created anew."""
UNWRITABLE = frozenset(
    {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PERM}
)
"""Errors of SQLite after which the index is kept in memory: the directory is read-only, or its disk is full."""
TABLES: Mapping[str, type[Entry]] = {
    "runs": RunEntry,
    "cells": CellEntry,
    "crash_tests": CrashTestEntry,
    "explorations": ExplorationEntry,
}
"""The model of the rows of each table; a column has the name of its field."""
KEYS = {"runs": "folder", "cells": "folder, name", "crash_tests": "folder, name", "explorations": "folder, file"}
MATCHING = """
    FROM runs WHERE (:folder IS NULL OR folder = :folder)
    AND (:plan IS NULL OR plan = :plan)
    AND (:kernel IS NULL OR instr(kernel_requested, :kernel) OR instr(kernel_effective, :kernel))
    AND (:provider IS NULL OR provider = :provider)
    AND (:cell IS NULL OR folder IN (SELECT folder FROM cells WHERE instr(name, :cell)))
    AND (:outcome IS NULL OR outcome = :outcome)
    AND (:since IS NULL OR started >= :since)
"""
LISTED = f"SELECT * {MATCHING} ORDER BY started DESC, folder DESC LIMIT :limit"
COUNTED = f"SELECT count(*) {MATCHING}"

E = TypeVar("E", bound=Entry)


def fields(model: type[Entry]) -> list[str]:
    """Return the columns of the table for a model; a path is not stored, because results directories are moved."""
    names = [name for name in model.model_fields if name != "path"]
    return [*names, "fingerprint"] if model is RunEntry else names


class Folder(NamedTuple):
    """A directory with a run or a comparison, as found in the results directory."""

    kind: Kind
    fingerprint: str
    """Changes if the record, or a name in the directory, changes."""
    changed_ns: int
    """Time of the last change (real-time clock)."""


def folder_of(path: Path | os.DirEntry[str]) -> Folder | None:
    """Return what a directory contains; None if it contains neither a run nor a comparison."""
    try:
        own = path.stat()
    except OSError:
        return None
    of_directory = f"{own.st_mtime_ns} {own.st_ino}"
    for kind, name in ((Kind.RUN, RECORD), (Kind.COMPARISON, COMPARISON)):
        try:
            record = os.stat(f"{os.fspath(path)}/{name}")  # noqa: PTH116  10,000 objects of Path take 0.1 s
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            # The directory cannot be searched: its run is listed as unreadable.
            return Folder(kind, of_directory, own.st_mtime_ns)
        found = f"{of_directory} {record.st_mtime_ns} {record.st_ino} {record.st_size}"
        return Folder(kind, found, max(own.st_mtime_ns, record.st_mtime_ns))
    if NAMED.fullmatch(path.name) is None:
        return None
    kind = Kind.COMPARISON if path.name.endswith("-ab") else Kind.RUN
    return Folder(kind, of_directory, own.st_mtime_ns)


def folders_in(results: Path) -> dict[str, Folder]:
    """Return all directories with a run or a comparison in a results directory, by name."""
    with os.scandir(results) as entries:
        found = {one.name: folder_of(one) for one in entries if one.name[0] != "." and one.is_dir()}
    return {name: folder for name, folder in found.items() if folder is not None}


class Index:
    """An open index. As a context manager, it is closed at the end."""

    def __init__(self, results: Path, database: sqlite3.Connection, lock: int | None = None) -> None:
        self.results = results
        self._database = database
        self._lock = lock
        database.row_factory = sqlite3.Row

    @classmethod
    def open(cls, results: Path, *, rebuild: bool = False) -> Self:
        """Open the index of a results directory and make it agree with the directories of the runs.

        If the directory cannot be written, the index is in memory. ``rebuild``: read all records again.

        Raises:
            RigError: the index cannot be read, or another process keeps it locked.
        """
        if not results.is_dir():
            return cls.in_memory(results)
        for anew in dict.fromkeys((rebuild, True)):
            try:
                return cls.stored(results, anew=anew)._reconciled()
            except OSError as error:
                logger.warning("the index of %s is in memory: %s", results, error)
                break
            except sqlite3.Error as error:
                code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & PRIMARY
                if code in UNWRITABLE:
                    logger.warning("the index of %s is in memory: %s", results, error)
                    break
                if code not in UNUSABLE or anew:
                    raise RigError(
                        f"{results / INDEX} cannot be used: {error}", remedy="remove it; raidproof creates it anew"
                    ) from error
                logger.warning("%s is damaged and created anew: %s", results / INDEX, error)
        return cls.in_memory(results)._reconciled()

    @classmethod
    def in_memory(cls, results: Path) -> Self:
        """Return an empty index that is not stored."""
        index = cls(results, sqlite3.connect(":memory:", isolation_level=None))
        index.create_tables()
        return index

    @classmethod
    def stored(cls, results: Path, *, anew: bool = False) -> Self:
        """Return the stored index as it is; create it anew if it has another version, or if ``anew``.

        A process that has created the index keeps the exclusive lock, so that others need not read all records too.

        Raises:
            RigError: another process keeps the index locked.
            OSError: the lock cannot be created.
            sqlite3.Error: the index cannot be used.
        """
        with ExitStack() as undo:
            lock = os.open(results / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            undo.callback(os.close, lock)
            for kind in (fcntl.LOCK_EX,) if anew else (fcntl.LOCK_SH, fcntl.LOCK_EX):
                _wait_for(lock, kind)
                # Under each lock a new connection: meanwhile another process may have created the file anew.
                with ExitStack() as unfit:
                    index = cls(results, unfit.enter_context(closing(_connected(results, anew=anew))), lock)
                    if index.version != VERSION and kind == fcntl.LOCK_EX:
                        index._database.execute("PRAGMA journal_mode = WAL")
                        index.create_tables()
                    if index.version == VERSION:
                        unfit.pop_all()
                        break
            undo.pop_all()
        return index

    def _reconciled(self) -> Self:
        try:
            self.reconcile()
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Close the index."""
        self._database.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def create_tables(self) -> None:
        """Create all tables empty, without the content that they had.

        Raises:
            sqlite3.Error: the index cannot be written.
        """
        with self._writing():
            for table, model in TABLES.items():
                columns = ", ".join(f'"{name}"' for name in fields(model))
                self._database.execute(f"DROP TABLE IF EXISTS {table}")
                self._database.execute(f"CREATE TABLE {table} ({columns}, PRIMARY KEY ({KEYS[table]}))")
            self._database.execute(f"PRAGMA user_version = {VERSION}")

    @property
    def version(self) -> int:
        """The version of the tables; 0 without tables."""
        return int(self._database.execute("PRAGMA user_version").fetchone()[0])

    def reconcile(self) -> int:
        """Make the index agree with the directories of the runs; return the number of records that were read.

        Raises:
            sqlite3.Error: the index cannot be written.
        """
        # The index first: a directory that is missing afterwards has been removed.
        known = dict(self._database.execute("SELECT folder, fingerprint FROM runs"))
        found = folders_in(self.results)
        if gone := [(name,) for name in known.keys() - found.keys()]:
            with self._writing():
                self._delete(gone)
        changed = sorted(name for name, folder in found.items() if known.get(name) != folder.fingerprint)
        for begin in range(0, len(changed), BATCH):
            if begin % (5 * BATCH) == 0 and len(changed) > BATCH:
                step(f"reading the records of runs: {begin:,} of {len(changed):,}")
            self.put(changed[begin : begin + BATCH])
        return len(changed)

    def put(self, names: Iterable[str]) -> None:
        """Read the records of runs, given by the names of their directories, and replace their entries.

        A run whose directory does not exist has no entry afterwards.

        Raises:
            sqlite3.Error: the index cannot be written.
        """
        # The import of all schemas takes a second, which a list without new runs saves.
        from raidproof.record.results.summary import summary_of  # noqa: PLC0415

        rows: dict[str, list[dict[str, Any]]] = {table: [] for table in TABLES}
        listed = list(names)
        for name, folder in self._settled(listed).items():
            summary = summary_of(self.results / name, folder.kind)
            entries = {"runs": [summary.run], **{table: getattr(summary, table) for table in [*TABLES][1:]}}
            for table, found in entries.items():
                rows[table] += [one.model_dump(exclude={"path"}) for one in found]
            rows["runs"][-1]["fingerprint"] = folder.fingerprint
        with self._writing():
            self._delete((name,) for name in listed)
            for table, made in rows.items():
                if made:
                    self._database.executemany(_insert(made[0], table), [*map(_stored, made)])

    def _settled(self, names: Iterable[str]) -> dict[str, Folder]:
        """Return directories whose fingerprints differ after any later change; one that changes goes without."""
        found = {name: folder_of(self.results / name) for name in names}
        settled_ns = wall_clock().timestamp() * 1e9 - GRANULARITY_S * 1e9
        young = [name for name, folder in found.items() if folder is not None and folder.changed_ns > settled_ns]
        if young:
            pause(GRANULARITY_S)
            for name in young:
                again = folder_of(self.results / name)
                # The next opening of the index reads a directory without a fingerprint again.
                found[name] = again if again is None or again == found[name] else again._replace(fingerprint="")
        return {name: folder for name, folder in found.items() if folder is not None}

    def runs(self, wanted: RunFilter | None = None, limit: int | None = None) -> list[RunEntry]:
        """Return the runs that meet the conditions, the newest first, at most ``limit``."""
        conditions = _stored((wanted or RunFilter()).model_dump())
        limited = {"limit": -1 if limit is None else limit}
        rows = self._database.execute(LISTED, conditions | limited).fetchall()
        return [self._seen(RunEntry(path=str(self.results / row["folder"]), **_loaded(row))) for row in rows]

    def count(self, wanted: RunFilter | None = None) -> int:
        """Return the number of runs that meet the conditions."""
        conditions = _stored((wanted or RunFilter()).model_dump())
        return int(self._database.execute(COUNTED, conditions).fetchone()[0])

    def cells(self, folder: str | None = None, name: str | None = None) -> list[CellEntry]:
        """Return the cells of a run (``folder``), or of all runs, or only those of one name."""
        return self._rows(CellEntry, "cells", folder=folder, name=name)

    def crash_tests(self, folder: str | None = None, name: str | None = None) -> list[CrashTestEntry]:
        """Return the crash tests of a run (``folder``), or of all runs, or only those of one name."""
        return self._rows(CrashTestEntry, "crash_tests", folder=folder, name=name)

    def explorations(self, folder: str | None = None) -> list[ExplorationEntry]:
        """Return the explorations of a run (``folder``), or of all runs."""
        return self._rows(ExplorationEntry, "explorations", folder=folder)

    def _rows(self, model: type[E], table: str, **wanted: str | None) -> list[E]:
        given = {column: value for column, value in wanted.items() if value is not None}
        where = " AND ".join(f"{column} = :{column}" for column in given) or "TRUE"
        query = f"SELECT * FROM {table} WHERE {where} ORDER BY rowid"  # noqa: S608  names of tables and columns
        return [model(**_loaded(row)) for row in self._database.execute(query, given)]

    def _seen(self, run: RunEntry) -> RunEntry:
        """Return a run with its present state: no record says that a run's process has been killed."""
        if run.state is State.UNFINISHED and is_locked(self.results / run.folder):
            return run.model_copy(update={"state": State.RUNNING})
        return run

    def _delete(self, names: Iterable[tuple[str]]) -> None:
        listed = list(names)
        for table in TABLES:
            self._database.executemany(f"DELETE FROM {table} WHERE folder = ?", listed)  # noqa: S608

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Write all changes of the ``with`` block in one transaction, or none."""
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")


def update(run: Path) -> None:
    """Make the index of a results directory, if there is an index, agree with the directory of one run.

    A failure is only logged: the next opening of the index reads the record.
    """
    if not (run.parent / INDEX).is_file():
        return
    try:
        with Index.stored(run.parent) as index:
            index.put([run.name])
    except (sqlite3.Error, OSError, RigError) as error:
        logger.warning("the index of %s does not have run %s yet: %s", run.parent, run.name, error)


def _connected(results: Path, *, anew: bool) -> sqlite3.Connection:
    for end in ("", "-wal", "-shm") if anew else ():
        (results / f"{INDEX}{end}").unlink(missing_ok=True)
    database = sqlite3.connect(results / INDEX, timeout=BUSY_S, isolation_level=None)
    # The index needs no fsync: after a power failure the directories restore what it has lost.
    database.execute("PRAGMA synchronous = NORMAL")
    return database


def _wait_for(lock: int, kind: int) -> None:
    def taken() -> bool:
        try:
            fcntl.flock(lock, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    wait_until(taken, Deadline.after(2 * BUSY_S), "other processes that use the index of runs")


def _insert(row: Mapping[str, Any], table: str) -> str:
    columns = ", ".join(f'"{column}"' for column in row)
    values = ", ".join(f":{column}" for column in row)
    return f"INSERT INTO {table} ({columns}) VALUES ({values})"  # noqa: S608  names of tables and columns


def _stored(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _value(value) for name, value in row.items()}


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        # Of one length, so that texts are ordered as times are.
        return value.astimezone(UTC).isoformat(timespec="microseconds")
    return json.dumps(value) if isinstance(value, list | dict) else value


def _loaded(row: sqlite3.Row) -> dict[str, Any]:
    found = {name: row[name] for name in row.keys() if name != "fingerprint"}  # noqa: SIM118  a Row yields values
    return found | {name: json.loads(found[name]) for name in ("settings", "values") if name in found}
