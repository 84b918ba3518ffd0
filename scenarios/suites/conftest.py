"""The scenarios in this folder need the pytest plugin raidproof-suites, which provides the fixture ``suite``."""

import sys
from pathlib import Path

import pytest

LINE = f"{sys.executable} -m pip install --editable {Path(__file__).parent}"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if not hasattr(item.config.option, "suite_path"):
        pytest.fail(f"the pytest plugin raidproof-suites is not installed; install it with: {LINE}", pytrace=False)
