"""The machines that measured the cells of a stored run: values of different machines are not compared.

Without a cluster, that is the host of the run. On a cluster, each worker has a machine, and the names of workers say
nothing about it: two clusters may give one name to different machines.
"""

from typing import NamedTuple

from raidproof.record.cell import CellRecord
from raidproof.record.run import RunRecord
from raidproof.record.worker import WorkerRecord


class Machine(NamedTuple):
    """A machine that measured."""

    cpu: str
    """Model of the CPU; empty if it is not known."""
    cpus: int | None
    """Number of CPUs; None if it is not known."""
    name: str = ""
    """Name of a worker's machine; empty for the host of a run without a cluster, whose name is not recorded."""

    @property
    def label(self) -> str:
        """All fields as text; equal for equal machines."""
        return f"{self.name} ({self.cpu}, {self.cpus} CPUs)"


def machine_of(run: RunRecord, worker: str | None) -> Machine:
    """Return the machine of a run's repetitions with this worker; None: those made without a cluster.

    If workers of this name were on several machines, or if none is recorded, the result is equal to that of no other
    run.
    """
    if worker is None:
        found = run.environment
        return Machine("", None) if found is None else Machine(found.host_cpu, found.host_cpus)
    known = {_of_worker(one) for one in (run.plan.workers if run.plan else ()) if one.name == worker}
    return known.pop() if len(known) == 1 else Machine("", None, f"worker {worker} of run {run.run}")


def _of_worker(worker: WorkerRecord) -> Machine:
    return Machine(worker.cpu, worker.cores, worker.host)


def by_machine(run: RunRecord, cell: CellRecord) -> dict[Machine, CellRecord]:
    """Return copies of a cell's record, each with the repetitions of one machine."""
    machines = dict.fromkeys(machine_of(run, repeat.worker) for repeat in cell.repeats)
    return {
        machine: cell.model_copy(
            update={"repeats": [one for one in cell.repeats if machine_of(run, one.worker) == machine]}
        )
        for machine in machines
    }


def with_machines(run: RunRecord, cell: CellRecord) -> CellRecord:
    """Return a copy of a cell's record in which each worker has the name of its machine, as in other runs."""
    repeats = [
        one if one.worker is None else one.model_copy(update={"worker": machine_of(run, one.worker).label})
        for one in cell.repeats
    ]
    return cell.model_copy(update={"repeats": repeats})
