"""raidproof: build an NFS server on Linux RAID, measure it, pull the plug, and check every promise."""

__version__ = "0.1.0"
