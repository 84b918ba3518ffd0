"""The exit status and the counts of LTP's programs."""

import pytest

from raidproof_suites.ltp import parse_ltp
from tests.suites.outputs import ended, real


@pytest.mark.parametrize(
    ("status", "list_name"), [(0, "passed"), (1, "failed"), (2, "unknown"), (32, "skipped"), (139, "unknown")]
)
def test_ltp_status(status: int, list_name: str) -> None:
    assert getattr(parse_ltp("nfs04", ended(real("ltp-nfs04.txt"), status)), list_name)


def test_ltp_that_counts_nothing_is_unknown() -> None:
    assert parse_ltp("fsx", ended(real("fsx-linux.txt").replace("passed   1", "passed   0"))).unknown
