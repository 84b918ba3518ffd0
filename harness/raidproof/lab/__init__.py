"""A lab: its machines, disks and network as one thing that starts, is kept, and ends."""
