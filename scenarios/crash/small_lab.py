"""A separate run whose lab is small: one client, and by default disks no larger than XFS on four of them needs."""

from collections.abc import Iterator
from contextlib import contextmanager

from raidproof.core.units import MIB
from raidproof.run.run import Run

DISK_SIZE = 184 * MIB


@contextmanager
def small_lab(current_run: Run, name: str, disk_size: int = DISK_SIZE) -> Iterator[Run]:
    """Yield a separate run, so that expected failures do not fail the run that scenarios share.

    ``disk_size``: bytes of each disk.
    """
    everything = current_run.topology
    machines = (everything.server, everything.clients[0])
    disks = tuple(disk.model_copy(update={"size": disk_size}) for disk in everything.disks)
    topology = everything.model_copy(update={"machines": machines, "disks": disks})
    current_run.discard_lab()
    with Run(name, current_run.store.path, topology) as one:
        yield one
