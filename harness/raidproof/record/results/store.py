"""The directories of stored runs, ``results/<run>/``: their creation, search, removal, and atomic writes of files."""

import fcntl
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from pydantic import BaseModel, ValidationError

from raidproof.core.errors import RequestError
from raidproof.core.files import make_directory, rename_durably, write_durably
from raidproof.core.waiting import wall_clock
from raidproof.record.cell import Explored
from raidproof.record.outcome import Outcome
from raidproof.record.results.names import COMPARISON, EXPLORATIONS, JOURNAL, LATEST, NAMED, RECORD, REMOVED, TIME
from raidproof.record.results.run_lock import is_locked, locked
from raidproof.record.run import SCHEMA, RunRecord
from raidproof.record.sensitivity import Sensitivity, noticed_in
from raidproof.record.stored import read_record

__all__ = ["RECORD", "RunStore"]


class _Loss(BaseModel):
    """The field that is read of the greatest excused loss in an exploration."""

    operations: int


class _Exploration(BaseModel):
    """The fields that are read of the record of an exploration."""

    cycle: str
    judged: int = 0
    broken: int = 0
    loss: _Loss | None = None
    counts: bool = True
    sensitivity: list[Sensitivity] = []
    outcome: Outcome
    reason: str = ""


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
        if not any(results.glob(f"*/{RECORD}")):
            raise RequestError(
                f"{results.absolute()} has no {'runs yet' if what is None else f'run of plan {what}'}",
                remedy="give another directory with --results, or make a run: ./raidproof demo",
            )
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
        """Return the record of the run, with the results of all explorations in its directory.

        Raises:
            RequestError: the record has another schema version, or its content does not match the schema.
        """
        record = read_record(self.path / RECORD, RunRecord, SCHEMA, "a run")
        self.read_explorations(record)
        return record

    def read_explorations(self, record: RunRecord) -> None:
        """Enter the results of the explorations in the run's directory into the crash tests of the run's record.

        The files of the explorations outweigh the record: an exploration that was resumed, or killed before it changed
        the record, has an older result or none there. A file that cannot be read changes nothing.
        """
        cycles = {cycle.name: cycle for cycle in record.cycles}
        for path in sorted(self.path.glob(EXPLORATIONS)):
            with suppress(ValidationError, OSError):
                found = _Exploration.model_validate_json(path.read_bytes())
                if (cycle := cycles.get(found.cycle)) is None or not found.counts:
                    continue
                result = Explored(
                    file=path.name,
                    judged=found.judged,
                    broken=found.broken,
                    lost=found.loss.operations if found.loss is not None else 0,
                    noticed=noticed_in(found.sensitivity),
                    outcome=found.outcome,
                    reason=found.reason,
                )
                cycle.explored = [*(one for one in cycle.explored if one.file != path.name), result]

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
