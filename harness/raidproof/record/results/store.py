"""The directories of stored runs, ``results/<run>/``: their creation, search, removal, and atomic writes of files."""

import fcntl
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from pydantic import ValidationError

from raidproof.core.errors import RequestError
from raidproof.core.files import make_directory, rename_durably, write_durably
from raidproof.core.waiting import wall_clock
from raidproof.record.results.names import COMPARISON, JOURNAL, LATEST, NAMED, RECORD, REMOVED, TIME
from raidproof.record.results.run_lock import is_locked, locked
from raidproof.record.run import SCHEMA, RunRecord, SchemaOnly

__all__ = ["RECORD", "RunStore"]


@dataclass(frozen=True)
class RunStore:
    """The directory of one run."""

    path: Path

    @classmethod
    def create(cls, results: Path, what: str) -> "RunStore":
        """Create the directory of a new run in ``results``; its name contains the time and the text ``what``.

        Raises:
            RequestError: the directory cannot be created, or 999 directories with this name exist.
        """
        stem = f"{wall_clock():{TIME}}-{what}"
        for attempt in range(1, 1000):
            path = results / (stem if attempt == 1 else f"{stem}-{attempt}")
            try:
                make_directory(path)
            except FileExistsError:
                continue
            except OSError as error:
                raise RequestError(
                    f"cannot create a directory for a run in {results}: {error.strerror}",
                    remedy="give another directory with --results",
                ) from error
            return cls(path)
        raise RequestError(
            f"cannot create a directory for a run in {results}: all names from {stem} to {stem}-999 exist",
            remedy="give another directory with --results",
        )

    @classmethod
    def find(cls, run: str | Path, results: Path) -> "RunStore":
        """Return a stored run; ``run``: path of its directory, name in ``results``, ``latest`` or ``latest:NAME``.

        Raises:
            RequestError: no stored run has this path or name.
        """
        for path in (Path(run), results / run):
            if (path / RECORD).is_file():
                return cls(path)
            if (path / COMPARISON).is_file():
                raise RequestError(
                    f"{path} is a comparison of two runs, and not a run", remedy=f"see {path / 'comparison.html'}"
                )
        word, _, what = str(run).partition(":")
        if word == LATEST:
            return cls.newest(results, what or None)
        known = sorted(one.parent.name for one in results.glob(f"*/{RECORD}"))
        close = get_close_matches(str(run), known, n=1, cutoff=0.8)
        newest = (
            f"the newest run is {known[-1]!r}" if known else "this directory has no runs; give another by --results"
        )
        hint = f"did you mean {close[0]!r}?" if close else newest
        raise RequestError(f"{results.absolute()} has no run {str(run)!r}", remedy=hint)

    @classmethod
    def newest(cls, results: Path, what: str | None = None) -> "RunStore":
        """Return the newest run of the plan or command ``what``, or of all runs, by the times in their names.

        Raises:
            RequestError: the directory has no such run.
        """
        # A plan's name may end with a number, and may be a suffix of another plan's name.
        named = NAMED if what is None else re.compile(rf"(\d{{8}}-\d{{6}})-({re.escape(what)})(?:-(\d+))?")
        runs = [
            (found[1], int(found[3] or 1), path) for path in results.glob("*") if (found := named.fullmatch(path.name))
        ]
        for _, _, path in sorted(runs, reverse=True):
            if (path / RECORD).is_file():
                return cls(path)
        whose = "" if what is None else f" of plan {what}"
        raise RequestError(
            f"{results.absolute()} has no run{whose}", remedy="`raidproof ls` lists the runs of a directory"
        )

    def directory(self, name: str) -> Path:
        """Return the directory for the files of the crash test of this name; create it if it does not exist."""
        path = self.path / name
        make_directory(path, exist_ok=True)
        return path

    def write_text(self, name: str, content: str) -> Path:
        """Write a file of this name in the run's directory atomically and durably, and return its path."""
        path = self.path / name
        write_durably(path, content)
        return path

    def save(self, record: RunRecord) -> Path:
        """Write the record of the run atomically and durably, and return its path."""
        return self.write_text(RECORD, record.model_dump_json(indent=1) + "\n")

    def load(self) -> RunRecord:
        """Return the record of the run.

        Raises:
            RequestError: the record has another schema version, or its content does not match the schema.
        """
        path = self.path / RECORD
        try:
            # Check the schema first: a record of another schema may have other fields.
            schema = SchemaOnly.model_validate_json(path.read_bytes()).schema_version
            if schema != SCHEMA:
                raise RequestError(
                    f"{path}: the record has schema version {schema}, but this version of raidproof reads {SCHEMA}"
                )
            return RunRecord.model_validate_json(path.read_bytes())
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise RequestError(f"{path}: not the record of a run: {where}: {first['msg']}") from error

    def remove(self) -> None:
        """Remove the directory. A kill leaves the whole run, or a hidden directory that the next removal removes.

        Raises:
            RequestError: the run or an exploration of it is in progress.
            OSError: the directory cannot be removed.
        """
        path = self.path.resolve()
        with locked(path):
            self._refuse_explored()
            gone = path.with_name(REMOVED + path.name)
            shutil.rmtree(gone, ignore_errors=True)
            rename_durably(path, gone)
        for hidden in path.parent.glob(f"{REMOVED}*"):
            # Another process may be removing the same directory.
            shutil.rmtree(hidden, ignore_errors=True)
        if gone.exists():
            shutil.rmtree(gone)

    def refuse_in_use(self) -> None:
        """Verify that neither the run nor an exploration of it is in progress.

        Raises:
            RequestError: one of them is in progress.
        """
        if is_locked(self.path):
            raise RequestError(f"run {self.path.name} is in progress", remedy="wait for its end, or interrupt it")
        self._refuse_explored()

    def _refuse_explored(self) -> None:
        for journal in self.path.glob(f"*/{JOURNAL}"):
            with suppress(FileNotFoundError), journal.open("rb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError as error:
                    raise RequestError(
                        f"an exploration of run {self.path.name} is in progress",
                        remedy="wait for its end, or interrupt it",
                    ) from error
