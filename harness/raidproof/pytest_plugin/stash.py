"""The keys of pytest's stash: what the fixtures of a process keep for the hooks of the plugin."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from raidproof.pytest_plugin.fixtures import Plans
    from raidproof.run.run import Run

CURRENT_RUN: "pytest.StashKey[Run]" = pytest.StashKey()
"""Key for the run that all scenarios share; stored when the first scenario needs the run."""
PLANS: "pytest.StashKey[Plans]" = pytest.StashKey()
"""Key for the `Plans` object with the runs of the plans whose cells scenarios measure."""
