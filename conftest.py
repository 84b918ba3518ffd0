"""pytest configuration of the unit tests and the scenarios; pytest loads raidproof's plugin by its entry point."""

pytest_plugins = ["pytester"]
