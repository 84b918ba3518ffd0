"""Fixtures of reproducers."""

import pytest

from findings.answer import Record


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Record:
    """Store a property of the test for JUnit XML. Unlike ``record_property``, for every JUnit family."""
    return lambda name, value: request.node.user_properties.append((name, value))
