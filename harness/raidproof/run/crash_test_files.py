"""The directory of one crash test's raw observations."""

from pathlib import Path

from raidproof.core.files import write_durably


class CrashTestFiles:
    """The directory of one crash test's raw observations."""

    def __init__(self, run: Path, name: str) -> None:
        self._run = run
        self._directory = run / name
        self._directory.mkdir(parents=True, exist_ok=True)

    def path(self, name: str) -> Path:
        """Return the path of a file in the crash test's directory."""
        return self._directory / name

    def entry(self, name: str) -> str:
        """Return the path of a file relative to the run's directory, as in a record."""
        return str(self.path(name).relative_to(self._run))

    def write(self, name: str, content: str) -> str:
        """Write a file and return its path relative to the run's directory."""
        write_durably(self.path(name), content)
        return self.entry(name)
