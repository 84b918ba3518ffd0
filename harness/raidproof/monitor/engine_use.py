"""What the disk engine says of itself over an interval: whether it kept up, and how busy the disks were it plays."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class EngineUse:
    """Use of the disk engine and of the simulated hardware; shares are of wall time, 1.0 is all of it."""

    cpu_share: float
    """CPU seconds of the engine's process over wall seconds; its Python runs on one core at a time."""
    late_ns_mean: float
    """How long after the simulated disk's answer a request was answered, on average."""
    service_ns_mean: float
    """What the simulated disks took for a request, waiting included; 0 for disks without mechanics."""
    members_busy: dict[str, float] = field(default_factory=dict)
    """By serial."""
    controllers_busy: dict[str, float] = field(default_factory=dict)
    """By name."""
