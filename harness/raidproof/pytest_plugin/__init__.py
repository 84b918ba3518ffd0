"""raidproof's pytest plugin: command line options, fixtures, and outcomes of tests."""
