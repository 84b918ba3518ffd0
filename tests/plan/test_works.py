"""The workloads of a plan."""

import pytest

from raidproof.core.errors import RequestError
from raidproof.plan import works


@pytest.mark.parametrize(
    ("table", "place"),
    [
        ({"tool": "fio"}, "clients"),
        ({"tool": "hdparm"}, "array"),
        ({"tool": "hdparm", "on": "disk0"}, "disk0"),
        ({"tool": "fio", "on": "array"}, "array"),
        ({"tool": "dd", "on": "server"}, "server"),
    ],
)
def test_a_workload_runs_where_its_tool_can(table: dict[str, str], place: str) -> None:
    assert works.where(table, ["disk0"]) == place


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({"tool": "dd", "on": "array"}, "dd works on files"),
        ({"tool": "postmark", "on": "disk0"}, "postmark works on files"),
        ({"tool": "hdparm", "on": "clients"}, "hdparm reads a block device"),
        ({"tool": "fio", "on": "disk7"}, "unknown value 'disk7'"),
    ],
)
def test_a_workload_does_not_run_where_its_tool_would_measure_something_else(table: dict[str, str], why: str) -> None:
    with pytest.raises(RequestError, match=why):
        works.where(table, ["disk0"])


def test_the_name_of_a_workload_is_one_word() -> None:
    with pytest.raises(RequestError, match="bare array"):
        works.names([{"tool": "fio", "name": "bare array"}])
