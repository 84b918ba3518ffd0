"""The device between the array and the file system: encryption, a cache, a logical volume. Each kind is one file."""

from raidproof.storage.volume.mapper import NAME
from raidproof.storage.volume.volume import (
    DEFAULT,
    VOLUMES,
    AnyVolume,
    Volume,
    VolumeSpec,
    VolumeState,
    ready,
    without,
)

__all__ = ["DEFAULT", "NAME", "VOLUMES", "AnyVolume", "Volume", "VolumeSpec", "VolumeState", "ready", "without"]
