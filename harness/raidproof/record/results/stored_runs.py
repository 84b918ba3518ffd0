"""The records of all stored runs of plans in a directory."""

from collections.abc import Iterator
from pathlib import Path

from raidproof.core.errors import RequestError
from raidproof.core.log import say
from raidproof.record.results.entry import Kind, RunFilter
from raidproof.record.results.index import Index
from raidproof.record.results.store import RunStore
from raidproof.record.run import RunRecord


def stored_runs(results: Path, plan: str | None = None) -> Iterator[RunRecord]:
    """Yield the runs of plans in a directory of stored runs, the oldest first.

    ``plan``: yield only runs of the plan with this name. A run that cannot be read is left out with a message.
    """
    if not results.is_dir():
        return
    with Index.open(results) as index:
        entries = [one for one in index.runs(RunFilter(plan=plan)) if one.kind is Kind.RUN]
    for entry in reversed(entries):
        try:
            record = RunStore(Path(entry.path)).load()
        except (RequestError, FileNotFoundError) as error:
            say(f"left out: {error}")
            continue
        if record.plan is not None:
            yield record
