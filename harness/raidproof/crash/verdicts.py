"""The verdicts of an exploration as a table, one row for each judged state.

The table has no times and no names of machines: explorations with the same write log and seed have equal tables,
however many checkers or workers checked the states.
"""

import csv
from pathlib import Path

from raidproof.core.files import write_durably
from raidproof.crash.sampler import Choice
from raidproof.crash.states import CrashState
from raidproof.verdict.oracle import Judgement

VERDICTS = "verdicts.csv"
"""Name of the file in the folder of the exploration."""
COLUMNS = ("state", "cut", "policy", "number", "content", "outcome", "broken")


class Verdicts:
    """The file of the verdicts, written anew by each process; sorted when it is closed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("w", newline="")
        self._rows = csv.writer(self._file, lineterminator="\n")

    def add(self, choice: Choice, state: CrashState, digest: str, judgement: Judgement) -> None:
        """Append the row of a judged state; ``digest``: that of the disks' content.

        Raises:
            OSError: the file cannot be written.
        """
        broken = "; ".join(sorted(f"{one} ({one.end})" for one in judgement.damages))
        place = (choice.policy.value, choice.number)
        self._rows.writerow((state.name, state.cut, *place, digest, judgement.outcome.value, broken))

    def close(self) -> None:
        """Close the file, with its rows in order, below the names of the columns."""
        self._file.close()
        with self.path.open(newline="") as file:
            rows = sorted(file)
        write_durably(self.path, ",".join(COLUMNS) + "\n" + "".join(rows))
