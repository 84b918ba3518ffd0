"""Shared by the harness's own tests and the scenarios; its plugin is loaded by its entry point."""

pytest_plugins = ["pytester"]
