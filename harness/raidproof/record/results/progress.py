"""The progress of a run: a small file in the run's directory, which the run replaces while it works."""

from datetime import datetime
from pathlib import Path
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, ValidationError

from raidproof.core.files import NEW
from raidproof.core.log import logger
from raidproof.core.waiting import wall_clock

PROGRESS = "progress.json"
"""Name of the file; it exists while the run or an exploration of it works, and after SIGKILL."""


class Progress(BaseModel):
    """What a run has done, and what it is doing."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    current: str
    """The cell or crash test that the run works on."""
    done: int = 0
    """Number of finished parts: repetitions, crash tests or crash states."""
    total: int | None = None
    """Number of parts; None if it is unknown."""
    unit: str = "parts"
    """What ``done`` and ``total`` count, in the plural."""
    left_s: float | None = None
    """Estimated time to the end of these parts in seconds; None without an estimate."""
    updated: datetime
    """Time of this report."""


def report_progress(
    run: Path,
    current: str,
    *,
    done: int = 0,
    total: int | None = None,
    unit: str = "parts",
    left_s: float | None = None,
) -> None:
    """Replace the progress in a run's directory atomically, without fsync; a failure is only logged."""
    progress = Progress(current=current, done=done, total=total, unit=unit, left_s=left_s, updated=wall_clock())
    aside = run / f".{PROGRESS}.{uuid4().hex[:8]}{NEW}"
    try:
        aside.write_text(progress.model_dump_json())
        aside.rename(run / PROGRESS)
    except OSError as error:
        aside.unlink(missing_ok=True)
        logger.warning("the progress of %s is not stored: %s", run, error)


def end_progress(run: Path) -> None:
    """Remove the progress from a run's directory."""
    (run / PROGRESS).unlink(missing_ok=True)


def progress_of(run: Path) -> Progress | None:
    """Return the progress in a run's directory; None if there is none."""
    try:
        return Progress.model_validate_json((run / PROGRESS).read_bytes())
    except (OSError, ValidationError):
        return None
