from typing import Any
from unittest.mock import Mock, call

import pytest

from raidproof.core.errors import RigError
from raidproof.core.topology import server_and_clients
from raidproof.namespace import Traffic, network
from raidproof.namespace.network import BRIDGE, Port, Way, create_network


def test_one_bridge_with_the_harness_on_it_and_a_tap_for_each_machine() -> None:
    namespace: Any = Mock()
    create_network(namespace, server_and_clients(clients=2))
    assert namespace.mock_calls == [
        call.bridge(BRIDGE, "10.77.0.1", 24),
        call.tap("tap-server", BRIDGE),
        call.tap("tap-client1", BRIDGE),
        call.tap("tap-client2", BRIDGE),
    ]


BEFORE = Traffic(7, 7, 0)


def port(answer: type[OSError] | None, *traffic: Traffic) -> tuple[Any, Port]:
    """A fake port of a machine with this answer and these successive counts of frames."""
    namespace: Any = Mock()
    namespace.traffic.side_effect = traffic
    namespace.socket.return_value.__enter__ = lambda one: one
    namespace.socket.return_value.__exit__ = lambda *_: None
    namespace.socket.return_value.connect.side_effect = answer
    return namespace, Port(namespace, "server", "10.77.0.10")


@pytest.mark.parametrize(
    ("way", "deaf", "mute", "after"),
    [
        (Way.BOTH, True, True, Traffic(7, 9, 2)),
        (Way.TO, True, False, Traffic(7, 9, 2)),
        (Way.FROM, False, True, Traffic(8, 9, 0)),
    ],
)
def test_a_cut_is_proved_by_missing_replies_and_counts_of_frames(
    way: Way, deaf: bool, mute: bool, after: Traffic
) -> None:
    namespace, one = port(TimeoutError, BEFORE, after)
    assert "probe not answered" in one.cut(way)
    namespace.gate.assert_called_once_with("tap-server", deaf=deaf, mute=mute)


def test_what_was_on_its_way_as_the_gate_shut_does_not_count() -> None:
    late = [Traffic(5, 7, 0), Traffic(6, 7, 1), Traffic(6, 7, 1), Traffic(7, 7, 2)]
    _, one = port(TimeoutError, *late, BEFORE, Traffic(7, 9, 2))
    assert "received 0 frames" in one.cut(Way.BOTH)


@pytest.mark.parametrize(
    ("way", "answer", "after"),
    [
        (Way.BOTH, ConnectionRefusedError, Traffic(7, 9, 2)),
        (Way.BOTH, TimeoutError, Traffic(8, 9, 2)),
        (Way.TO, TimeoutError, Traffic(7, 9, 0)),
        (Way.FROM, TimeoutError, Traffic(7, 9, 0)),
        (Way.FROM, TimeoutError, Traffic(8, 7, 0)),
    ],
)
def test_a_cut_that_passes_frames_or_has_no_proof_is_an_error_of_the_rig(
    way: Way, answer: type[OSError], after: Traffic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "STILL_DEADLINE_S", 0.0)
    namespace, one = port(answer, BEFORE, after)
    with pytest.raises(RigError, match="server is not cut off"):
        one.cut(way)
    assert namespace.gate.mock_calls[-1] == call("tap-server", deaf=False, mute=False)


def test_mending_waits_for_an_answer() -> None:
    namespace, one = port(ConnectionRefusedError)
    one.mend()
    namespace.gate.assert_called_once_with("tap-server", deaf=False, mute=False)
