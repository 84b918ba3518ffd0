"""The command line of raidproof."""
