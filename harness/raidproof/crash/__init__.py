"""Crash states: the possible contents of a recorded run's disks after a power cut, and the check of each state."""
