"""The number of labs and of checkers that one machine can run at the same time: Dask's resources of a worker."""

import os

import psutil

from raidproof.core.units import GIB

LAB, CHECKER = "lab", "checker"
"""Names of the resources of Dask: a lab takes 1 of `LAB`, a checker machine 1 of `CHECKER`."""
LAB_CPUS = 2
"""Number of CPUs that a lab keeps busy: its server, its clients, and the disk engine."""
LAB_MEMORY = 4 * GIB
CHECKER_MEMORY = 2 * GIB
"""Memory in bytes of a checker machine, with the members' content in its memory."""


def slots_of(*, share: int = 1) -> dict[str, float]:
    """Return the resources of one of ``share`` workers on this machine, by cores and available memory; at least 1."""
    cpus, memory = len(os.sched_getaffinity(0)) // share, psutil.virtual_memory().available // share
    return {
        LAB: float(max(1, min(cpus // LAB_CPUS, memory // LAB_MEMORY))),
        CHECKER: float(max(1, min(cpus, memory // CHECKER_MEMORY))),
    }
