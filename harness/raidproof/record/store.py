"""Storage of runs in ``results/<run>/``: files are written atomically, earlier runs are never changed."""

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
        """Create the directory of a new run, named after the time and ``what``."""
        stem = f"{wall_clock():%Y%m%d-%H%M%S}-{what}"
        for attempt in range(1, 1000):
            path = results / (stem if attempt == 1 else f"{stem}-{attempt}")
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                continue
            except OSError as error:
                raise RequestError(
                    f"cannot keep results in {results}: {error.strerror}", remedy="give --results another place"
                ) from error
            return cls(path)
        raise RequestError(f"cannot find a free name for a run in {results}")

    @classmethod
    def find(cls, run: str | Path, results: Path) -> "RunStore":
        """Return a stored run by its path or its name.

        Raises:
            RequestError: there is no such run.
        """
        for path in (Path(run), results / run):
            if (path / RECORD).is_file():
                return cls(path)
        known = sorted(one.parent.name for one in results.glob(f"*/{RECORD}"))
        close = get_close_matches(str(run), known, n=1, cutoff=0.8)
        hint = f"did you mean {close[0]!r}?" if close else f"the newest is {known[-1]!r}" if known else "there is none"
        raise RequestError(f"no such run in {results.absolute()}: {str(run)!r}", remedy=hint)

    def directory(self, name: str) -> Path:
        """Return a new or existing directory for the raw observations of one crash test."""
        path = self.path / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def write_text(self, name: str, content: str) -> Path:
        """Write a file atomically."""
        path = self.path / name
        aside = path.with_name(path.name + ".new")
        with aside.open("w") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.rename(path)
        return path

    def save(self, record: RunRecord) -> Path:
        """Write the record."""
        return self.write_text(RECORD, record.model_dump_json(indent=1) + "\n")

    def load(self) -> RunRecord:
        """Read the record back.

        Raises:
            RequestError: the record has another schema, or is damaged.
        """
        path = self.path / RECORD
        try:
            # Check the schema first: a record of another schema may have other fields.
            schema = SchemaOnly.model_validate_json(path.read_text()).schema_version
            if schema != SCHEMA:
                raise RequestError(f"{path} has schema {schema}, this raidproof reads {SCHEMA}")
            return RunRecord.model_validate_json(path.read_text())
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise RequestError(f"not a run record: {path}: {where}: {first['msg']}") from error
