"""Known differences: failures and slower cells that are expected for a reason until a date, and what came of them."""

from collections.abc import Sequence
from datetime import date
from enum import StrEnum
from pathlib import Path

from pydantic import Field, ValidationError, model_validator

from raidproof.core.errors import RequestError
from raidproof.core.toml import read_toml
from raidproof.plan.table import reasons
from raidproof.record.cell import Strict

KNOWN_FILE = Path("known.toml")
"""The file of known differences that commands read from the current directory, if no other file is given."""
THROUGHPUT = "throughput"
"""The checker of a comparison's values."""


class KnownKind(StrEnum):
    """The kind of an expected difference."""

    SLOWER = "slower"
    """A comparison finds the new side slower than the base side."""
    BROKEN = "broken"
    """A check of the power cut, of its crash states or of the effective configuration fails."""


class KnownDifference(Strict):
    """One entry of a file of known differences."""

    cell: str = Field(min_length=1)
    """Pattern (fnmatch) for the names of cells."""
    checker: str = Field(min_length=1)
    """``throughput``; or pattern for a kind of promise (``fsync``), or for the name of a check (``kernel log*``)."""
    kind: KnownKind
    most: float = Field(default=0.05, gt=0, le=1)
    """The greatest share that an entry of kind ``broken`` excuses: of the acknowledged operations that are missing, or
    of the crash states that break a promise. A check that counts neither has no share."""
    reason: str = Field(min_length=1)
    """Why the difference is expected; for readers."""
    until: date
    """The last day on which the entry excuses a failure."""

    @model_validator(mode="after")
    def _fits(self) -> "KnownDifference":
        if (self.checker == THROUGHPUT) is not (self.kind is KnownKind.SLOWER):
            raise ValueError("kind 'slower' is for checker 'throughput', and kind 'broken' for every other checker")
        return self


class KnownState(StrEnum):
    """What came of a known difference in a run or a comparison."""

    EXPECTED = "expected"
    """The failure occurred, and the entry excuses it."""
    EXCEEDED = "exceeded"
    """The failure occurred to a greater extent than the entry excuses, in at least one cell: a new failure."""
    PASSED = "unexpected pass"
    """The check ran in every cell that matches, and found no failure."""
    OUT_OF_DATE = "out of date"
    """The last day of the entry is over: it excuses nothing."""
    NO_CELL = "no such cell"
    """The name of no cell matches."""
    NOT_JUDGED = "not judged"
    """No check that matches gave a result for a cell that matches."""


class KnownUse(Strict):
    """A known difference, and what came of it."""

    entry: KnownDifference
    state: KnownState
    failed: list[str] = Field(default_factory=list)
    """Names of the cells in which the failure occurred."""
    passed: list[str] = Field(default_factory=list)
    """Names of the cells in which the check found no failure."""


class KnownRecord(Strict):
    """The known differences that a run or a comparison was judged with."""

    date: date
    """The day on which the entries were applied; an entry with an earlier ``until`` is out of date."""
    entries: list[KnownDifference]
    # `raidproof judge` computes the following fields again from those above.
    uses: list[KnownUse] = Field(default_factory=list)
    excused: list[str] = Field(default_factory=list)
    """Names of the cells whose failures are all expected."""


class _File(Strict):
    known: list[KnownDifference]


def load_known(path: Path | None = None) -> Sequence[KnownDifference]:
    """Return the known differences in a TOML file, one table ``[[known]]`` for each.

    ``path``: the file; None: ``known.toml`` in the current directory, if it exists.

    Raises:
        RequestError: the file cannot be read, or an entry is invalid.
    """
    if path is None and not KNOWN_FILE.is_file():
        return []
    path = path or KNOWN_FILE
    try:
        return _File.model_validate(read_toml(path)).known
    except ValidationError as error:
        raise RequestError(f"{path}: {reasons(error)}") from error
