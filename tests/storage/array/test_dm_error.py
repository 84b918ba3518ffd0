"""Devices of device-mapper whose requests fail: commands, from real lines of ``dmsetup table``."""

import pytest

from raidproof.core.errors import RigError
from raidproof.storage.array.dm_error import fail_commands

NAME = "raidproof-array_rimage_1"
TABLES = {
    573440: "0 573440 linear 254:16 10240\n",
    8192: "0 8192 linear 254:16 2048\n",
}


@pytest.mark.parametrize("sectors", TABLES)
def test_a_device_fails_over_its_whole_size(sectors: int) -> None:
    load, *rest = fail_commands(NAME, TABLES[sectors])
    assert load == ["dmsetup", "load", NAME, "--table", f"0 {sectors} error"]
    assert [command[1] for command in rest] == ["suspend", "resume"]
    assert {command[-1] for command in rest} == {NAME}


@pytest.mark.parametrize("table", ["", "0 3768", "0 376832 linear", "Device does not exist.\n"])
def test_a_truncated_table_is_refused(table: str) -> None:
    with pytest.raises(RigError):
        fail_commands(NAME, table)
