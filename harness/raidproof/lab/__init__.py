"""A lab: its machines, disks and network as a unit that starts, may be kept, and ends."""
