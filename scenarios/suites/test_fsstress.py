"""fsstress on NFS: after random operations of several processes, client and server have the same files."""

import pytest

from raidproof.pytest_plugin.fixtures import stack_of
from raidproof_suites import Fsstress
from raidproof_suites.suites import Suites


@pytest.mark.exhaustive
def test_fsstress(suite: Suites) -> None:
    suite(stack_of("5", root_squash=False), Fsstress(operations=300)).must_pass()
