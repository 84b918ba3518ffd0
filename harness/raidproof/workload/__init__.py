"""The workloads: the programs that clients run on the mounts, and the acknowledgements that clients receive."""
