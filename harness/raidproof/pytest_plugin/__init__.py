"""raidproof's pytest plugin: options, fixtures, and outcomes of tests."""
