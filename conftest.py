"""Shared by the harness's own tests and the scenarios."""

pytest_plugins = ["harness.plugin", "pytester"]
