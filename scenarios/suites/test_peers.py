"""The external test suites Connectathon, pynfs, fstests and LTP on a stack of raidproof."""

import pytest

from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.storage.mount import MountSpec
from raidproof.storage.server import ExportSpec
from raidproof_suites import Cthon, Fstests, Ltp, Pynfs
from raidproof_suites.suites import Suites

pytestmark = pytest.mark.exhaustive


@pytest.mark.parametrize("vers", ["3", "4.0", "4.2"])
def test_connectathon(suite: Suites, vers: str) -> None:
    suite(stack_of(root_squash=False, mount=MountSpec(vers=vers)), Cthon()).must_pass()


def test_pynfs(suite: Suites) -> None:
    suite(
        stack_of(export=ExportSpec(root_squash=False)), Pynfs(tests=("EID1", "CSESS1", "SEQ1", "PUTFH1d"))
    ).must_pass()


def test_fstests(suite: Suites) -> None:
    suite(stack_of(root_squash=False), Fstests(tests=("generic/001", "generic/013", "generic/075"))).must_pass()


def test_ltp(suite: Suites) -> None:
    suite(stack_of(root_squash=False), Ltp()).must_pass()
