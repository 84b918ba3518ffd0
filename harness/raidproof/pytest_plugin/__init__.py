"""raidproof under pytest: options, fixtures, and how a test ends."""
