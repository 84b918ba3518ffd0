"""raidproof: build an NFS server on Linux RAID, measure it, cut its power, and check every promise."""

__version__ = "0.1.0"
