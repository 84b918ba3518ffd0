from types import SimpleNamespace
from typing import Any

import pytest

from raidproof.core.errors import RequestError
from raidproof.fault import Takeover
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.storage.pair import PairSpec


def context() -> tuple[Any, list[str]]:
    """Return a context with two fake servers, and the list of what happens."""
    did: list[str] = []

    def fence() -> int:
        did.append("fence server")
        return 42

    servers = [SimpleNamespace(name=name, fence=fence) for name in ("server", "server2")]
    lab = SimpleNamespace(server=servers[0])

    def hand_over() -> None:
        did.append("lab")
        lab.server = servers[1]

    lab.hand_over = hand_over
    stack = SimpleNamespace(hand_over=lambda server: did.append(f"stack to {server.name}"))
    return SimpleNamespace(lab=lab, stack=stack), did


def test_the_active_server_is_fenced_and_nothing_else() -> None:
    on, did = context()
    fault = Takeover()
    assert fault.target(on).name == "server"
    event = fault.inject(on)
    assert did == ["fence server"]
    assert (event.target, event.at_ns, event.cut_results) == ("server", 42, ())
    assert "refuse its requests" in event.proof


def test_the_standby_gets_the_stack() -> None:
    on, did = context()
    fault = Takeover()
    fault.heal(on)
    assert did == ["lab", "stack to server2"]
    assert fault.target(on).name == "server2"


def test_the_disks_keep_what_they_acknowledged() -> None:
    effects = Takeover().effects(stack_of(pair=PairSpec()))
    assert effects.caches is None
    assert effects.server_memory_lost
    assert effects.nfsd_restarted
    assert not effects.lease_lost
    assert not effects.errors, "hard mounts report no error to applications"


def test_one_server_cannot_take_over() -> None:
    with pytest.raises(RequestError, match="no second server"):
        Takeover().refuse(stack_of())
    Takeover().refuse(stack_of(pair=PairSpec()))
