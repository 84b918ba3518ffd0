"""The directories of stored runs, ``results/<run>/``: their creation, search, and atomic writes of their files."""

import os
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from pydantic import ValidationError

from raidproof.core.errors import RequestError
from raidproof.core.waiting import wall_clock
from raidproof.record.run import SCHEMA, RunRecord, SchemaOnly

RECORD = "report.json"


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
        stem = f"{wall_clock():%Y%m%d-%H%M%S}-{what}"
        for attempt in range(1, 1000):
            path = results / (stem if attempt == 1 else f"{stem}-{attempt}")
            try:
                path.mkdir(parents=True)
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
        """Return a stored run; ``run``: the path of its directory, or its name in ``results``.

        Raises:
            RequestError: no stored run has this path or name.
        """
        for path in (Path(run), results / run):
            if (path / RECORD).is_file():
                return cls(path)
        known = sorted(one.parent.name for one in results.glob(f"*/{RECORD}"))
        close = get_close_matches(str(run), known, n=1, cutoff=0.8)
        newest = (
            f"the newest run is {known[-1]!r}" if known else "this directory has no runs; give another by --results"
        )
        hint = f"did you mean {close[0]!r}?" if close else newest
        raise RequestError(f"{results.absolute()} has no run {str(run)!r}", remedy=hint)

    def directory(self, name: str) -> Path:
        """Return the directory for the files of the crash test of this name; create it if it does not exist."""
        path = self.path / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def write_text(self, name: str, content: str) -> Path:
        """Write a file of this name in the run's directory atomically, and return its path."""
        path = self.path / name
        aside = path.with_name(path.name + ".new")
        with aside.open("w") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.rename(path)
        return path

    def save(self, record: RunRecord) -> Path:
        """Write the record of the run atomically, and return its path."""
        return self.write_text(RECORD, record.model_dump_json(indent=1) + "\n")

    def load(self) -> RunRecord:
        """Return the record of the run.

        Raises:
            RequestError: the record has another schema version, or its content does not match the schema.
        """
        path = self.path / RECORD
        try:
            # Check the schema first: a record of another schema may have other fields.
            schema = SchemaOnly.model_validate_json(path.read_text()).schema_version
            if schema != SCHEMA:
                raise RequestError(
                    f"{path}: the record has schema version {schema}, but this version of raidproof reads {SCHEMA}"
                )
            return RunRecord.model_validate_json(path.read_text())
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise RequestError(f"{path}: not the record of a run: {where}: {first['msg']}") from error
