from typing import Any
from unittest.mock import Mock, call

from harness.network import BRIDGE, create_network
from harness.topology import server_and_clients


def test_one_bridge_with_the_harness_on_it_and_a_tap_for_each_machine() -> None:
    enclosure: Any = Mock()
    create_network(enclosure, server_and_clients(clients=2))
    assert enclosure.mock_calls == [
        call.bridge(BRIDGE, "10.77.0.1", 24),
        call.tap("tap-server", BRIDGE),
        call.tap("tap-client1", BRIDGE),
        call.tap("tap-client2", BRIDGE),
    ]
