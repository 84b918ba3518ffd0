from typing import Any

import pytest

from raidproof.core.errors import RequirementMissing
from raidproof.core.topology import Topology, server_and_clients, with_standby
from raidproof.provider.registry import lab_of


def lab(topology: Topology) -> Any:
    made: Any = lab_of(topology)
    made.machines = {one.name: one for one in topology.machines}
    return made


def test_the_servers_exchange_their_roles() -> None:
    pair = lab(with_standby(server_and_clients()))
    assert (pair.server.name, pair.standby.name) == ("server", "server2")
    pair.hand_over()
    assert (pair.server.name, pair.standby.name) == ("server2", "server")
    pair.hand_over()
    assert (pair.server.name, pair.standby.name) == ("server", "server2")


def test_one_server_has_no_other() -> None:
    single = lab(server_and_clients())
    assert single.standby is None
    with pytest.raises(RequirementMissing, match="the lab has one server"):
        single.hand_over()
    assert single.server.name == "server"
