"""The record of a worker: a process, usually on another machine, that made repetitions or checked crash states."""

from pydantic import BaseModel, ConfigDict


class WorkerRecord(BaseModel):
    """A worker of a cluster, and what it did for a run."""

    model_config = ConfigDict(extra="forbid")

    name: str
    """Name of the worker in the cluster."""
    host: str
    """Name of the worker's machine."""
    cpu: str
    """Model of the machine's CPU."""
    cores: int
    """Number of the machine's CPUs."""
    kernel: str
    """Release of the machine's own kernel."""
    load: float
    """Load average of the machine over 1 min, when the worker began."""
    version: str
    """Version of raidproof, with the digest of its source code."""
    proofs: int = 0
    """Number of proofs that the worker has passed."""
    done: int = 0
    """Number of results that the run contains: crash states, or repetitions."""
    left_out: str | None = None
    """Why the worker was left out, and its results since its last proof were thrown away; None: it was not."""
