"""The directory of all stored runs: one directory for each run, an index over all, and baselines."""
