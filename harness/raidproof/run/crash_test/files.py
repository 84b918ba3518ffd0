"""Where the raw observations of a cycle lie."""

from pathlib import Path

from raidproof.record.run import CycleRecord


class CycleFiles:
    """The raw observations of one cycle, each named in its record."""

    def __init__(self, record: CycleRecord, run: Path, name: str) -> None:
        self._record = record
        self._run = run
        self._directory = run / name
        self._directory.mkdir(parents=True, exist_ok=True)

    def path(self, what: str, name: str) -> Path:
        """Return where an observation goes, and enter it in the record."""
        path = self._directory / name
        self._record.files[what] = str(path.relative_to(self._run))
        return path

    def write(self, what: str, name: str, content: str) -> None:
        """Write an observation."""
        self.path(what, name).write_text(content)
