"""The device between the array and the file system: none, encryption, or a cache. Each kind is one file."""

from raidproof.storage.volume.volume import (
    DEFAULT,
    NAME,
    VOLUMES,
    AnyVolume,
    Volume,
    VolumeSpec,
    VolumeState,
    ready,
    without,
)

__all__ = ["DEFAULT", "NAME", "VOLUMES", "AnyVolume", "Volume", "VolumeSpec", "VolumeState", "ready", "without"]
