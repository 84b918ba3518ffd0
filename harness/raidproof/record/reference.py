"""The record schema of the reference measurement: a fixed small work, whose speed shows the speed of the host."""

from statistics import geometric_mean

from pydantic import BaseModel, ConfigDict, Field


class ReferenceRecord(BaseModel):
    """One reference measurement; only measurements of the same version are comparable."""

    model_config = ConfigDict(extra="forbid")

    version: int
    """Version of the definition of the work, `raidproof.run.reference.VERSION`."""
    processor_s: float = Field(gt=0)
    """Seconds of a fixed computation by the server's processor."""
    disks_s: float = Field(gt=0)
    """Seconds of fixed reads of a disk of the server, without simulated latency."""
    network_s: float = Field(gt=0)
    """Seconds of a fixed transfer from the harness to the server over the lab's network, without its limits."""

    @property
    def seconds(self) -> float:
        """The geometric mean of the parts, so that a change of each part by a factor has the same weight."""
        return geometric_mean([self.processor_s, self.disks_s, self.network_s])
