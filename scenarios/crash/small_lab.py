"""A separate run whose lab is small: one client."""

from collections.abc import Iterator
from contextlib import contextmanager

from raidproof.run.run import Run


@contextmanager
def small_lab(current_run: Run, name: str) -> Iterator[Run]:
    """Yield a separate run, so that expected failures do not fail the run that scenarios share."""
    everything = current_run.topology
    topology = everything.model_copy(update={"machines": (everything.server, everything.clients[0])})
    current_run.discard_lab()
    with Run(name, current_run.store.path, topology) as one:
        yield one
