"""These scenarios need the plugin beside them, which provides their fixture."""

import sys
from pathlib import Path

import pytest

LINE = f"{sys.executable} -m pip install --editable {Path(__file__).parent}"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if not hasattr(item.config.option, "suite_path"):
        pytest.fail(f"the plugin raidproof-suites is not installed: {LINE}", pytrace=False)
