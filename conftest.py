"""Shared by the harness's own tests and the scenarios."""

pytest_plugins = ["raidproof.pytest_plugin.plugin", "pytester"]
