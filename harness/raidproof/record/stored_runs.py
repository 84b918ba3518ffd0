"""The records of all stored runs of plans in a directory."""

from collections.abc import Iterator
from pathlib import Path

from raidproof.core.errors import RequestError
from raidproof.core.log import say
from raidproof.record.run import RunRecord
from raidproof.record.store import RECORD, RunStore


def stored_runs(results: Path, plan: str | None = None) -> Iterator[RunRecord]:
    """Yield the runs of plans in a directory of stored runs, in the order of their names, which begin with the time.

    ``plan``: yield only runs of the plan file with this name, without folder and suffix. A run that cannot be read is
    left out with a message.
    """
    for path in sorted(results.glob(f"*/{RECORD}")):
        try:
            record = RunStore(path.parent).load()
        except RequestError as error:
            say(f"left out: {error}")
            continue
        if record.plan is not None and plan in {None, Path(record.plan.path).stem}:
            yield record
