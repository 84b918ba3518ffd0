"""Random schedules of faults: drawn from a seed, run as crash tests, and shrunk if they fail."""
