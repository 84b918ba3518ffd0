"""Counters of a client, parsed from real output."""

from pathlib import Path

import pytest

from raidproof.core.errors import RigError
from raidproof.monitor.counters import parse_mounts
from raidproof.monitor.recording import Fetched, parse_fetched

TEXT = (Path(__file__).parents[1] / "data" / "nfs" / "mountstats-linux-6.12-vers4.2.txt").read_text()


def test_a_mount_is_found() -> None:
    (mount,) = parse_mounts(TEXT)
    assert parse_fetched(TEXT, mount.directory).bytes == mount.wire_read


def test_nothing_mounted_there() -> None:
    with pytest.raises(RigError, match="no NFS mount"):
        parse_fetched(TEXT, "/elsewhere")


def test_what_came_in_between() -> None:
    assert Fetched(10, 3).since(Fetched(4, 1)) == Fetched(6, 2)
