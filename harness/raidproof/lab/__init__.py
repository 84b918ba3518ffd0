"""A lab: machines, disks and network that start, may be kept, and end together."""
